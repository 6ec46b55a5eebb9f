"""The folder that a user's compiles append what they benchmark to.

Each process writes a file of its own, so that no two writers ever meet; a reader takes all files together. A record is
one autotuning, whole in itself: with the circumstances, so that nothing depends on a record that may be lost.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from diode.errors import FileAccessError, FileFormatError
from diode.storage.frames import UNREADABLE, frame_of, frames_in, record_in
from diode.types import (
    Choice,
    Dataset,
    DatasetBuilder,
    Environment,
    Failure,
    Measurement,
    MMShape,
    Timing,
    TimingMethod,
)

STORE_SUFFIX: Final = ".learned"
_MAGIC: Final = b"diode-learned-1\n"


class Outcome(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What became of one choice."""

    choice: Choice
    method: TimingMethod
    timing: Timing | None
    failure: Failure | None


class Autotuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that one autotuning of a GEMM measured."""

    environment: Environment
    problem: MMShape
    outcomes: tuple[Outcome, ...]


_DECODER: Final = msgspec.msgpack.Decoder(Autotuning)


class StoreWriter:
    """Appends autotunings, from any thread, and after a fork from the child too: each process has its own file.

    A record is handed to the system in one piece: a process that is killed loses at most the one under way.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[int, _AppendedFile] = {}

    def append(self, autotuning: Autotuning) -> None:
        process = os.getpid()
        file = self._files.get(process) or self._files.setdefault(process, _AppendedFile(self.folder))
        file.append(frame_of(autotuning))

    def close(self) -> None:
        """What is appended after this goes to a new file."""
        file = self._files.pop(os.getpid(), None)
        if file is not None:
            file.close()


class _AppendedFile:
    """One file of one process, made when there is something to write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._end = 0

    def append(self, frame: bytes) -> None:
        with self._lock:
            if self._descriptor is None:
                self._descriptor, frame = self._made(), _MAGIC + frame
            try:
                written = os.write(self._descriptor, frame)
                if written < len(frame):
                    raise OSError(f"{self._folder}: only {written} of {len(frame)} bytes could be written")
            except OSError:
                # A full disk must not leave half a record between whole ones.
                os.ftruncate(self._descriptor, self._end)
                if not self._end:
                    self._close()
                raise
            self._end += written

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor, self._end = self._descriptor, None, 0
        if descriptor is not None:
            os.close(descriptor)

    def _made(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(8)}{STORE_SUFFIX}"
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o666)


@dataclass(frozen=True)
class Store:
    """What a store held when it was read."""

    autotunings: tuple[Autotuning, ...] = ()
    digest: str = ""
    """Equal for equal records, however they are spread over files; empty where there are none."""
    damages: tuple[str, ...] = ()
    """What could not be read, a line each; what is half-written at the end of a file is none."""

    @classmethod
    def read(cls, folder: Path) -> Store:
        """All records that can be read. A folder that is not there yet holds none."""
        found: dict[bytes, Autotuning] = {}
        damages: list[str] = []
        for path in store_files(folder) if folder.exists() else ():
            damages += _read_file(path, found)
        # A record that was copied to another file is the same record; their order says nothing.
        names = sorted(found)
        digest = hashlib.sha256(b"".join(names)).hexdigest() if names else ""
        return cls(tuple(found[name] for name in names), digest, tuple(damages))

    @classmethod
    def read_whole(cls, folder: Path) -> Store:
        """All records, or an error that names the damage."""
        store = cls.read(folder) if folder.is_dir() else None
        if store is None:
            raise FileAccessError(f"{folder}: no such folder; name the one that DIODE_LEARN named")
        if store.damages:
            raise FileFormatError("; ".join(store.damages))
        return store

    def dataset(self) -> Dataset:
        return dataset_of(self.autotunings)


def dataset_of(autotunings: Iterable[Autotuning]) -> Dataset:
    builder = DatasetBuilder()
    for tuned in autotunings:
        for outcome in tuned.outcomes:
            builder.add(
                Measurement(
                    tuned.problem, outcome.choice, tuned.environment, outcome.method, outcome.timing, outcome.failure
                )
            )
    return builder.build()


def store_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == STORE_SUFFIX and path.is_file())
    except OSError as cause:
        raise FileAccessError(f"{folder}: cannot be read: {cause.strerror or cause}") from cause


def _read_file(path: Path, found: dict[bytes, Autotuning]) -> list[str]:
    try:
        content = path.read_bytes()
    except OSError as cause:
        return [f"{path}: cannot be read: {cause.strerror or cause}"]
    if _MAGIC.startswith(content):
        return []  # its writer was killed as it began
    if not content.startswith(_MAGIC):
        return [f"{path}: not a store of this version; move it out of the folder"]
    frames = frames_in(content, len(_MAGIC))
    damages = [
        f"{path}: damaged at byte {damage.position}, after {damage.frames_before} whole records; restore the file from "
        "a copy, or move it out of the folder"
        for damage in frames.damages
    ]
    for number, payload in enumerate(frames.payloads):
        record = _record_of(payload)
        if isinstance(record, str):
            damages.append(f"{path}: record {number} is not of this version ({record}); move it out of the folder")
        else:
            found[hashlib.sha256(payload).digest()] = record
    return damages


def _record_of(payload: bytes) -> Autotuning | str:
    try:
        record: Autotuning = record_in(payload, _DECODER)
    except UNREADABLE as error:
        return str(error)
    return record
