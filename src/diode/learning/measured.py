"""What a store says of the device and the software at hand: for each problem the time of each choice.

Inductor's benchmarker waits for the CPU wherever launching takes longer than the kernel. On an H200, kernels of 2 to
5 us read up to 23 us by it, in the order of execution and not of merit, and one of the library 37 us; from 20 us on its
readings agree with a timer that hides the launch (docs/timing.md). A reading is an upper bound, then, and below 40 us
it does not tell by itself what it is of. So times that carry launch latency count
- where the fastest of the problem reads 40 us or more: less than 20 of them can be latency, so the kernel takes 20;
- where it reads 20 us or more, and the model, which learned from times without latency, expects none of the measured
  choices below 20 us either.
All other problems are left to the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.features import ChoiceTable
from diode.learning.store import Autotuning
from diode.types import Choice, Environment, MMShape

LAUNCH_HIDDEN_FROM_US: Final = 20.0
"""A kernel that takes so long keeps the GPU busy for longer than the CPU takes to launch the next one."""
LONGEST_LATENCY_US: Final = 20.0


@dataclass(frozen=True, eq=False)
class MeasuredHere:
    """One problem, on the device and software at hand; each choice that gave a time, once."""

    problem: MMShape
    choices: tuple[Choice, ...]
    time_us: NDArray[np.float64]
    carries_latency: bool
    """Whether any of the times was taken by a timer that does not hide the launch."""

    @cached_property
    def table(self) -> ChoiceTable:
        return ChoiceTable.of(self.choices)

    def is_believed(self, predicted_us: NDArray[np.float64]) -> bool:
        """Whether the times may be compared; `predicted_us` has one entry per choice."""
        if not self.may_be_believed:
            return False
        if not self.carries_latency or self.time_us.min() >= LAUNCH_HIDDEN_FROM_US + LONGEST_LATENCY_US:
            return True
        return bool(predicted_us.min() >= LAUNCH_HIDDEN_FROM_US)

    @property
    def may_be_believed(self) -> bool:
        """False where no model could make the times comparable."""
        long_enough = not self.carries_latency or self.time_us.min() >= LAUNCH_HIDDEN_FROM_US
        return len(self.choices) >= 2 and bool(long_enough)


def measured_here(autotunings: Iterable[Autotuning], here: Environment) -> dict[MMShape, MeasuredHere]:
    """Of kernels compiled for one size only: one that serves many sizes is another kernel."""
    times: dict[MMShape, dict[Choice, list[float]]] = {}
    takes_minimum: dict[tuple[MMShape, Choice], bool] = {}
    latency: set[MMShape] = set()
    for tuned in autotunings:
        if not same_place(tuned.environment, here):
            continue
        for outcome in tuned.outcomes:
            if outcome.timing is None or outcome.method.kernel == "family":
                continue
            times.setdefault(tuned.problem, {}).setdefault(outcome.choice, []).append(outcome.timing.time_us)
            takes_minimum[tuned.problem, outcome.choice] = outcome.method.statistic == "min"
            if outcome.method.launch_hidden is False:
                latency.add(tuned.problem)
    found = {}
    for problem in sorted(times, key=msgspec.msgpack.encode):  # an order that does not depend on the store's files
        choices = tuple(sorted(times[problem], key=msgspec.msgpack.encode))
        values = [_of_several(times[problem][c], minimum=takes_minimum[problem, c]) for c in choices]
        found[problem] = MeasuredHere(problem, choices, np.array(values), problem in latency)
    return found


def _of_several(times: list[float], *, minimum: bool) -> float:
    return min(times) if minimum else float(np.median(times))


def same_place(there: Environment, here: Environment) -> bool:
    """The same kind of device and the same software, the sources of the templates that both know included."""
    device, other = here.hardware, there.hardware
    if (device.name, device.capability, device.sm_count) != (other.name, other.capability, other.sm_count):
        return False
    if (there.torch, there.triton) != (here.torch, here.triton):
        return False
    sources: Mapping[str, str] = dict(here.template_hashes)
    return all(sources.get(uid, source) == source for uid, source in there.template_hashes)
