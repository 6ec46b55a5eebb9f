from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from diode.storage import fastest, statistics
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


def test_a_dataset_is_counted_by_hardware_and_op(sample: Dataset) -> None:
    found = statistics(sample)
    counted = [(group.hardware, group.op, *msgspec.structs.astuple(group.counts)) for group in found.groups]
    # measurements, problems, choices, successes, failures, reasons, least and greatest time
    assert counted == [
        ("AMD EPYC 9554", "addmm", 1, 1, 1, 1, 0, {}, 1e-3, 1e-3),
        ("AMD EPYC 9554", "convolution", 1, 1, 1, 0, 1, {"unknown": 1}, None, None),
        ("NVIDIA H200", "addmm", 3, 1, 3, 3, 0, {}, 9.75, 12.5),
        ("NVIDIA H200", "bmm", 2, 1, 2, 1, 1, {"shared_memory": 1}, 3.0, 3.0),
    ]
    assert msgspec.structs.astuple(found.totals) == (
        7, 3, 6, 5, 2, {"shared_memory": 1, "unknown": 1}, 1e-3, 12.5,
    )  # fmt: skip
    assert found.by_dtype == {"float16": 5, "float32 (tf32)": 2}
    assert found.by_layout == {"NT": 4, "NN": 2, "other": 1}
    assert found.by_timer == {"inductor": 4, "diode-sweep": 3}
    assert next(iter(found.by_kind.items())) == ("cpp_template", 2)
    assert sum(found.by_kind.values()) == 7


def test_nothing_is_counted_as_nothing() -> None:
    found = statistics(Dataset.of([]))
    assert found.totals.measurements == found.totals.problems == 0
    assert found.totals.min_time_us is None
    assert found.groups == ()
    assert len(fastest(Dataset.of([]))) == 0


@given(st.from_type(Dataset))
def test_the_groups_add_up_to_the_whole(dataset: Dataset) -> None:
    found = statistics(dataset)
    rows = list(dataset)
    assert {(group.hardware, group.op) for group in found.groups} == {
        (row.environment.hardware.name, row.problem.op) for row in rows
    }
    for name in ("measurements", "successes", "failures"):
        assert sum(getattr(group.counts, name) for group in found.groups) == getattr(found.totals, name)
    assert found.totals.measurements == found.totals.successes + found.totals.failures == len(rows)
    assert found.totals.problems == len({row.problem for row in rows})
    assert found.totals.choices == len({row.choice for row in rows})
    times = [row.timing.time_us for row in rows if row.timing is not None]
    assert (found.totals.min_time_us, found.totals.max_time_us) == (min(times, default=None), max(times, default=None))
    for tally in (found.by_dtype, found.by_layout, found.by_kind, found.by_timer):
        assert sum(tally.values()) == len(rows)
        assert list(tally.values()) == sorted(tally.values(), reverse=True)


SMALL, LARGE = MMShape.of("mm", 64, 64, 64), MMShape.of("mm", 512, 512, 512)
GPU, OTHER_GPU = Environment(Hardware("gpu", "cuda")), Environment(Hardware("other gpu", "cuda"))
SWEEP, AGAIN = TimingMethod("sweep", "median"), TimingMethod("sweep", "median", round=2)
INDUCTOR = TimingMethod("inductor", "min")


def row(problem, k_split, time_us, environment=GPU, method=SWEEP) -> Measurement:
    return Measurement(problem, DecomposeKConfig(k_split), environment, method, Timing(time_us))


def splits(*rows: Measurement) -> list[tuple[int, int]]:
    return [(row.problem.M, row.choice.k_split) for row in fastest(Dataset.of(rows))]


def test_the_fastest_choice_of_each_problem_is_found() -> None:
    rows = [row(LARGE, 1, 9.0), row(SMALL, 2, 3.0), row(LARGE, 3, 7.0), row(SMALL, 4, 4.0), row(LARGE, 5, 8.0)]
    assert splits(*rows) == [(512, 3), (64, 2)]


def test_each_hardware_and_timer_has_its_own_fastest() -> None:
    found = splits(
        row(SMALL, 1, 5.0), row(SMALL, 2, 4.0, OTHER_GPU), row(SMALL, 3, 3.0, method=INDUCTOR), row(SMALL, 4, 6.0)
    )
    assert sorted(found) == [(64, 1), (64, 2), (64, 3)]


def test_a_later_round_is_the_truth_where_there_is_one() -> None:
    assert splits(row(SMALL, 1, 1.0), row(SMALL, 2, 2.0, method=AGAIN), row(SMALL, 3, 3.0, method=AGAIN)) == [(64, 2)]
    assert splits(row(SMALL, 1, 1.0), row(LARGE, 2, 2.0, method=AGAIN)) == [(64, 1), (512, 2)]


def test_of_equal_times_the_first_stays_and_failures_never_win() -> None:
    assert splits(row(SMALL, 2, 1.0), row(SMALL, 1, 1.0)) == [(64, 2)]
    broken = Measurement(SMALL, AtenChoice("mm"), GPU, SWEEP, failure=Failure("crash"))
    assert splits(broken, row(SMALL, 2, 1.0)) == [(64, 2)]
    assert len(fastest(Dataset.of([broken]))) == 0


@given(st.from_type(Dataset))
def test_no_time_of_the_same_round_is_less(dataset: Dataset) -> None:
    def key(row: Measurement):
        return row.problem, row.environment.hardware.name, row.method.timer

    timed = [row for row in dataset if row.timing is not None]
    best = {key(row): row for row in fastest(dataset)}
    assert len(best) == len(fastest(dataset))
    assert best.keys() == {key(row) for row in timed}
    for other in timed:
        winner = best[key(other)]
        assert (-winner.method.round, winner.time_us) <= (-other.method.round, other.time_us)
