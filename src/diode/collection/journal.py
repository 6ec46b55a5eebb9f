"""The file that a running collection appends to, in frames as `diode.storage.frames` has them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec

from diode.errors import CollectionError, FileFormatError
from diode.storage.frames import UNREADABLE, frame_of, frames_in, record_in
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
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


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
        self._file.write(frame_of(frame))
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
    found = frames_in(content, len(_MAGIC))
    if found.damages:
        damage = found.damages[0]
        raise FileFormatError(
            f"{path}: damaged at byte {damage.position}, with whole records after it; restore the file from a copy, "
            f"cut it to {damage.position} bytes to keep the {damage.frames_before} records before, or remove it to "
            "start again"
        )
    return [_frame_in(payload, number, path) for number, payload in enumerate(found.payloads)], found.end


def _frame_in(payload: bytes, number: int, path: Path) -> Frame:
    try:
        frame: Frame = record_in(payload, _DECODER)
    except UNREADABLE as error:
        raise FileFormatError(
            f"{path}: record {number} is not of this version ({error}); finish the collection with the diode "
            "that began it, or remove the file to start again"
        ) from error
    return frame
