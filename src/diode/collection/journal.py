"""The file that a running collection appends to: framed, checked, worth all but its last seconds after a kill -9."""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from diode.errors import CollectionError, FileFormatError
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

_MAGIC: Final = b"diode-journal-1\n"
_FRAME: Final = struct.Struct("<II")
_SYNC_SECONDS: Final = 2.0


class JournalHeader(msgspec.Struct, frozen=True, tag="header", forbid_unknown_fields=True):
    """What the collection was asked for; a journal of another plan is not resumed."""

    plan: str


class JournalEnvironment(msgspec.Struct, frozen=True, tag="environment", forbid_unknown_fields=True):
    """Where the results after this were taken, until the next such frame."""

    environment: Environment


class JournalOutcome(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    choice: Choice
    timing: Timing | None
    failure: Failure | None


class JournalResult(msgspec.Struct, frozen=True, tag="result", forbid_unknown_fields=True):
    """All outcomes of one problem in one round."""

    problem: MMShape
    method: TimingMethod
    outcomes: tuple[JournalOutcome, ...]
    final: bool
    """Whether nothing more is wanted of this problem."""


Frame = JournalHeader | JournalEnvironment | JournalResult


class Journal:
    """Appends frames; what a crash left half-written at the end is dropped when the journal is opened again."""

    def __init__(self, path: Path, plan: str) -> None:
        self.path = path
        self.finished: set[MMShape] = set()
        self._synced = time.monotonic()
        if path.exists():
            frames, end = _read_frames(path)
            if not frames or not isinstance(frames[0], JournalHeader):
                raise FileFormatError(f"{path}: not a journal of this version; remove it to start again")
            if frames[0].plan != plan:
                raise CollectionError(
                    f"{path}: belongs to a collection with other arguments; finish that one, remove the file, "
                    "or choose another --output"
                )
            self.finished = {frame.problem for frame in frames if isinstance(frame, JournalResult) and frame.final}
            self._file = path.open("r+b")
            self._file.truncate(end)
            self._file.seek(end)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb")
            self._file.write(_MAGIC)
            self.append(JournalHeader(plan))
            self._sync()

    def append(self, frame: Frame) -> None:
        # Choices repeat from problem to problem: a tenth of the size for a hundredth of a second.
        payload = zlib.compress(msgspec.msgpack.encode(frame), level=1)
        self._file.write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self._sync()

    def dataset(self) -> Dataset:
        self._sync()
        return journal_dataset(self.path)

    def close(self) -> None:
        self._sync()
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


def journal_dataset(path: Path) -> Dataset:
    """All measurements of a journal. A problem begun anew after an interruption counts once, by its last results."""
    environment: Environment | None = None
    latest: dict[tuple[MMShape, TimingMethod], tuple[Environment, JournalResult]] = {}
    for frame in _read_frames(path)[0]:
        if isinstance(frame, JournalEnvironment):
            environment = frame.environment
        elif isinstance(frame, JournalResult):
            if environment is None:
                raise FileFormatError(f"{path}: results before their environment; remove the file to start again")
            latest[frame.problem, frame.method] = (environment, frame)
    builder = DatasetBuilder()
    for taken_in, result in latest.values():
        for outcome in result.outcomes:
            builder.add(
                Measurement(result.problem, outcome.choice, taken_in, result.method, outcome.timing, outcome.failure)
            )
    return builder.build()


def _read_frames(path: Path) -> tuple[list[Frame], int]:
    """All whole frames, and where the last of them ends."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise FileFormatError(f"{path}: not a journal of this version; remove it to start again")
    decoder = msgspec.msgpack.Decoder(Frame)
    frames: list[Frame] = []
    position = len(_MAGIC)
    while position + _FRAME.size <= len(content):
        length, checksum = _FRAME.unpack_from(content, position)
        payload = content[position + _FRAME.size : position + _FRAME.size + length]
        if len(payload) < length or zlib.crc32(payload) != checksum:
            break
        frames.append(decoder.decode(zlib.decompress(payload)))
        position += _FRAME.size + length
    return frames, position
