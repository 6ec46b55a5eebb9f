"""A model's choices beside the fastest of all that were measured, and beside a list of choices made otherwise."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.errors import UsageError
from diode.model.evaluation import Evaluation, Ranker, evaluate, noise_floor, regrets, regrets_of
from diode.model.prediction import TimingModel
from diode.model.rankers import library_ranker, model_ranker, random_ranker
from diode.model.truth import MeasuredProblem, Truth
from diode.model.validation import orders_in_batches
from diode.types import Solution


class AgainstSolution(msgspec.Struct, frozen=True):
    """On the problems of which the solution allows a choice that was measured."""

    name: str
    problems: int
    not_covered: int
    """Problems for which the solution has no measured choice."""
    solution_efficiency: float
    """Of the fastest choice that the solution allows, in percent of the oracle."""
    solution_choices: float
    """How many choices the solution allows, on average."""
    model_efficiency: dict[str, float]
    """By k, on the same problems."""


class Comparison(msgspec.Struct, frozen=True):
    problems: int
    noise_floor_p50: float | None
    """None without a second round of timing."""
    noise_floor_p95: float | None
    rankings: dict[str, Evaluation]
    """By name of what ranked: the model, then what it is compared with."""
    solution: AgainstSolution | None = None


def compare(model: TimingModel, truth: Truth, solution: Solution | None, *, batch_size: int, seed: int) -> Comparison:
    """`model` is ranked as in a compile, with its screen; `model in full` shows what the screen costs."""
    rankers: dict[str, Ranker] = {
        "model": model_ranker(model),
        "library": library_ranker,
        "random": random_ranker(seed),
    }
    found = {name: regrets(truth, ranker) for name, ranker in rankers.items()}
    found["model in full"] = regrets_of(truth, orders_in_batches(model, truth, batch_size))
    floor = noise_floor(truth)
    return Comparison(
        problems=len(truth),
        noise_floor_p50=float(np.median(floor)) if len(floor) else None,
        noise_floor_p95=float(np.percentile(floor, 95)) if len(floor) else None,
        rankings={name: evaluate(truth, ratios) for name, ratios in found.items()},
        solution=None if solution is None else _against(solution, truth, rankers["model"]),
    )


def _against(solution: Solution, truth: Truth, ranker: Ranker) -> AgainstSolution:
    allowed = [_allowed(solution, truth, measured) for measured in truth.problems]
    covered = np.array([len(times) > 0 for times in allowed])
    if not covered.any():
        raise UsageError(
            f"solution {solution.name!r} allows no measured choice for any problem of the data set: "
            "they are not of the same problems, or not of the same choices"
        )
    there = truth.select(covered)
    ratios = [
        times.min() / measured.oracle_us for times, measured in zip(allowed, truth.problems, strict=True) if len(times)
    ]
    ranking = evaluate(there, regrets(there, ranker))
    return AgainstSolution(
        name=solution.name,
        problems=len(there),
        not_covered=len(truth) - len(there),
        solution_efficiency=100.0 / math.exp(float(np.mean(np.log(ratios)))),
        solution_choices=float(np.mean([len(times) for times in allowed if len(times)])),
        model_efficiency={str(entry.k): entry.efficiency for entry in ranking.overall},
    )


def _allowed(solution: Solution, truth: Truth, measured: MeasuredProblem) -> NDArray[np.float64]:
    """Times of the choices that the solution allows for a problem, failures left out."""
    places = solution.choices_for(measured.problem, truth.choices_of(measured))
    times = measured.time_us[places]
    return times[~np.isnan(times)]
