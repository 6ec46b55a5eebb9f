"""How much worse a model gets when one feature tells it nothing: importance by permutation, of any kind of model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.features import COLUMNS, feature_matrix, least_us
from diode.model.evaluation import Order, regrets_of
from diode.model.prediction import Prediction, TimingModel
from diode.model.truth import MeasuredProblem, Truth

_PROBLEMS: Final = 500
_CHOICES: Final = 64
_ALWAYS: Final = 16
"""So many of a problem's fastest choices are looked at, the others are drawn."""
_SHUFFLES: Final = 3
"""The mean over so many says what a column is worth."""


class Importance(msgspec.Struct, frozen=True):
    """What shuffling one column costs."""

    column: str
    regret: float
    """Rise of the geometric mean regret with one choice."""
    log_error: float
    """Rise of the root mean square error of the logarithm of the time."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Choices of all problems, one after another, in the order of the measurements."""

    features: NDArray[np.float32]
    log_ratio: NDArray[np.float64]
    bounds: NDArray[np.intp]

    @classmethod
    def of(cls, truth: Truth) -> _Rows:
        features = [np.empty((0, len(COLUMNS)), np.float32)]
        ratios = [np.empty(0)]
        for measured in truth.problems:
            table = truth.table.take(measured.choice_ids)
            features.append(feature_matrix(measured.hardware, measured.problem, table))
            ratios.append(np.log(measured.time_us / least_us(measured.hardware, measured.problem)))
        bounds = np.cumsum([0, *(len(ratio) for ratio in ratios[1:])])
        return cls(np.concatenate(features), np.concatenate(ratios), bounds.astype(np.intp))

    def shuffled(self, column: int, draw: np.random.Generator) -> NDArray[np.float32]:
        """One column redrawn; a fact of the problem stays one: each problem gets another problem's."""
        values = self.features[:, column]
        of_problem = values[self.bounds[:-1]]
        counts = np.diff(self.bounds)
        features: NDArray[np.float32] = self.features.copy()
        if np.array_equal(values, np.repeat(of_problem, counts)):
            features[:, column] = np.repeat(draw.permutation(of_problem), counts)
        else:
            features[:, column] = draw.permutation(values)
        return features

    def orders(self, prediction: Prediction) -> Iterator[Order]:
        for first, last in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            part = slice(int(first), int(last))
            yield Prediction(prediction.log_ratio[part], prediction.sigma[part], prediction.failure[part]).order()


def permutation_importance(model: TimingModel, truth: Truth, seed: int) -> tuple[Importance, ...]:
    """The columns by falling importance. Looks at a sample of the problems and of each problem's choices."""
    sample = _sampled(truth, np.random.default_rng(seed))
    rows = _Rows.of(sample)
    regret, error = _judge(model, sample, rows, rows.features)
    found = []
    for number, column in enumerate(COLUMNS):
        draw = np.random.default_rng((seed, number))
        judged = [_judge(model, sample, rows, rows.shuffled(number, draw)) for _ in range(_SHUFFLES)]
        worse, wronger = np.mean(judged, axis=0)
        found.append(Importance(column, float(worse) - regret, float(wronger) - error))
    return tuple(sorted(found, key=lambda entry: (-entry.regret, -entry.log_error)))


def _judge(model: TimingModel, truth: Truth, rows: _Rows, features: NDArray[np.float32]) -> tuple[float, float]:
    prediction = model.predict(features)
    ratios = regrets_of(truth, rows.orders(prediction), (1,)).at(1)
    square = float(np.nanmean(np.square(prediction.log_ratio - rows.log_ratio)))
    return math.expm1(float(np.log(ratios).mean())), math.sqrt(square)


def _sampled(truth: Truth, draw: np.random.Generator) -> Truth:
    picked = np.sort(draw.permutation(len(truth))[:_PROBLEMS])
    return Truth(truth.choices, tuple(_thinned(truth.problems[number], draw) for number in picked))


def _thinned(measured: MeasuredProblem, draw: np.random.Generator) -> MeasuredProblem:
    if len(measured.choice_ids) <= _CHOICES:
        return measured
    by_time = np.argsort(measured.time_us, kind="stable")
    places = np.sort(np.append(by_time[:_ALWAYS], draw.permutation(by_time[_ALWAYS:])[: _CHOICES - _ALWAYS]))
    return replace(
        measured,
        choice_ids=measured.choice_ids[places],
        time_us=measured.time_us[places],
        first_us=measured.first_us[places],
        second_us=measured.second_us[places],
    )
