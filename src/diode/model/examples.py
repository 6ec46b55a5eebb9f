"""Measured problems as what a model is trained on: a matrix of features, a target per row, rows grouped by problem."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diode.features import COLUMNS, feature_matrix, least_us
from diode.model.truth import Truth


@dataclass(frozen=True, eq=False)
class Examples:
    """Problem `i` has the rows from `bounds[i]` to `bounds[i + 1]`, its fastest choice first, failures last."""

    features: NDArray[np.float32]
    log_ratio: NDArray[np.float32]
    """Natural logarithm of the time as a multiple of the least time that the problem can take; NaN for a failure."""
    bounds: NDArray[np.intp]

    @classmethod
    def of(cls, truth: Truth) -> Examples:
        features = [np.empty((0, len(COLUMNS)), np.float32)]
        ratios = [np.empty(0, np.float32)]
        for measured in truth.problems:
            order = np.argsort(measured.time_us, kind="stable")  # NaN last
            table = truth.table.take(measured.choice_ids[order])
            features.append(feature_matrix(measured.hardware, measured.problem, table))
            least = least_us(measured.hardware, measured.problem)
            ratios.append(np.log(measured.time_us[order] / least).astype(np.float32))
        bounds = np.cumsum([0, *(len(ratio) for ratio in ratios[1:])])
        return cls(np.concatenate(features), np.concatenate(ratios), bounds.astype(np.intp))

    def __len__(self) -> int:
        """The number of problems."""
        return len(self.bounds) - 1

    @property
    def failed(self) -> NDArray[np.bool_]:
        failed: NDArray[np.bool_] = np.isnan(self.log_ratio)
        return failed

    @property
    def log_regret(self) -> NDArray[np.float32]:
        """How much longer each choice takes than its problem's fastest, as a logarithm."""
        counts = np.diff(self.bounds)
        regret: NDArray[np.float32] = self.log_ratio - np.repeat(self.log_ratio[self.bounds[:-1]], counts)
        return regret

    def rows(self, problem: int) -> slice:
        return slice(int(self.bounds[problem]), int(self.bounds[problem + 1]))


def split_by_twins(truth: Truth, folds: int, seed: int) -> NDArray[np.intp]:
    """A fold for each problem; twins (the same sizes in another op, batch, layout or precision) share one."""
    groups = [measured.problem.twin_group for measured in truth.problems]
    distinct = sorted(set(groups))
    random.Random(seed).shuffle(distinct)
    fold_of = {group: number % folds for number, group in enumerate(distinct)}
    return np.array([fold_of[group] for group in groups], dtype=np.intp)


def lists_of_choices(
    examples: Examples, problems: Sequence[int], length: int, always: int, draw: np.random.Generator
) -> NDArray[np.intp]:
    """Rows as a matrix with one problem a line, -1 where a line ends early.

    Of a problem with more than `length` choices the fastest few always stand in its line, the others by lot.
    """
    lines = np.full((len(problems), length), -1, dtype=np.intp)
    for line, problem in zip(lines, problems, strict=True):
        first, last = examples.bounds[problem], examples.bounds[problem + 1]
        if last - first <= length:
            line[: last - first] = np.arange(first, last)
        else:
            line[:always] = np.arange(first, first + always)
            line[always:] = first + always + draw.choice(last - first - always, length - always, replace=False)
    return lines
