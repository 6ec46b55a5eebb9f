"""How good an order of choices is, in the words of docs/evaluation.md: regret, efficiency, winners kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.model.truth import MeasuredProblem, Truth
from diode.types import MMShape

Regime = Literal["tiny", "skinny", "deep-K", "large", "ordinary"]
REGIMES: Final[tuple[Regime, ...]] = get_args(Regime)
FIRST_CHOICES: Final = (1, 2, 3, 5, 8, 10, 20, 50)
"""The k of every table: so many of an order's first choices are benchmarked."""

Order = NDArray[np.intp]
Ranker = Callable[[Truth, MeasuredProblem], Order]
"""Places in the problem's choices, best first. It may leave out what it would never try."""


class AtK(msgspec.Struct, frozen=True):
    """Some problems, each with the first k choices of an order. Ratios are over the oracle, 1 is perfect."""

    k: int
    problems: int
    efficiency: float
    """100 over the geometric mean of the ratios."""
    regret_p50: float
    regret_p95: float
    regret_worst: float
    winner_kept: float
    """Share of problems whose oracle, or a choice within the noise of it, is among the first k."""


class Evaluation(msgspec.Struct, frozen=True):
    """One ranker on one truth."""

    problems: int
    overall: tuple[AtK, ...]
    by_regime: dict[str, tuple[AtK, ...]]
    by_op: dict[str, tuple[AtK, ...]]

    def at(self, k: int) -> AtK:
        return next(entry for entry in self.overall if entry.k == k)


@dataclass(frozen=True, eq=False)
class Regrets:
    """Ratio over the oracle by problem and k."""

    first_choices: tuple[int, ...]
    ratios: NDArray[np.float64]
    """`[problems, k]`"""

    def at(self, k: int) -> NDArray[np.float64]:
        ratios: NDArray[np.float64] = self.ratios[:, self.first_choices.index(k)]
        return ratios


def regime_of(problem: MMShape, oracle_us: float) -> Regime:
    if oracle_us < 20.0:
        return "tiny"
    if min(problem.M, problem.N) <= 64:
        return "skinny"
    if 8 * max(problem.M, problem.N) <= problem.K:
        return "deep-K"
    return "large" if problem.flops > 2e11 else "ordinary"


def regrets(truth: Truth, ranker: Ranker, first_choices: Sequence[int] = FIRST_CHOICES) -> Regrets:
    return regrets_of(truth, (ranker(truth, measured) for measured in truth.problems), first_choices)


def regrets_of(truth: Truth, orders: Iterable[Order], first_choices: Sequence[int] = FIRST_CHOICES) -> Regrets:
    """Where the first k all fail, the slowest of the problem's choices stands in: there was nothing to run."""
    ratios = np.empty((len(truth), len(first_choices)))
    for row, measured, order in zip(ratios, truth.problems, orders, strict=True):
        times = measured.time_us[order]
        slowest = float(np.nanmax(measured.time_us))
        for column, k in enumerate(first_choices):
            legal = times[:k][~np.isnan(times[:k])]
            row[column] = (legal.min() if len(legal) else slowest) / measured.oracle_us
    return Regrets(tuple(first_choices), ratios)


def evaluate(truth: Truth, found: Regrets, noise: float = 0.01) -> Evaluation:
    """`noise` is the regret up to which a choice counts as the winner."""
    regimes = [regime_of(measured.problem, measured.oracle_us) for measured in truth.problems]
    ops = [measured.problem.op for measured in truth.problems]
    return Evaluation(
        problems=len(truth),
        overall=_summaries(found, np.arange(len(truth)), noise),
        by_regime={name: _summaries(found, rows, noise) for name, rows in _grouped(regimes, REGIMES)},
        by_op={name: _summaries(found, rows, noise) for name, rows in _grouped(ops, sorted(set(ops)))},
    )


def noise_floor(truth: Truth) -> NDArray[np.float64]:
    """For each problem timed in two rounds: the regret, in the second, of the first round's fastest choice."""
    floors = []
    for measured in truth.problems:
        both = ~np.isnan(measured.first_us) & ~np.isnan(measured.second_us)
        if both.sum() >= 2:
            first, second = measured.first_us[both], measured.second_us[both]
            floors.append(second[np.argmin(first)] / second.min() - 1.0)
    return np.array(floors)


def _grouped(labels: Sequence[str], names: Iterable[str]) -> list[tuple[str, NDArray[np.intp]]]:
    array = np.array(labels)
    return [(name, rows) for name in names if len(rows := np.flatnonzero(array == name))]


def _summaries(found: Regrets, rows: NDArray[np.intp], noise: float) -> tuple[AtK, ...]:
    return tuple(_summary(k, found.at(k)[rows], noise) for k in found.first_choices) if len(rows) else ()


def _summary(k: int, ratios: NDArray[np.float64], noise: float) -> AtK:
    p50, p95 = np.percentile(ratios - 1.0, (50, 95))
    return AtK(
        k=k,
        problems=len(ratios),
        efficiency=100.0 / math.exp(float(np.log(ratios).mean())),
        regret_p50=float(p50),
        regret_p95=float(p95),
        regret_worst=float(ratios.max() - 1.0),
        winner_kept=float((ratios <= 1.0 + noise).mean()),
    )
