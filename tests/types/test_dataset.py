from __future__ import annotations

import numpy as np
import pytest

from diode.types import (
    AtenChoice,
    Dataset,
    DatasetBuilder,
    DecomposeKConfig,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    OtherChoice,
    Timing,
    TimingMethod,
)
from diode.types.dataset import COLUMN_TYPES

GPU, METHOD = Environment(Hardware("gpu", "cuda")), TimingMethod("t", "min")
SMALL, LARGE = MMShape.of("mm", 8, 8, 8), MMShape.of("mm", 512, 512, 512)


def timed(problem, choice, *timing) -> Measurement:
    return Measurement(problem, choice, GPU, METHOD, Timing(*timing))


ROWS = [
    timed(SMALL, AtenChoice("mm"), 5.0),
    timed(LARGE, AtenChoice("mm"), 50.0, 49.0, 0.0, 10, 1980),
    Measurement(SMALL, DecomposeKConfig(2), GPU, METHOD, failure=Failure("crash", "why")),
    timed(SMALL, DecomposeKConfig(4), 7.0, None, 0.5, None, 1500),
    Measurement(LARGE, DecomposeKConfig(4), GPU, METHOD, failure=Failure("timeout")),
]


def test_measurements_come_out_as_they_went_in() -> None:
    dataset = Dataset.of(ROWS)
    assert len(dataset) == len(ROWS)
    assert list(dataset) == ROWS
    assert [dataset.measurement(row) for row in range(len(ROWS))] == ROWS
    assert dataset.succeeded.tolist() == [True, True, False, True, False]


def test_tables_hold_each_record_once() -> None:
    dataset = Dataset.of([*ROWS, *ROWS])
    assert dataset.problems == (SMALL, LARGE)
    assert dataset.choices == (AtenChoice("mm"), DecomposeKConfig(2), DecomposeKConfig(4))
    assert (len(dataset.environments), len(dataset.methods), len(dataset.failures)) == (1, 1, 2)


def test_columns_have_their_types_and_say_what_is_not_known() -> None:
    columns = Dataset.of(ROWS).columns
    assert {name: column.dtype.type for name, column in vars(columns).items()} == COLUMN_TYPES
    np.testing.assert_array_equal(columns.time_us, [5.0, 50.0, np.nan, 7.0, np.nan])
    np.testing.assert_array_equal(columns.spread, [np.nan, 0.0, np.nan, 0.5, np.nan])
    np.testing.assert_array_equal(columns.failure_id, [-1, -1, 0, -1, 1])
    np.testing.assert_array_equal(columns.repeats, [-1, 10, -1, -1, -1])
    np.testing.assert_array_equal(columns.clock_mhz, [-1, 1980, -1, 1500, -1])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (np.array([3, 0]), [3, 0]),
        (np.array([2, 2]), [2, 2]),
        (np.array([], dtype=np.intp), []),
        (np.array([False, True, True, False, False]), [1, 2]),
        (np.array([4]), [4]),
    ],
)
def test_selected_rows_keep_only_the_records_that_they_use(rows, expected: list[int]) -> None:
    selected = Dataset.of(ROWS).select(rows)
    assert list(selected) == [ROWS[row] for row in expected]
    assert set(selected.problems) == {row.problem for row in selected}
    assert set(selected.choices) == {row.choice for row in selected}
    assert set(selected.failures) == {row.failure for row in selected} - {None}


def test_datasets_and_measurements_gather_in_the_order_in_which_they_are_added() -> None:
    builder = DatasetBuilder()
    builder.add(ROWS[4])
    builder.extend(Dataset.of(ROWS[:2]))
    builder.add(ROWS[2])
    builder.add(ROWS[3])
    builder.extend(Dataset.of([]))
    builder.extend(Dataset.of(ROWS[1:]))
    dataset = builder.build()
    assert list(dataset) == [ROWS[4], *ROWS[:2], ROWS[2], ROWS[3], *ROWS[1:]]
    assert sorted(dataset.problems, key=str) == sorted({SMALL, LARGE}, key=str)
    builder.add(ROWS[0])
    assert list(builder.build()) == [*dataset, ROWS[0]]


def test_a_dataset_of_nothing() -> None:
    empty = Dataset.of([])
    assert (len(empty), list(empty), empty.problems) == (0, [], ())
    assert {name: column.dtype.type for name, column in vars(empty.columns).items()} == COLUMN_TYPES


def test_choices_that_python_takes_for_equal_stay_apart() -> None:
    choices = [OtherChoice("b", "n", (("x", word),)) for word in (True, 1, 1.0)]
    dataset = Dataset.of(timed(SMALL, choice, 1.0) for choice in choices)
    assert [repr(row.choice.fields[0][1]) for row in dataset] == ["True", "1", "1.0"]
