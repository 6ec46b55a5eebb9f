"""What is wrong inside a file, and the one place where it becomes an error that names the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from diode.errors import FileAccessError, FileFormatError

Encoding = Literal["json", "msgpack"]

_PLACE = re.compile(r"(?P<what>.*) - at (?:`key` in )?`\$\.?(?P<place>.*)`", re.DOTALL)
_LONGEST_MESSAGE = 600


class Flaw(ValueError):
    """Something that a file must not hold: which record and field, and what is wrong with it."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}" if place else what)
        self.place = place
        self.what = what

    def within(self, outer: str) -> Flaw:
        return Flaw(joined(outer, self.place), self.what)


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Turns whatever reading can meet into one error that names the file."""
    try:
        yield
    except Flaw as flaw:
        raise FileFormatError(f"{path}: {_one_line(str(flaw))}") from flaw
    except MemoryError as cause:
        raise FileFormatError(f"{path}: what it says it holds does not fit into memory") from cause
    except OSError as cause:
        raise FileAccessError(f"{path}: cannot be read: {cause.strerror or cause}") from cause


def decoded(data: bytes | msgspec.Raw, record_type: Any, encoding: Encoding = "json", place: str = "") -> Any:
    """One record, decoded strictly; `place` says where in the file the data lie."""
    decode = msgspec.json.decode if encoding == "json" else msgspec.msgpack.decode
    try:
        return decode(data, type=record_type)
    except msgspec.MsgspecError as error:
        found = _PLACE.fullmatch(str(error))
        if found is None:
            raise Flaw(place, str(error)) from error
        raise Flaw(joined(place, found["place"]), found["what"]) from error
    except UnicodeDecodeError as error:
        raise Flaw(place, f"text that is not UTF-8: {error}") from error
    except RecursionError as error:
        raise Flaw(place, "nested too deeply") from error


def joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer and inner and not inner.startswith("[") else outer + inner


def _one_line(message: str) -> str:
    """Short, and without what a hostile file could do to the reader's terminal."""
    shortened = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shortened)
