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

    def tell(self, line: Callable[[], str], *, first: bool = False) -> None:
        """The first thing there is to tell goes into a log at once."""
        now = time.monotonic()
        live = self._status is not None
        if now - self._shown < (_TERMINAL_SECONDS if live else _LOG_SECONDS) and (live or not first):
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
        self._first_told = False

    def __call__(self, progress: SweepProgress) -> None:
        if self._first_done is None:
            self._first_done = progress.problems_done
        # It works, says a log after the first problem, and how long the rest will take.
        first = not self._first_told and progress.problems_done > self._first_done
        self._first_told |= first
        self.tell(lambda: self._line(progress, time.monotonic() - self._started), first=first)

    def _line(self, progress: SweepProgress, elapsed: float) -> str:
        parts = [
            f"{progress.problems_done}/{progress.problems} problems",
            f"{progress.measurements} measurements ({_rate(progress.measurements / elapsed)})",
        ]
        if progress.failures:
            parts.append(f"{progress.failures} failures")
        if progress.kernels_compiled:
            parts.append(f"{progress.kernels_compiled} kernels ({_rate(progress.kernels_compiled / elapsed)})")
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


def _rate(per_second: float) -> str:
    return f"{per_second:.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"
