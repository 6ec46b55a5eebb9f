"""Times launches so that the time is the kernel's own.

Each sample is `flush, event, launch, event`, enqueued while the GPU is kept busy, and proves itself: when all of it had
been enqueued before the GPU began the sample two places before it, neither launch latency nor the GPU's own reading of
its queue can be in it. A sample without that proof is thrown away and taken again. Each pass begins at another launch,
so that none is always the first after a pause. What two events with nothing between them read is measured at the start
and subtracted.
`docs/timing.md` shows by measurements that this is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

Launch = Callable[[], object]

_BATCH: Final = 64
_MAX_ATTEMPTS: Final = 5
_LEAD: Final = 2
"""How many samples the queue must be ahead of the GPU."""
_LEAST_SPIN_CYCLES: Final = 400_000
_MOST_SPIN_CYCLES: Final = 4_000_000
_STRIDE: Final = 7919
"""A prime beyond any number of choices, so that the first place goes round."""
_CALIBRATION_PASSES: Final = 9
_RESOLUTION_US: Final = 0.03


class InterleavedTimer:
    """Times many launches round-robin on the current CUDA stream, with a cold L2 for each."""

    def __init__(self, device: torch.device, flush_bytes: int) -> None:
        self.flush_bytes = flush_bytes
        self._flush = torch.empty(max(1, flush_bytes // 4), dtype=torch.int32, device=device)
        self._starts = [torch.cuda.Event(enable_timing=True) for _ in range(_BATCH)]
        self._ends = [torch.cuda.Event(enable_timing=True) for _ in range(_BATCH)]
        self._spin_end = torch.cuda.Event()
        self._spin_cycles = _LEAST_SPIN_CYCLES
        self._passes = 0
        self.discarded = 0
        self.overhead_us = 0.0
        self.overhead_us = self._empty_interval()

    def once(self, launches: Sequence[Launch]) -> NDArray[np.float64]:
        """One pass: microseconds of each launch; NaN where no clean sample could be had."""
        times = np.full(len(launches), np.nan)
        first_one = self._passes * _STRIDE % max(1, len(launches))
        self._passes += 1
        pending = [*range(first_one, len(launches)), *range(first_one)]
        for _ in range(_MAX_ATTEMPTS):
            late: list[int] = []
            for first in range(0, len(pending), _BATCH):
                batch = pending[first : first + _BATCH]
                late += self._time_batch(launches, batch, times)
            if not late:
                break
            self.discarded += len(late)
            pending = late
        return times

    def _empty_interval(self) -> float:
        nothing: list[Launch] = [lambda: None] * _BATCH
        passes = [self.once(nothing) for _ in range(_CALIBRATION_PASSES)]
        return round(float(np.nanmedian(passes[1:])), 2)

    def _time_batch(self, launches: Sequence[Launch], batch: list[int], times: NDArray[np.float64]) -> list[int]:
        late: list[int] = []
        torch.cuda._sleep(self._spin_cycles)
        self._spin_end.record()
        for slot, index in enumerate(batch):
            self._flush.zero_()
            self._starts[slot].record()
            launches[index]()
            self._ends[slot].record()
            if (self._spin_end if slot < _LEAD else self._starts[slot - _LEAD]).query():
                late.append(index)
        self._ends[len(batch) - 1].synchronize()
        missed = set(late)
        for slot, index in enumerate(batch):
            if index not in missed:
                interval = self._starts[slot].elapsed_time(self._ends[slot]) * 1000.0
                times[index] = max(interval - self.overhead_us, _RESOLUTION_US)
        # The spin covers the head start that the first launches of a batch need; more of it only costs time.
        changed = self._spin_cycles * (3 if late else 0.98)
        self._spin_cycles = int(min(max(changed, _LEAST_SPIN_CYCLES), _MOST_SPIN_CYCLES))
        return late


@dataclass(frozen=True)
class Repeats:
    """How often a launch is timed: until its spread is small enough, within these bounds."""

    at_least: int = 3
    at_most: int = 7
    spread: float = 0.01
    hopeless: float = 5.0
    """A choice this many times slower than the best is timed once and left alone."""
    seconds: float = 8.0
    """After this long on one problem, no further round is begun."""


@dataclass(frozen=True)
class Sampled:
    """All samples of one launch, in microseconds."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.samples))

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float | None:
        """Interquartile range over median."""
        if len(self.samples) < 3:
            return None
        low, middle, high = np.percentile(self.samples, (25, 50, 75))
        return float((high - low) / middle)


def sample_all(
    timer: InterleavedTimer, launches: Sequence[Launch], repeats: Repeats, elapsed: Callable[[], float]
) -> list[Sampled | None]:
    """Rounds over all launches until each has settled; None for a launch that never gave a clean sample."""
    samples: list[list[float]] = [[] for _ in launches]
    active = list(range(len(launches)))
    for done in range(1, repeats.at_most + 1):
        for index, time in zip(active, timer.once([launches[index] for index in active]), strict=True):
            if not np.isnan(time):
                samples[index].append(float(time))
        if done > 1 and elapsed() > repeats.seconds:
            break
        best = min((min(times) for times in samples if times), default=0.0)
        active = [index for index in active if not _settled(samples[index], best, repeats)]
        if not active:
            break
    return [Sampled(tuple(times)) if times else None for times in samples]


def _settled(times: list[float], best: float, repeats: Repeats) -> bool:
    if times and min(times) > repeats.hopeless * best:
        return True
    if len(times) < repeats.at_least:
        return False
    spread = Sampled(tuple(times)).spread
    return spread is not None and spread < repeats.spread
