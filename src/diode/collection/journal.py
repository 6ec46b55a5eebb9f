"""The file that a running collection appends to: whole after a kill -9, short of some seconds after a power cut."""

from __future__ import annotations

import os
import struct
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

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
    TiledConfig,
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
        self._file: BinaryIO
        if path.exists() and path.stat().st_size > 0:
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
            self._file = path.open("wb")
            self._file.write(_MAGIC)
            self.append(JournalHeader(plan))
            self._sync()

    def append(self, frame: Frame) -> None:
        # Choices repeat from problem to problem: a tenth of the size for a hundredth of a second.
        payload = zlib.compress(msgspec.msgpack.encode(frame), level=1)
        self._file.write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)
        self._file.flush()
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
        of_backend = msgspec.structs.replace(result.method, kernel="backend")
        for outcome in result.outcomes:
            method = result.method if isinstance(outcome.choice, TiledConfig) else of_backend
            builder.add(Measurement(result.problem, outcome.choice, taken_in, method, outcome.timing, outcome.failure))
    return builder.build()


def _read_frames(path: Path) -> tuple[list[Frame], int]:
    """All whole frames, and where the last of them ends. Nothing but a torn end is passed over in silence."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise FileFormatError(f"{path}: not a journal of this version; remove it to start again")
    decoder = msgspec.msgpack.Decoder(Frame)
    frames: list[Frame] = []
    position = len(_MAGIC)
    while (payload := _payload(content, position)) is not None:
        try:
            frames.append(decoder.decode(zlib.decompress(payload)))
        except (zlib.error, msgspec.DecodeError) as error:
            raise FileFormatError(
                f"{path}: record {len(frames)} is not of this version ({error}); finish the collection with the diode "
                "that began it, or remove the file to start again"
            ) from error
        position += _FRAME.size + len(payload)
    if _payload(content, position + _FRAME.size + _length(content, position)) is not None:
        raise FileFormatError(
            f"{path}: damaged at byte {position}, with whole records after it; restore the file from a copy, cut it "
            f"to {position} bytes to keep the {len(frames)} records before, or remove it to start again"
        )
    return frames, position


def _payload(content: bytes, position: int) -> bytes | None:
    """The payload of the frame that begins here, or None where no whole frame does."""
    if position + _FRAME.size > len(content):
        return None
    length, checksum = _FRAME.unpack_from(content, position)
    payload = content[position + _FRAME.size : position + _FRAME.size + length]
    # A power cut may leave zeros, which would pass for a frame without content.
    return payload if len(payload) == length > 0 and zlib.crc32(payload) == checksum else None


def _length(content: bytes, position: int) -> int:
    if position + _FRAME.size > len(content):
        return 0
    length: int = _FRAME.unpack_from(content, position)[0]
    return length
