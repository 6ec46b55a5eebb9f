"""What was decided for a GEMM, and the decisions that are remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from diode.types import Choice, MMShape

_REMEMBERED: Final = 4096

Value = TypeVar("Value")


@dataclass(frozen=True)
class Pick:
    """One choice that was left, with what the model says of it."""

    choice: Choice
    predicted_us: float
    sigma: float
    """Standard deviation of the logarithm of the prediction."""

    def __str__(self) -> str:
        return f"{self.choice}: {self.predicted_us:.2f} us (x/ {1 + self.sigma:.2f})"


@dataclass(frozen=True)
class Decision:
    """What became of one GEMM; `str()` of it explains it to a reader."""

    problem: str
    device: str
    policy: str
    model: str = ""
    candidates: int = 0
    sizes: tuple[MMShape, ...] = ()
    """The sizes it was made for: several where some are dynamic."""
    picks: tuple[Pick, ...] = ()
    fallback: str | None = None
    """The name of the statistic that counts why Inductor's own choices were taken."""
    why: str = ""
    seconds: float = 0.0
    remembered: bool = False
    measured_us: float | None = None
    """What the first pick took when it was measured on this machine; None where the model alone chose it."""
    compared: int = 0
    """The number of choices that it was the fastest of."""
    corrected_by: int = 0
    """The number of problems measured on this machine by which the predictions were corrected."""

    def __str__(self) -> str:
        head = f"{self.problem} on {self.device}, {self.policy}"
        if self.fallback is not None:
            return f"{head}: Inductor's own choices ({self.fallback}: {self.why})"
        told = "remembered" if self.remembered else f"{self.seconds * 1e3:.1f} ms"
        lines = [f"{head}: {len(self.picks)} of {self.candidates} choices by {self.model} ({told})"]
        if self.measured_us is not None:
            lines.append(f"  the first was the fastest of {self.compared} measured here: {self.measured_us:.2f} us")
        if self.corrected_by:
            lines.append(f"  predictions corrected by {self.corrected_by} problems measured here")
        if len(self.sizes) > 1:
            lines.append("  for " + ", ".join(f"{s.M}x{s.N}x{s.K}" for s in self.sizes))
        return "\n".join([*lines, *(f"  {pick}" for pick in self.picks)])


class Remembered(Generic[Value]):
    """A bounded mapping for several threads; what was not used for longest is forgotten first."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: Value) -> None:
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._size:
                self._values.popitem(last=False)


_latest: Decision | None = None


def note(decision: Decision) -> None:
    """Keeps the latest decision of the process for `last_decision`."""
    global _latest
    _latest = decision


def last_decision() -> Decision | None:
    """The latest decision of this process, by whichever handler; None before the first one."""
    return _latest


def as_remembered(decision: Decision, seconds: float) -> Decision:
    return replace(decision, seconds=seconds, remembered=True)
