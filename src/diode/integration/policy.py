"""How many of the ranked choices of a GEMM are left, and which. Pure: predictions in, places out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from diode.errors import UsageError
from diode.model.prediction import LIKELY_ILLEGAL, Prediction

TopK = int | Literal["auto"]

MOST_OF_AUTO: Final = 8
_NEAR: Final = 0.02
"""Logarithmic distance within which predictions do not say which choice is better."""
_LOOKED_AT: Final = 64
"""So many of the best choices are looked at; what ranks behind them is never benchmarked."""
_DRAWS: Final = 256


@dataclass(frozen=True)
class Policy:
    """`top_k` choices at most are left, none predicted slower than `performance_threshold` times the best one.

    1 leaves one choice: nothing is benchmarked. `auto` leaves as few, `MOST_OF_AUTO` at most, as are needed for the
    expected regret of the best of them to be below `regret_bound`.
    """

    top_k: TopK = 3
    performance_threshold: float = 1.1
    regret_bound: float = 0.02

    def __post_init__(self) -> None:
        if self.top_k != "auto" and (type(self.top_k) is not int or self.top_k < 1):
            raise UsageError(f"top_k_configs={self.top_k!r}: must be a number from 1 on, or 'auto'")
        if not 1.0 <= self.performance_threshold < math.inf:
            raise UsageError(
                f"performance_threshold={self.performance_threshold!r}: must be 1.0 (only the best) or larger; "
                "1.1 keeps what is predicted within 10% of the best"
            )
        if not 0.0 < self.regret_bound < math.inf:
            raise UsageError(f"regret_bound={self.regret_bound!r}: must be above 0; 0.02 bounds the regret by 2%")

    def __str__(self) -> str:
        bound = f", regret below {self.regret_bound:g}" if self.top_k == "auto" else ""
        return f"top {self.top_k} within {self.performance_threshold:g}{bound}"


@dataclass(frozen=True, eq=False)
class Ranked:
    """What is known of each candidate; one entry per candidate in every array."""

    prediction: Prediction
    library: NDArray[np.bool_]
    legal: NDArray[np.bool_]
    """May be offered at all."""
    safe: NDArray[np.bool_]
    """May be the only choice: nothing catches it if it does not run."""
    kinds: NDArray[np.int64]
    """Equal for candidates of one template and tile."""


def choose(ranked: Ranked, policy: Policy, known: int | None = None) -> list[int]:
    """Places of the candidates that are left, the best first; none where no candidate may be offered.

    Where more than one is left, a library kernel is among them if there is any: it is what Inductor falls back to.
    `known` is the place of the one that was measured to be the fastest. It goes first, alone where one is wanted. So it
    does with `auto`: what it was compared with were as many as the bound had asked for.
    """
    prediction = ranked.prediction
    order = prediction.order()
    order = order[ranked.legal[order] & ((prediction.failure[order] <= LIKELY_ILLEGAL) | ranked.library[order])]
    if known is not None and policy.top_k in (1, "auto"):
        if ranked.safe[known]:
            return [known]
        known = None
    if not len(order):
        return []
    wanted = _enough(prediction, order, policy.regret_bound) if policy.top_k == "auto" else policy.top_k
    if wanted == 1:
        return [int(place) for place in order[ranked.safe[order]][:1]]
    farthest = prediction.log_ratio[order[0]] + math.log(policy.performance_threshold)
    near = order[prediction.log_ratio[order] <= farthest][:_LOOKED_AT]
    if known is None:
        picked = _diverse(near, prediction.log_ratio, ranked.kinds, wanted)
    else:
        picked = [known, *_diverse(near[near != known], prediction.log_ratio, ranked.kinds, wanted - 1)]
    libraries = order[ranked.library[order]]
    if len(libraries) and not ranked.library[picked].any():
        picked = [*picked[: wanted - 1], int(libraries[0])]
    if len(picked) == 1 and not ranked.safe[picked[0]]:
        picked = [int(place) for place in order[ranked.safe[order]][:1]]
    return picked


def expected_regret(log_ratio: NDArray[np.float32], sigma: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the best of the first n choices is expected to lose against the best of all, for n from 1 on.

    Errors of predictions count as independent, which overstates the regret where a model errs alike on like choices.
    """
    draws = log_ratio + sigma * _normal_draws(len(log_ratio))
    found = np.minimum.accumulate(draws, axis=1)
    regret: NDArray[np.float64] = np.exp(found - draws.min(axis=1, keepdims=True)).mean(axis=0) - 1.0
    return regret


def _enough(prediction: Prediction, order: NDArray[np.intp], bound: float) -> int:
    first = order[: _LOOKED_AT // 2]
    regret = expected_regret(prediction.log_ratio[first], prediction.sigma[first])
    return min(int(np.argmax(regret <= bound)) + 1, MOST_OF_AUTO)


@cache
def _normal_draws(columns: int) -> NDArray[np.float64]:
    # The same draws on every machine and rank: the decision must be the same.
    return np.random.default_rng(0).standard_normal((_DRAWS, columns))


def _diverse(
    order: NDArray[np.intp], log_ratio: NDArray[np.float32], kinds: NDArray[np.int64], wanted: int
) -> list[int]:
    """The best, but among near-equal ones another template or tile before another number of stages or warps."""
    rest = [int(place) for place in order]
    picked: list[int] = []
    taken: set[int] = set()
    while rest and len(picked) < wanted:
        farthest = log_ratio[rest[0]] + _NEAR if picked else -math.inf
        place = next((p for p in rest if log_ratio[p] <= farthest and int(kinds[p]) not in taken), rest[0])
        rest.remove(place)
        picked.append(place)
        taken.add(int(kinds[place]))
    return picked
