"""All that a report says, gathered from the evaluation that every other figure comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.features import least_us
from diode.model.card import ModelCard
from diode.model.comparison import Comparison, compare
from diode.model.evaluation import Evaluation, Order, Regime, Regrets, evaluate, regime_of, regrets, regrets_of
from diode.model.examples import Examples
from diode.model.prediction import TimingModel
from diode.model.rankers import library_ranker, model_ranker, static_table_ranker
from diode.model.truth import MeasuredProblem, Truth
from diode.model.validation import Validation, predict_in_batches, validate
from diode.report.curve import LearningCurve
from diode.report.importance import Importance, permutation_importance
from diode.types import Dataset

STATIC_TABLE: Final = "static table"


class JudgedFile(msgspec.Struct, frozen=True):
    """A file that the model is judged by."""

    name: str
    sha256: str
    problems: int
    measurements: int
    failures: int
    circumstances: tuple[str, ...]
    """Hardware and versions, one line for each set of them."""

    @classmethod
    def of(cls, name: str, sha256: str, dataset: Dataset) -> JudgedFile:
        timed = int(dataset.succeeded.sum())
        lines = (
            ", ".join(
                part
                for part in (
                    row.hardware.name,
                    row.torch and f"torch {row.torch}",
                    row.triton and f"triton {row.triton}",
                    row.driver and f"driver {row.driver}",
                    row.taken,
                )
                if part
            )
            for row in dataset.environments
        )
        return cls(name, sha256, len(dataset.problems), timed, len(dataset) - timed, tuple(dict.fromkeys(lines)))


class WorstProblem(msgspec.Struct, frozen=True):
    """Where the model's first choice is furthest behind."""

    problem: str
    regime: Regime
    chosen: str
    chosen_us: float | None
    """None where the choice fails."""
    oracle: str
    oracle_us: float
    library_us: float | None
    """None where the library was not timed."""
    regret_at_1: float
    regret_at_3: float


@dataclass(frozen=True, eq=False)
class PredictedTimes:
    """One entry for each choice that has a time."""

    measured_us: NDArray[np.float64]
    predicted_us: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Findings:
    card: ModelCard
    files: tuple[JudgedFile, ...]
    problems: int
    median_choices: int
    """How many choices of a problem were measured."""
    twins_in_training: int | None
    """Judged problems with a twin among the problems to train on; None where those were not given."""
    comparison: Comparison
    rankings: Mapping[str, Evaluation]
    """By name of what ranked, the model first."""
    validation: Validation
    regimes: tuple[Regime, ...]
    """By problem, as the rows of `regrets`."""
    regrets: Regrets
    """The model's."""
    times: PredictedTimes
    worst: tuple[WorstProblem, ...]
    importance: tuple[Importance, ...]
    curve: LearningCurve | None = None

    @property
    def seen_in_training(self) -> tuple[str, ...]:
        """Judged files that the model's card names as its training data."""
        known = {data.sha256 for data in self.card.data}
        return tuple(file.name for file in self.files if file.sha256 in known)


@dataclass(frozen=True)
class Inspection:
    """What to look at, and how closely."""

    top: int = 10
    """So many of the worst problems, and of the worst predictions."""
    batch_size: int = 64
    seed: int = 42


def gather(
    model: TimingModel,
    card: ModelCard,
    truth: Truth,
    inspection: Inspection,
    *,
    files: Sequence[JudgedFile] = (),
    training: Truth | None = None,
    baselines: Mapping[str, Evaluation] | None = None,
    curve: LearningCurve | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Findings:
    """Judges a model by a truth. `training` is what a table of fixed choices is made of, to be beaten too.

    `baselines` are rankings of the same truth that were judged elsewhere.
    """
    say(f"judging {len(truth)} problems")
    comparison = compare(model, truth, None, batch_size=inspection.batch_size, seed=inspection.seed)
    rankings = dict(comparison.rankings)
    if training is not None:
        rankings[STATIC_TABLE] = evaluate(truth, regrets(truth, static_table_ranker(training)))
    ranker = model_ranker(model)
    orders = [ranker(truth, measured) for measured in truth.problems]
    found = regrets_of(truth, orders)
    validation = validate(model, truth, inspection.batch_size, inspection.top)
    times = _predicted_times(model, truth, inspection.batch_size)
    say("shuffling features")
    importance = permutation_importance(model, truth, inspection.seed)
    return Findings(
        card=card,
        files=tuple(files),
        problems=len(truth),
        median_choices=int(np.median([len(measured.choice_ids) for measured in truth.problems])),
        twins_in_training=None if training is None else _twins(truth, training),
        comparison=comparison,
        rankings={**rankings, **(baselines or {})},
        validation=validation,
        regimes=tuple(regime_of(measured.problem, measured.oracle_us) for measured in truth.problems),
        regrets=found,
        times=times,
        worst=tuple(_worst(truth, orders, found, inspection.top)),
        importance=importance,
        curve=curve,
    )


def _predicted_times(model: TimingModel, truth: Truth, batch_size: int) -> PredictedTimes:
    examples = Examples.of(truth)
    least = np.repeat([least_us(m.hardware, m.problem) for m in truth.problems], np.diff(examples.bounds))
    predicted = predict_in_batches(model, examples, batch_size).log_ratio
    timed = ~examples.failed
    measured_us, predicted_us = (
        np.exp(ratio[timed].astype(np.float64)) * least[timed] for ratio in (examples.log_ratio, predicted)
    )
    return PredictedTimes(measured_us, predicted_us)


def _twins(truth: Truth, training: Truth) -> int:
    known = {measured.problem.twin_group for measured in training.problems}
    return sum(measured.problem.twin_group in known for measured in truth.problems)


def _worst(truth: Truth, orders: Sequence[Order], found: Regrets, top: int) -> Iterator[WorstProblem]:
    at_1, at_3 = found.at(1) - 1.0, found.at(3) - 1.0
    for number in np.argsort(-at_1, kind="stable")[:top]:
        measured = truth.problems[number]
        first = int(orders[number][0])
        yield WorstProblem(
            problem=str(measured.problem),
            regime=regime_of(measured.problem, measured.oracle_us),
            chosen=_choice(truth, measured, first),
            chosen_us=_time(measured.time_us[first : first + 1]),
            oracle=_choice(truth, measured, int(np.nanargmin(measured.time_us))),
            oracle_us=measured.oracle_us,
            library_us=_time(measured.time_us[library_ranker(truth, measured)]),
            regret_at_1=float(at_1[number]),
            regret_at_3=float(at_3[number]),
        )


def _choice(truth: Truth, measured: MeasuredProblem, place: int) -> str:
    return str(truth.choices[measured.choice_ids[place]])


def _time(times: NDArray[np.float64]) -> float | None:
    legal = times[~np.isnan(times)]
    return float(legal.min()) if len(legal) else None
