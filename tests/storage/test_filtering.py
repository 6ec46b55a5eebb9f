from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.storage import filter_dataset
from diode.types import Dataset, MMShape


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        ({"hardware": "NVIDIA H200"}, [0, 1, 2, 3, 4]),
        ({"hardware": ["AMD EPYC 9554", "NVIDIA H200"]}, [0, 1, 2, 3, 4, 5, 6]),
        ({"hardware": "NVIDIA"}, []),
        ({"op": "bmm"}, [3, 4]),
        ({"op": {"bmm", "convolution"}}, [3, 4, 5]),
        ({"dtype": "float32"}, [3, 4]),
        ({"dtype": "float16"}, [0, 1, 2, 5, 6]),
        ({"layout": "NT"}, [0, 1, 2, 6]),
        ({"layout": ("NN", "NT")}, [0, 1, 2, 3, 4, 6]),
        ({"kind": "aten"}, [2]),
        ({"kind": ["triton_gemm", "persistent_tma", "decompose_k"]}, [0, 1, 3]),
        ({"kind": "cpp_template"}, [5, 6]),
        ({"kind": "other"}, [4]),
        ({"timer": "inductor"}, [2, 3, 5, 6]),
        ({"succeeded": True}, [0, 1, 2, 4, 6]),
        ({"succeeded": False}, [3, 5]),
        ({"problem": lambda problem: isinstance(problem, MMShape) and problem.K == 128}, [3, 4]),
        ({"hardware": "NVIDIA H200", "op": "addmm", "timer": "diode-sweep"}, [0, 1]),
        ({"op": []}, []),
    ],
)
def test_rows_that_meet_every_condition_stay_in_their_order(conditions, rows: list[int], sample: Dataset) -> None:
    everything = list(sample)
    assert list(filter_dataset(sample, **conditions)) == [everything[row] for row in rows]


def test_tables_hold_only_what_is_left(sample: Dataset) -> None:
    left = filter_dataset(sample, op="bmm")
    assert [problem.op for problem in left.problems] == ["bmm"]
    assert (len(left.choices), len(left.environments), len(left.methods), len(left.failures)) == (2, 1, 2, 1)
    nothing = filter_dataset(sample, op="nothing")
    assert len(nothing) == len(nothing.problems) == len(nothing.choices) == len(nothing.failures) == 0


def test_an_empty_dataset_stays_empty() -> None:
    empty = Dataset.of([])
    assert len(filter_dataset(empty, hardware="a", op="b", succeeded=True, problem=lambda _: True)) == 0


@given(st.from_type(Dataset))
def test_times_and_failures_part_a_dataset(dataset: Dataset) -> None:
    times, failures = filter_dataset(dataset, succeeded=True), filter_dataset(dataset, succeeded=False)
    assert list(times) == [row for row in dataset if row.timing is not None]
    assert list(failures) == [row for row in dataset if row.failure is not None]
