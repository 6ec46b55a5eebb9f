"""Several datasets into one in which no measurement stands twice."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.types.dataset import Dataset
from diode.types.measurement import Environment, Failure

_WRONG, _TIMED, _EXPLAINED, _UNEXPLAINED = range(4)


def merge(datasets: Iterable[Dataset]) -> Dataset:
    """All measurements, each once.

    Two measurements are the same when problem, choice and timing method are equal and they were taken on the same
    hardware with the same driver, torch, triton and templates; python, diode, commit, command and day do not matter.
    Of the same measurement taken twice the better one stays, whole:

    1. A kernel once found to be wrong is wrong: that failure stays.
    2. Else a time beats a failure, which may have been of that moment (a timeout, a crash of another kernel).
    3. Of two times the one with more repeats, then with the lower spread; not known is worse than any known value.
    4. Of two failures one that says why, before `unknown`.
    5. What is still equal: the first.

    Rows stay in the order in which they were given.
    """
    everything = Dataset.joined(datasets)
    return everything.select(_best_rows(everything))


def _best_rows(dataset: Dataset) -> NDArray[np.intp]:
    columns = dataset.columns
    places = _numbered_places(dataset.environments)
    same = (columns.problem_id, columns.choice_id, places[columns.environment_id], columns.method_id)
    spread = np.where(np.isnan(columns.spread), np.inf, columns.spread)
    # lexsort takes its most important key last, and keeps the given order among equals.
    order = np.lexsort((spread, -columns.repeats, _ranks(dataset), *same))
    if not len(order):
        return order
    changes = np.zeros(len(order) - 1, dtype=np.bool_)
    for key in same:
        changes |= np.diff(key[order]) != 0
    return np.sort(order[np.concatenate([[True], changes])])


def _ranks(dataset: Dataset) -> NDArray[np.int8]:
    """How good each row is before its timing is looked at: lower is better."""
    ranks = np.full(len(dataset), _TIMED, dtype=np.int8)
    failed = ~dataset.succeeded
    failure_ranks = np.array([_failure_rank(failure) for failure in dataset.failures], dtype=np.int8)
    ranks[failed] = failure_ranks[dataset.columns.failure_id[failed]]
    return ranks


def _failure_rank(failure: Failure) -> int:
    if failure.reason == "wrong_result":
        return _WRONG
    return _UNEXPLAINED if failure.reason == "unknown" else _EXPLAINED


def _numbered_places(environments: tuple[Environment, ...]) -> NDArray[np.int32]:
    """For each environment a number, equal for those in which the same kernel takes the same time."""
    numbers: dict[Environment, int] = {}
    places = [
        msgspec.structs.replace(environment, python="", diode="", commit="", command="", taken="")
        for environment in environments
    ]
    return np.array([numbers.setdefault(place, len(numbers)) for place in places], dtype=np.int32)
