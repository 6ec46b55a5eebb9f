"""What the sweep and the process that owns a GPU say to one another."""

from __future__ import annotations

from dataclasses import dataclass

from diode.collection.gpu.timer import Repeats
from diode.types import Choice, Environment, Failure, MMShape, Timing


@dataclass(frozen=True)
class KernelLaunch:
    """A compiled Triton kernel, by the file it lies in, and how to launch it."""

    path: str
    signature: tuple[tuple[str, str], ...]
    grid: tuple[int, int, int]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """One choice to be timed; `kernel` is None for what PyTorch itself runs."""

    choice: Choice
    kernel: KernelLaunch | None


@dataclass(frozen=True)
class Job:
    """One problem with all its choices, timed together."""

    number: int
    problem: MMShape
    entries: tuple[Entry, ...]
    repeats: Repeats
    check: bool = True


@dataclass(frozen=True)
class Ready:
    """The process is up: what it runs on."""

    environment: Environment
    flush_bytes: int
    overhead_us: float


@dataclass(frozen=True)
class Outcome:
    """What became of one entry of a job."""

    choice: Choice
    timing: Timing | None
    failure: Failure | None


@dataclass(frozen=True)
class Done:
    """All outcomes of a job, in the order of its entries."""

    number: int
    outcomes: tuple[Outcome, ...]
    trying_seconds: float
    """Setting up, loading, first launches, checks."""
    timing_seconds: float
    discarded: int


@dataclass(frozen=True)
class Broken:
    """The job could not be set up at all: too little memory for its operands, say."""

    number: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """Asks the process to end."""
