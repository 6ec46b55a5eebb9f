"""Regret, efficiency, winners, regimes and the noise floor, by numbers that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.model.made_up import config, problem_of, ranked, timed, truth_of

from diode.model.evaluation import REGIMES, evaluate, noise_floor, regime_of, regrets, regrets_of
from diode.model.truth import Truth
from diode.types import Dataset, MMShape


@pytest.fixture
def truth() -> Truth:
    """Two problems; the fastest of the first takes 100 us, of the second 10 us."""
    return truth_of(
        {
            problem_of(512): {config(16): 100.0, config(32): 110.0, config(64): 150.0, config(128): None},
            problem_of(64): {config(16): 40.0, config(32): 10.0, config(64): 20.0, config(128): 10.05},
        }
    )


def test_regret_is_of_the_best_of_the_first_choices(truth: Truth) -> None:
    found = regrets(truth, ranked({512: [64, 32, 16], 64: [64, 16, 32]}), (1, 2, 3))
    np.testing.assert_allclose(found.ratios, [[1.5, 1.1, 1.0], [2.0, 2.0, 1.0]])
    np.testing.assert_allclose(found.at(2), [1.1, 2.0])


def test_efficiency_is_the_geometric_mean_and_regrets_are_quantiles(truth: Truth) -> None:
    found = evaluate(truth, regrets(truth, ranked({512: [64, 32, 16], 64: [64, 16, 32]}), (1, 2, 3)))
    first, second, third = found.overall
    assert first.efficiency == pytest.approx(100 / math.sqrt(1.5 * 2.0))
    assert second.efficiency == pytest.approx(100 / math.sqrt(1.1 * 2.0))
    assert third.efficiency == pytest.approx(100)
    assert first.regret_p50 == pytest.approx(0.75)
    assert first.regret_p95 == pytest.approx(0.5 + 0.95 * 0.5)
    assert first.regret_worst == pytest.approx(1.0)
    assert (first.k, first.problems, first.winner_kept) == (1, 2, 0.0)
    assert second.winner_kept == 0.0
    assert third.winner_kept == 1.0
    assert found.at(2) == second


def test_a_choice_within_the_noise_of_the_winner_is_the_winner(truth: Truth) -> None:
    found = regrets(truth, ranked({512: [16], 64: [128]}), (1,))
    assert evaluate(truth, found, noise=0.01).overall[0].winner_kept == 1.0
    assert evaluate(truth, found, noise=0.001).overall[0].winner_kept == 0.5


def test_failures_cost_a_place_and_nothing_but_failures_the_slowest_time(truth: Truth) -> None:
    found = regrets(truth, ranked({512: [128, 32], 64: []}), (1, 2))
    np.testing.assert_allclose(found.ratios, [[1.5, 1.1], [4.0, 4.0]])


def test_an_order_may_be_shorter_than_k(truth: Truth) -> None:
    found = regrets(truth, ranked({512: [32], 64: [32]}), (1, 50))
    np.testing.assert_allclose(found.ratios, [[1.1, 1.1], [1.0, 1.0]])


def test_an_order_for_each_problem_is_needed(truth: Truth) -> None:
    with pytest.raises(ValueError, match="zip"):
        regrets_of(truth, [np.arange(4)])


def test_the_first_regime_that_fits() -> None:
    def regime(M: int, N: int, K: int, oracle_us: float = 100.0, B: int = 1) -> str:
        return regime_of(MMShape.of("bmm" if B > 1 else "mm", M, N, K, B=B), oracle_us)

    assert regime(64, 64, 64, oracle_us=19.99) == "tiny"
    assert regime(64, 64, 64, oracle_us=20.0) == "skinny"
    assert regime(4096, 65, 4096) == "ordinary"
    assert regime(128, 65, 1024) == "deep-K"
    assert regime(128, 65, 1023) == "ordinary"
    assert regime(4096, 4096, 5960) == "ordinary"
    assert regime(4096, 4096, 5961) == "large"
    assert regime(1024, 1024, 1024, B=100) == "large"


def test_regimes_and_ops_are_told_apart(truth: Truth) -> None:
    found = evaluate(truth, regrets(truth, ranked({512: [64], 64: [32]}), (1,)))
    assert set(found.by_regime) == {"tiny", "ordinary"} <= set(REGIMES)
    assert found.by_regime["ordinary"][0].efficiency == pytest.approx(100 / 1.5)
    assert found.by_regime["tiny"][0].efficiency == pytest.approx(100)
    assert found.by_op["mm"][0].problems == 2


def test_the_noise_floor_is_what_the_first_rounds_winner_loses_in_the_second() -> None:
    measurements = [
        # The winner of the first round is 5% behind in the second.
        *(timed(problem_of(512), config(b), us) for b, us in ((16, 100.0), (32, 101.0), (64, 300.0))),
        *(timed(problem_of(512), config(b), us, round=2) for b, us in ((16, 105.0), (32, 100.0))),
        # Here the winner stays the winner.
        *(timed(problem_of(256), config(b), us) for b, us in ((16, 10.0), (32, 11.0))),
        *(timed(problem_of(256), config(b), us, round=2) for b, us in ((16, 9.0), (32, 11.0))),
        # One choice in two rounds says nothing, nor does one round.
        *(timed(problem_of(128), config(16), 10.0, round=number) for number in (1, 2)),
        *(timed(problem_of(64), config(b), 10.0) for b in (16, 32)),
    ]
    np.testing.assert_allclose(sorted(noise_floor(Truth.of(Dataset.of(measurements)))), [0.0, 0.05])


def test_no_problems_are_no_figures(truth: Truth) -> None:
    nothing = truth.select(np.array([], dtype=np.intp))
    found = evaluate(nothing, regrets(nothing, ranked({})))
    assert (found.problems, found.overall, found.by_regime, found.by_op) == (0, (), {}, {})
    assert len(noise_floor(nothing)) == 0
