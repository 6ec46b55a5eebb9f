"""The progress of long work: a live line on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console

from diode.cli.durations import duration
from diode.collection.sweep import SweepProgress

_TERMINAL_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 10.0


class CollectionDisplay:
    """Shows done, rate, time left, and the latest problem's fastest choice; call it as often as you like."""

    def __init__(self, console: Console, budget_seconds: float | None) -> None:
        self._console = console
        self._budget = budget_seconds
        self._started = time.monotonic()
        self._shown = self._started
        self._first_done: int | None = None
        self._first_told = False
        self._status = console.status("starting") if console.is_terminal else None

    def __enter__(self) -> CollectionDisplay:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, progress: SweepProgress) -> None:
        if self._first_done is None:
            self._first_done = progress.problems_done
        now = time.monotonic()
        if not self._due(progress, now):
            return
        self._shown = now
        line = self._line(progress, now - self._started)
        if self._status is None:
            self._console.print(line, markup=False)
        else:
            self._status.update(line.replace("[", r"\["))

    def _due(self, progress: SweepProgress, now: float) -> bool:
        if self._status is not None:
            return now - self._shown >= _TERMINAL_SECONDS
        if not self._first_told and progress.problems_done > (self._first_done or 0):
            self._first_told = True  # it works, says a log, and how long the rest will take
            return True
        return now - self._shown >= _LOG_SECONDS

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
