"""Finds an object that has the same key twice: msgspec would quietly take the last of the two."""

from __future__ import annotations

import re
from typing import Final

from diode.storage.flaws import Encoding, Flaw, decoded, joined

_JSON_SKELETON = re.compile(rb'"((?:[^"\\]+|\\.)*)"(\s*:)?|\{|\}')
_JSON_STRUCTURE = re.compile(rb'"((?:[^"\\]+|\\.)*)"(\s*:)?|[{}\[\],]')


def refuse_duplicate_keys(data: bytes, encoding: Encoding, place: str = "") -> None:
    """Only for data that msgspec has been through without an error, if only to skip them."""
    if encoding == "json":
        _refuse_in_json(data, place)
        return
    try:
        _MsgpackWalk(data).value(place)
    except RecursionError as error:
        raise Flaw(place, "nested too deeply") from error


def _refuse_in_json(data: bytes, place: str) -> None:
    open_objects: list[set[bytes]] = []
    for token in _JSON_SKELETON.finditer(data):
        mark = token[0]
        if mark == b"{":
            open_objects.append(set())
        elif mark == b"}":
            open_objects.pop()
        elif token[2] is not None:
            key = _unescaped(token[1])
            if key in open_objects[-1]:
                raise Flaw(joined(place, _json_place(data, token.start())), f"has the key {_text(key)!r} twice")
            open_objects[-1].add(key)


def _unescaped(key: bytes) -> bytes:
    if b"\\" not in key:
        return key
    unescaped: str = decoded(b'"%b"' % key, str)
    return unescaped.encode()


def _text(key: bytes) -> str:
    # What is decoded only later may still hold text that is not UTF-8.
    return key.decode(errors="replace")


def _json_place(data: bytes, end: int) -> str:
    """The path to the object that is open at an offset."""
    steps: list[int | str] = []
    for token in _JSON_STRUCTURE.finditer(data, 0, end):
        mark = token[0]
        if mark == b"[":
            steps.append(0)
        elif mark == b"{":
            steps.append("")
        elif mark in (b"]", b"}"):
            steps.pop()
        elif mark == b",":
            if isinstance(steps[-1], int):
                steps[-1] += 1
        elif token[2] is not None:
            steps[-1] = _text(_unescaped(token[1]))
    place = ""
    for step in steps[:-1]:
        place = f"{place}[{step}]" if isinstance(step, int) else joined(place, step)
    return place


# First byte of a msgpack value: how many bytes its length takes, for everything whose length is not in the first byte.
_LENGTH_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_SCALAR_BYTES: Final = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


class _MsgpackWalk:
    """Steps through msgpack data without building what they hold."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def value(self, place: str) -> None:
        first = self.data[self.offset]
        self.offset += 1
        if first <= 0x7F or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
            return
        if first in _SCALAR_BYTES:
            self.offset += _SCALAR_BYTES[first]
        elif first <= 0x8F:
            self._map(first & 0x0F, place)
        elif first <= 0x9F:
            self._array(first & 0x0F, place)
        elif first <= 0xBF:
            self.offset += first & 0x1F
        elif first in _LENGTH_BYTES:
            length = self._length(_LENGTH_BYTES[first])
            if first >= 0xDE:
                self._map(length, place)
            elif first >= 0xDC:
                self._array(length, place)
            else:
                self.offset += length
        else:
            raise Flaw(place, "holds a msgpack extension, which no file of diode has")

    def _length(self, width: int) -> int:
        start = self.offset
        self.offset += width
        return int.from_bytes(self.data[start : self.offset], "big")

    def _array(self, length: int, place: str) -> None:
        for number in range(length):
            self.value(f"{place}[{number}]")

    def _map(self, length: int, place: str) -> None:
        seen: set[str] = set()
        for _ in range(length):
            start = self.offset
            self.value(place)
            key: str = decoded(self.data[start : self.offset], str, "msgpack", place)
            if key in seen:
                raise Flaw(place, f"has the key {key!r} twice")
            seen.add(key)
            self.value(joined(place, key))
