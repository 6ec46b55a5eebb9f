"""Importance by permutation, of models that look at one column and no other."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.model.made_up import config, problem_of, truth_of

from diode.features import COLUMNS
from diode.model.prediction import Prediction
from diode.model.truth import Truth
from diode.report.importance import Importance, permutation_importance

BLOCKS = (16, 32, 64, 128)
SIZES = range(512, 1024, 64)


class Looks:
    """At one column alone; keeps what it was shown."""

    def __init__(self, column: str) -> None:
        self.number = COLUMNS.index(column)
        self.shown: list[NDArray[np.float32]] = []

    def predict(self, features: NDArray[np.float32]) -> Prediction:
        self.shown.append(features.copy())
        ratio = features[:, self.number].copy()
        return Prediction(ratio, np.ones_like(ratio), np.zeros_like(ratio))

    predict_choices = predict


@pytest.fixture(scope="module")
def truth() -> Truth:
    """The larger the block, the slower."""
    return truth_of({problem_of(size): {config(block): float(block) for block in BLOCKS} for size in SIZES})


def by_column(found: tuple[Importance, ...]) -> dict[str, Importance]:
    return {entry.column: entry for entry in found}


def test_the_one_column_that_a_model_looks_at_comes_first_and_all_others_are_worth_nothing(truth: Truth) -> None:
    found = permutation_importance(Looks("log_block_m"), truth, seed=1)
    assert len(found) == len(COLUMNS)
    assert found[0].column == "log_block_m"
    assert found[0].regret > 0.3
    assert {(entry.regret, entry.log_error) for entry in found[1:]} == {(0.0, 0.0)}


def test_a_column_that_misleads_costs_less_than_nothing(truth: Truth) -> None:
    """Small tiles, which are the fastest here, are many: whoever takes few for fast is better off not knowing."""
    found = permutation_importance(Looks("log_tiles"), truth, seed=1)
    assert found[-1].column == "log_tiles"
    assert found[-1].regret < -0.3


def test_a_fact_of_the_problem_stays_one_when_it_is_shuffled(truth: Truth) -> None:
    model = Looks("log_m")
    found = by_column(permutation_importance(model, truth, seed=1))
    # all choices of a problem look alike to it, before and after
    assert found["log_m"].regret == pytest.approx(0.0)
    assert found["log_m"].log_error != 0.0
    for features in model.shown:
        of_problem = features[:, model.number].reshape(len(SIZES), len(BLOCKS))
        assert (of_problem == of_problem[:, :1]).all()
    changed = [features for features in model.shown if (features != model.shown[0]).any()]
    assert any((features[:, model.number] != model.shown[0][:, model.number]).any() for features in changed)


def test_a_shuffle_keeps_the_values_and_touches_one_column(truth: Truth) -> None:
    model = Looks("log_block_m")
    permutation_importance(model, truth, seed=1)
    before = model.shown[0]
    for features in model.shown[1:]:
        touched = np.flatnonzero((features != before).any(0))
        assert len(touched) <= 1
        assert np.array_equal(np.sort(features, 0), np.sort(before, 0))


def test_equal_seeds_shuffle_alike(truth: Truth) -> None:
    first, again, other = (permutation_importance(Looks("log_block_m"), truth, seed)[0] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_of_many_choices_the_fastest_are_always_looked_at() -> None:
    blocks = range(1, 201)
    many = truth_of({problem_of(size): {config(block): float(block) for block in blocks} for size in (512, 640)})
    model = Looks("log_block_m")
    permutation_importance(model, many, seed=3)
    shown = np.exp2(model.shown[0][:, model.number]).round().astype(int).reshape(2, -1)
    assert shown.shape[1] < len(blocks)
    assert all(set(range(1, 17)) <= set(row) for row in shown.tolist())
