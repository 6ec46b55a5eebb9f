"""What of a store a model may be trained on: each choice of each problem once, where the times can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from diode.features import feature_matrix, least_us
from diode.learning.measured import MeasuredHere, measured_here, same_place
from diode.learning.store import Autotuning, Outcome, dataset_of
from diode.model.prediction import TimingModel
from diode.types import Choice, Dataset, Environment, MMShape

FEWEST_PROBLEMS: Final = 8
"""To learn from and to judge by."""


@dataclass(frozen=True, eq=False)
class Lessons:
    dataset: Dataset
    problems: int
    left_out: int
    """Problems with times that may be launch latency, or with nothing to compare."""


def lessons_of(autotunings: Iterable[Autotuning], model: TimingModel) -> Lessons:
    by_place: list[tuple[Environment, list[Autotuning]]] = []
    for tuned in autotunings:
        known = next((list_ for place, list_ in by_place if same_place(place, tuned.environment)), None)
        if known is None:
            known = []
            by_place.append((tuned.environment, known))
        known.append(tuned)
    kept: list[Autotuning] = []
    left_out = 0
    for place, there in by_place:
        outcomes = _outcomes(there)
        for problem, measured in measured_here(there, place).items():
            if _is_believed(measured, place, model):
                kept.append(Autotuning(place, problem, _each_once(measured, outcomes[problem])))
            else:
                left_out += 1
    return Lessons(dataset_of(kept), len(kept), left_out)


def _is_believed(measured: MeasuredHere, place: Environment, model: TimingModel) -> bool:
    features = feature_matrix(place.hardware, measured.problem, measured.table)
    return measured.is_believed(model.predict(features).time_us(least_us(place.hardware, measured.problem)))


def _outcomes(autotunings: Iterable[Autotuning]) -> dict[MMShape, list[Outcome]]:
    outcomes: dict[MMShape, list[Outcome]] = {}
    for tuned in autotunings:
        outcomes.setdefault(tuned.problem, []).extend(tuned.outcomes)
    return outcomes


def _each_once(measured: MeasuredHere, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Of several times of a choice the one that is nearest to what counts; a failure of what never gave a time."""
    wanted = dict(zip(measured.choices, measured.time_us.tolist(), strict=True))
    best: dict[Choice, Outcome] = {}
    for outcome in outcomes:
        known = best.get(outcome.choice)
        if outcome.timing is None or outcome.choice not in wanted:
            if outcome.failure is not None and outcome.choice not in wanted:
                best.setdefault(outcome.choice, outcome)
        elif known is None or known.timing is None:
            best[outcome.choice] = outcome
        else:
            value = wanted[outcome.choice]
            if abs(outcome.timing.time_us - value) < abs(known.timing.time_us - value):
                best[outcome.choice] = outcome
    return tuple(best.values())
