"""Measures the learning curve: quick models trained on growing shares of the data, judged by what was left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from diode.errors import UsageError
from diode.model.evaluation import evaluate, regrets
from diode.model.examples import split_by_twins
from diode.model.inference import ArrayNetwork
from diode.model.rankers import model_ranker
from diode.model.training import TrainingSettings, train_network
from diode.model.truth import MeasuredProblem, Truth
from diode.model.wrapper import NetworkModel
from diode.report.curve import LearningCurve, LearningPoint
from diode.types import Dataset, Hardware, MMShape

SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
QUICK: Final = TrainingSettings(hidden=64, members=1, epochs=8, patience=8)
_FOLDS: Final = 8
_MOST_EPOCHS: Final = 6
"""Few problems make short epochs: a small share gets more of them, up to so many times as many."""

Costs = dict[tuple[Hardware, MMShape], float]


@dataclass(frozen=True)
class CurveSettings:
    quick: TrainingSettings = QUICK
    shares: tuple[float, ...] = SHARES
    gpu_minutes: float | None = None
    """What collecting all of the data took; by default the time in the kernels that were timed."""
    seed: int = 42


def learning_curve(
    dataset: Dataset, settings: CurveSettings, report: Callable[[LearningPoint], None] = lambda point: None
) -> LearningCurve:
    """Problems are added in one shuffled order, so that each share holds the smaller ones; twins stay together."""
    truth = Truth.of(dataset)
    judges = split_by_twins(truth, _FOLDS, settings.seed) == 0
    held_out, training = truth.select(judges), truth.select(~judges)
    if not len(held_out) or len(training) < _FOLDS:
        raise UsageError(f"{len(truth)} measured GEMM problems are too few for a learning curve")
    costs = _costs(dataset)
    scale = 1.0 if settings.gpu_minutes is None else settings.gpu_minutes / max(sum(costs.values()), 1e-9)
    order = np.random.default_rng(settings.seed).permutation(len(training))
    points: list[LearningPoint] = []
    for share in settings.shares:
        picked = training.select(np.sort(order[: max(_FOLDS, round(share * len(training)))]))
        if points and points[-1].problems == len(picked):
            continue
        minutes = scale * sum(costs.get((m.hardware, m.problem), 0.0) for m in picked.problems)
        points.append(_point(picked, held_out, settings.quick, share, minutes or None))
        report(points[-1])
    return LearningCurve(
        points=tuple(points),
        held_out=len(held_out),
        minutes_are="timed repeats" if settings.gpu_minutes is None else "as given",
    )


def _point(
    training: Truth, held_out: Truth, quick: TrainingSettings, share: float, minutes: float | None
) -> LearningPoint:
    longer = min(_MOST_EPOCHS, math.ceil(1.0 / share))
    settings = replace(quick, epochs=quick.epochs * longer, patience=quick.patience * longer)
    trained = train_network(training, settings)
    parameters = {name: value.numpy() for name, value in trained.network.state_dict().items()}
    model = NetworkModel(ArrayNetwork(trained.network.spec, parameters), None, 1.0)
    ranking = evaluate(held_out, regrets(held_out, model_ranker(model), (1, 3)))
    return LearningPoint(
        problems=len(training),
        measurements=sum(_timed(measured) for measured in training.problems),
        gpu_minutes=minutes,
        efficiency_at_1=ranking.at(1).efficiency,
        efficiency_at_3=ranking.at(3).efficiency,
    )


def _timed(measured: MeasuredProblem) -> int:
    return int((~measured.failed).sum())


def _costs(dataset: Dataset) -> Costs:
    """Minutes that the GPU spent in each problem's timed kernels."""
    columns = dataset.columns
    spent = columns.time_us * np.maximum(columns.repeats, 1) / 60e6
    groups = columns.environment_id.astype(np.int64) * len(dataset.problems) + columns.problem_id
    distinct, places = np.unique(groups, return_inverse=True)
    costs: Costs = {}
    for group, minutes in zip(distinct, np.bincount(places, np.nan_to_num(spent)), strict=True):
        environment, number = divmod(int(group), len(dataset.problems))
        problem = dataset.problems[number]
        if isinstance(problem, MMShape):
            key = (dataset.environments[environment].hardware, problem)
            costs[key] = costs.get(key, 0.0) + float(minutes)
    return costs
