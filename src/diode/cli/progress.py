"""The progress of long work: a live line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rich.console import Console

from diode.cli.durations import duration
from diode.collection.sweep import SweepProgress

if TYPE_CHECKING:
    from typing_extensions import Self

_TERMINAL_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 10.0


class Ticker:
    """Tells how far long work is; what is told between two showings is passed over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting") if console.is_terminal else None
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, line: Callable[[], str]) -> None:
        now = time.monotonic()
        if now - self._shown < (_LOG_SECONDS if self._status is None else _TERMINAL_SECONDS):
            return
        self._shown = now
        if self._status is None:
            self._console.print(line(), markup=False)
        else:
            self._status.update(line().replace("[", r"\["))


class CollectionDisplay(Ticker):
    """Shows done, rate, time left, and the latest problem's fastest choice; call it as often as you like."""

    def __init__(self, console: Console, budget_seconds: float | None) -> None:
        super().__init__(console)
        self._budget = budget_seconds
        self._started = time.monotonic()
        self._first_done: int | None = None

    def __call__(self, progress: SweepProgress) -> None:
        if self._first_done is None:
            self._first_done = progress.problems_done
        self.tell(lambda: self._line(progress, time.monotonic() - self._started))

    def _line(self, progress: SweepProgress, elapsed: float) -> str:
        parts = [
            f"{progress.problems_done}/{progress.problems} problems",
            f"{progress.measurements} measurements ({progress.measurements / elapsed:.0f}/s)",
        ]
        if progress.failures:
            parts.append(f"{progress.failures} failures")
        if progress.kernels_compiled:
            parts.append(f"{progress.kernels_compiled} kernels ({progress.kernels_compiled / elapsed:.0f}/s)")
        parts.append(self._time_left(progress, elapsed))
        if progress.last:
            parts.append(progress.last)
        return ", ".join(parts)

    def _time_left(self, progress: SweepProgress, elapsed: float) -> str:
        done = progress.problems_done - (self._first_done or 0)
        left = [] if not done else [elapsed / done * (progress.problems - progress.problems_done)]
        if self._budget is not None:
            left.append(max(self._budget - elapsed, 0.0))
        return f"{duration(min(left))} left" if left else f"{duration(elapsed)} so far"
