"""What a model's predictions are off by on this very device, fitted in closed form; the model stays as it is.

A shift of the logarithm of the time for each kind of kernel, and for each kind in each regime, by ridge regression:
with few problems the shifts are near zero, with many they are what was measured. One problem counts once for each kind
of kernel, whatever number of its choices were measured. Only differences within a problem are looked at: Inductor's
minimum and the sweep's median differ by a factor that all choices of a problem share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.features import ChoiceTable, feature_matrix, least_us
from diode.features.table import DECOMPOSED, LIBRARY, PERSISTENT, TILED
from diode.learning.measured import MeasuredHere
from diode.model.evaluation import REGIMES, regime_of
from diode.model.prediction import Prediction, TimingModel
from diode.types import Hardware, MMShape

_KINDS: Final = (TILED, PERSISTENT, LIBRARY, DECOMPOSED)
_CORRECTED: Final = tuple(regime for regime in REGIMES if regime != "tiny")
"""Tiny problems are not corrected: what is measured of them here is of the launch as much as of the kernel."""
_LOOKED_AT: Final = 8
"""Of each kind of kernel, so many of the measured choices that the model expects to be fastest: these matter."""
_SHRINKAGE: Final = 8.0
"""So many problems weigh as much as the belief that nothing is to be corrected."""
_DIGITS: Final = 5
"""Of the shifts: what differs behind them from one machine's arithmetic to another's must not change a decision."""
_MOST_PROBLEMS: Final = 256
"""Half a millisecond each, once in a process; more would hardly move the shifts."""


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to predicted logarithms of time ratios."""

    shifts: NDArray[np.float32]
    """`[regime, kind]`, regimes as in `_CORRECTED`, kinds by their code."""
    problems: int
    """So many were learned from."""

    def of(self, hardware: Hardware, problem: MMShape, table: ChoiceTable, prediction: Prediction) -> Prediction:
        regime = _regime(hardware, problem, prediction)
        if regime not in _CORRECTED:
            return prediction
        shifts = self.shifts[_CORRECTED.index(regime)][table.kind]
        return Prediction(prediction.log_ratio + shifts, prediction.sigma, prediction.failure)


def fit_correction(model: TimingModel, hardware: Hardware, measured: Iterable[MeasuredHere]) -> Correction | None:
    """None where nothing was measured that two kinds of kernel can be compared by."""
    width = len(_KINDS) * (1 + len(_CORRECTED))
    normal, target, problems = _SHRINKAGE * np.eye(width), np.zeros(width), 0
    telling = [one for one in measured if one.may_be_believed and len(set(one.table.kind.tolist())) >= 2]
    for one in telling[:_MOST_PROBLEMS]:
        found = _off_by_kind(model, hardware, one)
        if found is None:
            continue
        kinds, off, regime = found
        rows = np.zeros((len(kinds), width))
        rows[np.arange(len(kinds)), kinds] = 1.0
        rows[np.arange(len(kinds)), len(_KINDS) * (1 + _CORRECTED.index(regime)) + kinds] = 1.0
        rows -= rows.mean(axis=0)
        normal += rows.T @ rows
        target += rows.T @ (off - off.mean())
        problems += 1
    if not problems:
        return None
    fitted = np.linalg.solve(normal, target).reshape(1 + len(_CORRECTED), len(_KINDS))
    shifts = np.zeros((len(_CORRECTED), len(_KINDS) + 1), dtype=np.float32)  # the last is of kinds that are not known
    shifts[:, : len(_KINDS)] = np.round(fitted[0] + fitted[1:], _DIGITS)
    return Correction(shifts, problems)


def _off_by_kind(
    model: TimingModel, hardware: Hardware, measured: MeasuredHere
) -> tuple[NDArray[np.intp], NDArray[np.float64], str] | None:
    """The kinds that were measured, and for each the mean logarithm of measured over predicted."""
    problem, table = measured.problem, measured.table
    prediction = model.predict(feature_matrix(hardware, problem, table))
    least = least_us(hardware, problem)
    regime = _regime(hardware, problem, prediction)
    if regime not in _CORRECTED or not measured.is_believed(prediction.time_us(least)):
        return None
    error = np.log(measured.time_us / least) - prediction.log_ratio
    kinds, off = [], []
    for kind in _KINDS:
        rows = np.flatnonzero(table.kind == kind)
        if len(rows):
            expected_first = rows[np.argsort(prediction.log_ratio[rows], kind="stable")][:_LOOKED_AT]
            kinds.append(kind)
            off.append(error[expected_first].mean())
    return (np.array(kinds), np.array(off), regime) if len(kinds) >= 2 else None


def _regime(hardware: Hardware, problem: MMShape, prediction: Prediction) -> str:
    """By the time that the model expects of the fastest choice."""
    fastest = float(np.exp(prediction.log_ratio.min())) * least_us(hardware, problem)
    return regime_of(problem, fastest)
