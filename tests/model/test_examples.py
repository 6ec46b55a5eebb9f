"""Problems as training examples."""

from __future__ import annotations

import numpy as np
import pytest

from diode.features import least_us
from diode.model.examples import Examples, lists_of_choices, split_by_twins
from diode.model.truth import Truth


@pytest.fixture(scope="module")
def examples(truth: Truth) -> Examples:
    return Examples.of(truth)


def test_each_problem_begins_with_its_fastest_choice_and_ends_with_its_failures(
    truth: Truth, examples: Examples
) -> None:
    assert len(examples) == len(truth)
    for number, measured in enumerate(truth.problems):
        ratios = examples.log_ratio[examples.rows(number)]
        times = np.exp(ratios.astype(np.float64)) * least_us(measured.hardware, measured.problem)
        np.testing.assert_allclose(times, np.sort(measured.time_us), rtol=1e-5)
        assert examples.log_regret[examples.rows(number)][0] == 0


def test_twins_share_a_fold_and_folds_are_filled_evenly(truth: Truth) -> None:
    folds = split_by_twins(truth, 4, seed=1)
    by_group: dict[tuple[int, int, int], set[int]] = {}
    for measured, fold in zip(truth.problems, folds, strict=True):
        by_group.setdefault(measured.problem.twin_group, set()).add(int(fold))
    assert all(len(found) == 1 for found in by_group.values())
    assert set(folds) == {0, 1, 2, 3}


def test_a_split_depends_on_its_seed_alone(truth: Truth) -> None:
    again = split_by_twins(truth.select(np.arange(len(truth))[::-1]), 4, seed=1)[::-1]
    np.testing.assert_array_equal(split_by_twins(truth, 4, seed=1), again)
    assert (split_by_twins(truth, 4, seed=1) != split_by_twins(truth, 4, seed=2)).any()


def test_a_list_holds_the_fastest_and_others_by_lot_each_once(examples: Examples, draw: np.random.Generator) -> None:
    counts = np.diff(examples.bounds)
    problems = list(range(len(examples)))
    lines = lists_of_choices(examples, problems, 20, 5, draw)
    for number, line in zip(problems, lines, strict=True):
        first, last = examples.bounds[number], examples.bounds[number + 1]
        there = line[line >= 0]
        assert len(there) == min(20, counts[number]) == len(set(there))
        assert there.min() >= first
        assert there.max() < last
        assert set(range(first, min(first + 5, last))) <= set(there)
    assert (lines != lists_of_choices(examples, problems, 20, 5, draw)).any()
