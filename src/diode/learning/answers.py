"""Answers from the store: which of a GEMM's candidates was the fastest here, where that is known well enough."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from diode.features import ChoiceTable
from diode.features.table import LIBRARY
from diode.learning.measured import MeasuredHere
from diode.model.prediction import LIKELY_ILLEGAL, Prediction
from diode.types import Choice


@dataclass(frozen=True)
class Answer:
    """The fastest of what was measured here for one problem."""

    places: tuple[int, ...]
    """Where in the candidates' table it may be; several are alike but for what the table does not tell."""
    choice: Choice
    time_us: float
    compared: int
    """So many choices were measured."""


def answer(
    measured: MeasuredHere,
    table: ChoiceTable,
    prediction: Prediction,
    may_be: NDArray[np.bool_],
    least_us: float,
    library_saving: float,
) -> Answer | None:
    """None where the times may not be compared, or where the model has something better that nobody measured.

    `prediction` is of the candidates in `table`, library kernels charged with `library_saving`, a share of `least_us`;
    `may_be` are those that may be chosen.
    """
    found = [_places(table, measured.table, number) for number in range(len(measured.choices))]
    there = [number for number, places in enumerate(found) if len(places)]
    if not there:
        return None
    first = np.array([found[number][0] for number in there])
    times = measured.time_us[there]
    if not measured.is_believed(prediction.time_us(least_us)[first]):
        return None
    charged = times + np.where(table.kind[first] == LIBRARY, library_saving * least_us, 0.0)
    best = int(np.argmin(charged))
    log_charged = np.log(charged / least_us)
    # What was measured says how far off the model is for this problem as a whole; the rest is judged on that scale.
    offset = float(np.median(log_charged - prediction.log_ratio[first]))
    unmeasured = may_be & (prediction.failure <= LIKELY_ILLEGAL)
    unmeasured[np.concatenate([found[number] for number in there])] = False
    if (prediction.log_ratio + prediction.sigma + offset < log_charged[best])[unmeasured].any():
        return None
    fastest = there[best]
    places = tuple(int(place) for place in found[fastest])
    return Answer(places, measured.choices[fastest], float(times[best]), len(measured.choices))


def _places(table: ChoiceTable, wanted: ChoiceTable, number: int) -> NDArray[np.intp]:
    same = np.ones(len(table), dtype=np.bool_)
    for field in fields(ChoiceTable):
        same &= getattr(table, field.name) == getattr(wanted, field.name)[number]
    return np.flatnonzero(same)
