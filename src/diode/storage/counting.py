"""What is in a dataset: counts per hardware and op, and the fastest choice of each problem."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.storage.filtering import dtype_of, kind_of, layout_of, op_of
from diode.types.dataset import NO_INT, Dataset
from diode.types.problem import MMShape, Problem


class Counts(msgspec.Struct, frozen=True):
    """Of some measurements: how many distinct problems and choices they are of, what came out, how fast."""

    measurements: int
    problems: int
    choices: int
    successes: int
    failures: int
    failures_by_reason: dict[str, int]
    min_time_us: float | None
    max_time_us: float | None


class Group(msgspec.Struct, frozen=True):
    """The measurements of one op on one hardware."""

    hardware: str
    op: str
    counts: Counts


class Statistics(msgspec.Struct, frozen=True):
    """Of a whole dataset. The dictionaries count measurements, the most frequent first."""

    totals: Counts
    groups: tuple[Group, ...]
    by_dtype: dict[str, int]
    by_layout: dict[str, int]
    by_kind: dict[str, int]
    by_timer: dict[str, int]


def statistics(dataset: Dataset) -> Statistics:
    columns = dataset.columns
    hardware_names, hardware = _coded((row.hardware.name for row in dataset.environments), columns.environment_id)
    op_names, ops = _coded(map(op_of, dataset.problems), columns.problem_id)
    groups = hardware.astype(np.int64) * len(op_names) + ops
    return Statistics(
        totals=_counts(dataset, np.arange(len(dataset))),
        groups=tuple(
            Group(
                hardware=hardware_names[group // len(op_names)],
                op=op_names[group % len(op_names)],
                counts=_counts(dataset, np.flatnonzero(groups == group)),
            )
            for group in np.unique(groups).tolist()
        ),
        by_dtype=_tally(map(_precision, dataset.problems), columns.problem_id),
        by_layout=_tally((layout_of(problem) or "other" for problem in dataset.problems), columns.problem_id),
        by_kind=_tally(map(kind_of, dataset.choices), columns.choice_id),
        by_timer=_tally((method.timer for method in dataset.methods), columns.method_id),
    )


def fastest(dataset: Dataset) -> Dataset:
    """For each problem, hardware and timer the measurement with the least time, in the order of the table of problems.

    Where a problem has times of a later round, only the latest round counts: it timed the near-winners anew, and the
    minimum of the many times before it flatters itself. Of equal times the first stays.
    """
    rows = np.flatnonzero(dataset.succeeded)
    columns = dataset.columns.take(rows)
    _, hardware = _coded((row.hardware.name for row in dataset.environments), columns.environment_id)
    _, timers = _coded((method.timer for method in dataset.methods), columns.method_id)
    rounds = np.array([method.round for method in dataset.methods], dtype=np.int64)[columns.method_id]
    order = np.lexsort((columns.time_us, -rounds, timers, hardware, columns.problem_id))
    if not len(order):
        return dataset.select(rows)
    changes = np.zeros(len(order) - 1, dtype=np.bool_)
    for key in (columns.problem_id, hardware, timers):
        changes |= np.diff(key[order]) != 0
    return dataset.select(rows[order[np.concatenate([[True], changes])]])


def _counts(dataset: Dataset, rows: NDArray[np.intp]) -> Counts:
    columns = dataset.columns.take(rows)
    times = columns.time_us[columns.failure_id == NO_INT]
    failed = columns.failure_id[columns.failure_id != NO_INT]
    return Counts(
        measurements=len(rows),
        problems=len(np.unique(columns.problem_id)),
        choices=len(np.unique(columns.choice_id)),
        successes=len(times),
        failures=len(failed),
        failures_by_reason=_tally((failure.reason for failure in dataset.failures), failed),
        min_time_us=float(times.min()) if len(times) else None,
        max_time_us=float(times.max()) if len(times) else None,
    )


def _coded(names: Iterable[str], ids: NDArray[np.int32]) -> tuple[list[str], NDArray[np.intp]]:
    """Distinct names, sorted, and for each row the number of its name."""
    names = list(names)
    distinct = sorted(set(names))
    codes = {name: code for code, name in enumerate(distinct)}
    return distinct, np.array([codes[name] for name in names], dtype=np.intp)[ids]


def _tally(names: Iterable[str], ids: NDArray[np.int32]) -> dict[str, int]:
    distinct, codes = _coded(names, ids)
    tallies = np.bincount(codes, minlength=len(distinct)).tolist()
    counted = [(name, count) for name, count in zip(distinct, tallies, strict=True) if count]
    return dict(sorted(counted, key=lambda entry: (-entry[1], entry[0])))


def _precision(problem: Problem) -> str:
    return "float32 (tf32)" if isinstance(problem, MMShape) and problem.allow_tf32 else dtype_of(problem)
