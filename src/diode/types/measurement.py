"""What was measured: a problem, a choice, its time or its failure, and how and where it was timed."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from diode.errors import InvalidRecordError
from diode.types.choice import Choice
from diode.types.hardware import Hardware
from diode.types.problem import LARGEST_FLOAT, Name, Problem

Microseconds = Annotated[float, msgspec.Meta(gt=0, le=LARGEST_FLOAT)]
FailureReason = Literal[
    "shared_memory",
    "registers",
    "compile_error",
    "wrong_result",
    "crash",
    "timeout",
    "unknown",
]


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a choice gave no time: a label like any other, it teaches what not to offer."""

    reason: FailureReason
    message: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time in microseconds and what is known of its quality; None where the timer does not tell."""

    time_us: Microseconds
    min_us: Microseconds | None = None
    spread: Annotated[float, msgspec.Meta(ge=0, le=LARGEST_FLOAT)] | None = None
    """Interquartile range over median of the repeats."""
    repeats: Annotated[int, msgspec.Meta(ge=1)] | None = None
    clock_mhz: Annotated[int, msgspec.Meta(ge=1)] | None = None


class TimingMethod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a time was taken. Times of different methods are not the same quantity."""

    timer: Name
    """`diode-sweep`, or `inductor` for what max-autotune measured."""
    statistic: Literal["median", "min"]
    flush_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    launch_hidden: bool | None = None
    """Whether the launch latency was kept out of the time."""
    overhead_us: Annotated[float, msgspec.Meta(ge=0, le=LARGEST_FLOAT)] | None = None
    """What was subtracted from each reading: that of the timer with nothing to time."""
    kernel: Literal["static", "family", "backend"] = "backend"
    """A kernel compiled for this problem alone, one that serves many sizes, or whatever the backend ran."""
    round: Annotated[int, msgspec.Meta(ge=1)] = 1
    """2 for the independent second timing of near-winners, whose times are the truth where they exist."""


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and by what a measurement was taken."""

    hardware: Hardware
    torch: str = ""
    triton: str = ""
    driver: str = ""
    python: str = ""
    diode: str = ""
    commit: str = ""
    command: str = ""
    taken: str = ""
    """Day of the run, ISO 8601."""
    template_hashes: tuple[tuple[str, str], ...] = ()


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One (problem, choice) with either a timing or a failure."""

    problem: Problem
    choice: Choice
    environment: Environment
    method: TimingMethod
    timing: Timing | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if (self.timing is None) == (self.failure is None):
            raise InvalidRecordError(f"{self.problem}, {self.choice}: needs either a timing or a failure, and not both")

    @property
    def time_us(self) -> float | None:
        return None if self.timing is None else self.timing.time_us
