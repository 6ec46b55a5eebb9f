"""What measurements say of each problem: its choices, each once, with the time that counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.features import ChoiceTable
from diode.types import Choice, Dataset, Hardware, MMShape

_SWEEP_TIMER: Final = "diode-sweep"
_OF_THE_MOMENT: Final = frozenset({"timeout", "unknown"})
"""Failures that say nothing about the choice."""


@dataclass(frozen=True, eq=False)
class MeasuredProblem:
    """One problem on one device; `choice_ids` are places in the truth's list of choices."""

    hardware: Hardware
    problem: MMShape
    choice_ids: NDArray[np.intp]
    time_us: NDArray[np.float64]
    """NaN for a choice that fails. A second round's time where there is one, else the first round's on its scale."""
    first_us: NDArray[np.float64]
    second_us: NDArray[np.float64]

    @property
    def failed(self) -> NDArray[np.bool_]:
        failed: NDArray[np.bool_] = np.isnan(self.time_us)
        return failed

    @property
    def oracle_us(self) -> float:
        return float(np.nanmin(self.time_us))


@dataclass(frozen=True, eq=False)
class Truth:
    """All measured GEMMs of a dataset, problems without a single time left out."""

    choices: tuple[Choice, ...]
    problems: tuple[MeasuredProblem, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> Truth:
        return cls(dataset.choices, tuple(_measured_problems(dataset)))

    @cached_property
    def table(self) -> ChoiceTable:
        return ChoiceTable.of(self.choices)

    def choices_of(self, measured: MeasuredProblem) -> list[Choice]:
        return [self.choices[number] for number in measured.choice_ids]

    def select(self, numbers: NDArray[np.intp] | NDArray[np.bool_]) -> Truth:
        picked = np.arange(len(self.problems))[numbers]
        return Truth(self.choices, tuple(self.problems[number] for number in picked))

    def __len__(self) -> int:
        return len(self.problems)


def _measured_problems(dataset: Dataset) -> list[MeasuredProblem]:
    devices: dict[Hardware, int] = {}
    device_of = np.array(
        [devices.setdefault(environment.hardware, len(devices)) for environment in dataset.environments], dtype=np.int64
    )
    groups = device_of[dataset.columns.environment_id] * len(dataset.problems) + dataset.columns.problem_id
    rows = _rows_that_count(dataset, groups)
    columns, groups = dataset.columns.take(rows), groups[rows]
    rounds = np.array([method.round for method in dataset.methods], dtype=np.int64)[columns.method_id]
    order = np.lexsort((columns.choice_id, groups))
    bounds = np.flatnonzero(np.diff(groups[order], prepend=-1))
    hardware = list(devices)
    measured = []
    for part in np.split(order, bounds[1:]) if len(order) else []:
        first = part[0]
        problem = dataset.problems[columns.problem_id[first]]
        assert isinstance(problem, MMShape)
        found = _reconcile(columns.choice_id[part], columns.time_us[part], rounds[part])
        if not np.isnan(found[1]).all():
            device = hardware[device_of[columns.environment_id[first]]]
            measured.append(MeasuredProblem(device, problem, *found))
    return measured


def _rows_that_count(dataset: Dataset, groups: NDArray[np.int64]) -> NDArray[np.intp]:
    """GEMMs only; without failures of the moment; of a problem timed by several timers, the most careful one's.

    `groups` numbers the problem and the device of each row.
    """
    columns = dataset.columns
    keep = np.array([isinstance(problem, MMShape) for problem in dataset.problems], dtype=np.bool_)[columns.problem_id]
    passing = np.array([failure.reason in _OF_THE_MOMENT for failure in dataset.failures] + [False], dtype=np.bool_)
    keep &= ~passing[columns.failure_id]
    careful = np.array([method.timer == _SWEEP_TIMER for method in dataset.methods], dtype=np.bool_)[columns.method_id]
    keep &= careful | ~np.isin(groups, groups[keep & careful & dataset.succeeded])
    return np.flatnonzero(keep)


def _reconcile(
    choice_ids: NDArray[np.int32], time_us: NDArray[np.float64], rounds: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Each choice once: (choice, time that counts, first round, second round)."""
    distinct, places = np.unique(choice_ids, return_inverse=True)
    by_round = np.full((2, len(distinct)), np.nan)
    for number, chosen in enumerate((rounds == 1, rounds > 1)):
        # Of several times in one round, such as one with and one without a budget's end, the last stands.
        by_round[number, places[chosen]] = time_us[chosen]
    first, second = by_round
    confirmed = np.zeros(len(distinct), dtype=np.bool_)
    confirmed[places[rounds > 1]] = True
    both = ~np.isnan(first) & ~np.isnan(second)
    scale = float(np.median(second[both] / first[both])) if both.any() else 1.0
    return distinct.astype(np.intp), np.where(confirmed, second, first * scale), first, second
