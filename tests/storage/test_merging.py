from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.storage import merge
from diode.types import (
    AtenChoice,
    Dataset,
    DecomposeKConfig,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    Timing,
    TimingMethod,
)

HERE = Environment(Hardware("NVIDIA H200", "cuda"), torch="2.11.0", driver="580", taken="2026-11-18")
BASE = Measurement(MMShape.of("mm", 64, 64, 64), AtenChoice("mm"), HERE, TimingMethod("t", "median"), Timing(5.0))


def timed(*timing) -> Measurement:
    return msgspec.structs.replace(BASE, timing=Timing(*timing))


def failed(reason) -> Measurement:
    return msgspec.structs.replace(BASE, timing=None, failure=Failure(reason))


def merged(*rows: Measurement) -> list[Measurement]:
    return list(merge(Dataset.of([row]) for row in rows))


# Each is better than the next. The times say nothing: a lucky one is not a better one.
BEST_FIRST = [
    failed("wrong_result"),
    timed(9.0, None, 0.02, 100),
    timed(1.0, None, 0.03, 100),
    timed(1.0, None, None, 100),
    timed(1.0, None, 0.001, 10),
    timed(1.0, None, 0.001, None),
    timed(1.0),
    failed("timeout"),
    failed("unknown"),
]


@pytest.mark.parametrize(("better", "worse"), list(itertools.combinations(BEST_FIRST, 2)))
def test_the_better_timed_stays_in_whatever_order_they_come(better: Measurement, worse: Measurement) -> None:
    assert merged(better, worse) == [better]
    assert merged(worse, better) == [better]
    assert merged(worse, better, worse) == [better]


def test_of_equally_good_ones_the_first_stays() -> None:
    assert merged(timed(5.0, None, 0.1, 10), timed(4.0, None, 0.1, 10)) == [timed(5.0, None, 0.1, 10)]
    assert merged(failed("crash"), failed("timeout")) == [failed("crash")]


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": MMShape.of("mm", 64, 64, 64, layout="NT")},
        {"choice": DecomposeKConfig(2)},
        {"method": TimingMethod("t", "median", round=2)},
        {"environment": msgspec.structs.replace(HERE, torch="2.12.0")},
        {"environment": msgspec.structs.replace(HERE, triton="3.7")},
        {"environment": msgspec.structs.replace(HERE, driver="590")},
        {"environment": msgspec.structs.replace(HERE, hardware=Hardware("NVIDIA H100", "cuda"))},
        {"environment": msgspec.structs.replace(HERE, template_hashes=(("triton::mm", "1"),))},
    ],
)
def test_what_differs_in_what_sets_the_time_is_another_measurement(changes) -> None:
    other = msgspec.structs.replace(BASE, **changes)
    assert merged(BASE, other) == [BASE, other]
    assert merged(BASE, other, BASE, other) == [BASE, other]


@pytest.mark.parametrize("field", ["python", "diode", "commit", "command", "taken"])
def test_who_measured_when_does_not_make_another_measurement(field: str) -> None:
    elsewhere = msgspec.structs.replace(HERE, **{field: "other"})
    better = msgspec.structs.replace(BASE, environment=elsewhere, timing=Timing(6.0, repeats=10))
    assert merged(BASE, better) == [better]


def test_rows_stay_in_the_order_in_which_they_came() -> None:
    rows = [msgspec.structs.replace(BASE, choice=DecomposeKConfig(number)) for number in (7, 3, 9, 1)]
    better = msgspec.structs.replace(rows[1], timing=Timing(1.0, repeats=3))
    assert merged(*rows, better) == [rows[0], rows[2], rows[3], better]
    assert merged(better, *rows) == [better, rows[0], rows[2], rows[3]]


def test_nothing_merges_to_nothing() -> None:
    assert len(merge([])) == 0
    assert len(merge([Dataset.of([]), Dataset.of([])])) == 0


def place(row: Measurement) -> Environment:
    return msgspec.structs.replace(row.environment, python="", diode="", commit="", command="", taken="")


@given(st.lists(st.from_type(Dataset), max_size=3))
def test_each_measurement_stays_once_and_nothing_is_made_up(datasets: list[Dataset]) -> None:
    rows = [row for dataset in datasets for row in dataset]
    result = list(merge(datasets))
    keys = [(row.problem, row.choice, place(row), row.method) for row in result]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {(row.problem, row.choice, place(row), row.method) for row in rows}
    assert all(row in rows for row in result)
    assert list(merge([merge(datasets)])) == result
    assert list(merge([*datasets, *datasets])) == result
