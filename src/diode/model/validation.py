"""How far a model's predicted times are from measured ones, and whether its doubt is honest."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.features import least_us
from diode.model.evaluation import Evaluation, Order, evaluate, regrets
from diode.model.examples import Examples
from diode.model.prediction import LIKELY_ILLEGAL, Prediction, TimingModel
from diode.model.rankers import model_ranker
from diode.model.truth import MeasuredProblem, Truth

_NEAR = 0.3
"""Log regret up to which a choice is among those that decisions are made between."""


class WorstPrediction(msgspec.Struct, frozen=True):
    problem: str
    choice: str
    predicted_us: float
    actual_us: float
    ratio: float
    """Predicted over actual."""


class Errors(msgspec.Struct, frozen=True):
    """Of the logarithm of predicted times."""

    measurements: int
    mse: float
    rmse: float
    rmse_factor: float
    """What a time is typically off by: exp(rmse)."""
    median_factor: float
    within_one_sigma: float
    """0.68 for a doubt that is honest."""
    within_two_sigma: float


class FailureForecast(msgspec.Struct, frozen=True):
    failures: int
    foreseen: float
    """Share of the failures that the model takes for likely."""
    false_alarms: float
    """Share of the choices that work but are taken for likely failures."""


class Validation(msgspec.Struct, frozen=True):
    """One model on measurements that it has, one hopes, never seen."""

    problems: int
    errors: Errors
    errors_near: Errors
    """Of choices up to a third slower than their problem's fastest."""
    failures: FailureForecast
    ranking: Evaluation
    worst: tuple[WorstPrediction, ...]


def validate(model: TimingModel, truth: Truth, batch_size: int, worst: int) -> Validation:
    examples = Examples.of(truth)
    prediction = predict_in_batches(model, examples, batch_size)
    timed = ~examples.failed
    error = prediction.log_ratio[timed] - examples.log_ratio[timed]
    sigma = prediction.sigma[timed]
    near = examples.log_regret[timed] < _NEAR
    alarms = prediction.failure > LIKELY_ILLEGAL
    return Validation(
        problems=len(truth),
        errors=_errors(error, sigma),
        errors_near=_errors(error[near], sigma[near]),
        failures=FailureForecast(
            failures=int(examples.failed.sum()),
            foreseen=_share(alarms[examples.failed]),
            false_alarms=_share(alarms[timed]),
        ),
        ranking=evaluate(truth, regrets(truth, model_ranker(model))),
        worst=tuple(_worst(truth, examples, prediction, worst)),
    )


def predict_in_batches(model: TimingModel, examples: Examples, batch_size: int) -> Prediction:
    starts = examples.bounds[:-1:batch_size]
    parts = [
        model.predict(examples.features[first:last])
        for first, last in zip(starts, [*starts[1:], examples.bounds[-1]], strict=True)
    ]
    return Prediction(
        np.concatenate([part.log_ratio for part in parts]),
        np.concatenate([part.sigma for part in parts]),
        np.concatenate([part.failure for part in parts]),
    )


def orders_in_batches(model: TimingModel, truth: Truth, batch_size: int) -> Iterator[Order]:
    """Looks at every choice in full, many problems at a time; in a compile a screen goes before."""
    examples = Examples.of(truth)
    predicted = predict_in_batches(model, examples, batch_size)
    for number, measured in enumerate(truth.problems):
        # Back into the order of the measurements: ties must not fall to the faster choice.
        rows = examples.bounds[number] + np.argsort(np.argsort(measured.time_us, kind="stable"))
        yield Prediction(predicted.log_ratio[rows], predicted.sigma[rows], predicted.failure[rows]).order()


def _errors(error: NDArray[np.float32], sigma: NDArray[np.float32]) -> Errors:
    if not len(error):
        return Errors(0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    mse = float(np.mean(np.square(error, dtype=np.float64)))
    sizes = np.abs(error)
    return Errors(
        measurements=len(error),
        mse=mse,
        rmse=math.sqrt(mse),
        rmse_factor=math.exp(math.sqrt(mse)),
        median_factor=math.exp(float(np.median(sizes))),
        within_one_sigma=_share(sizes <= sigma),
        within_two_sigma=_share(sizes <= 2 * sigma),
    )


def _worst(truth: Truth, examples: Examples, prediction: Prediction, count: int) -> Iterator[WorstPrediction]:
    sizes = np.nan_to_num(np.abs(prediction.log_ratio - examples.log_ratio), nan=-1.0)
    for row in np.argsort(-sizes, kind="stable")[:count]:
        if sizes[row] < 0:
            return
        number = int(np.searchsorted(examples.bounds, row, side="right")) - 1
        measured = truth.problems[number]
        choice_id = _choices_by_time(measured)[row - examples.bounds[number]]
        least = least_us(measured.hardware, measured.problem)
        predicted, actual = (
            least * math.exp(float(ratio[row])) for ratio in (prediction.log_ratio, examples.log_ratio)
        )
        yield WorstPrediction(
            str(measured.problem), str(truth.choices[choice_id]), predicted, actual, predicted / actual
        )


def _choices_by_time(measured: MeasuredProblem) -> NDArray[np.intp]:
    """In the order that `Examples` has."""
    ordered: NDArray[np.intp] = measured.choice_ids[np.argsort(measured.time_us, kind="stable")]
    return ordered


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 0.0
