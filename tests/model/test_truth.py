"""What measurements say of each problem."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from diode.model.truth import Truth
from diode.types import (
    AtenChoice,
    Choice,
    Dataset,
    Environment,
    Failure,
    Measurement,
    MMShape,
    OtherProblem,
    Problem,
    TensorSpec,
    Timing,
    TimingMethod,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200

PROBLEM = MMShape.of("mm", 64, 64, 64)
HERE = Environment(H200)
LIBRARY = AtenChoice("mm")


def config(block: int) -> TritonGEMMConfig:
    return TritonGEMMConfig("triton::mm", block, block, 32, 3, 4)


def method(number: int = 1, timer: str = "diode-sweep") -> TimingMethod:
    return TimingMethod(timer, "median", round=number)


def timed(choice: Choice, time_us: float, how: TimingMethod | None = None, problem: Problem = PROBLEM) -> Measurement:
    return Measurement(problem, choice, HERE, how or method(), Timing(time_us))


def failed(choice: Choice, reason: str, how: TimingMethod | None = None) -> Measurement:
    return Measurement(PROBLEM, choice, HERE, how or method(), failure=Failure(reason))  # type: ignore[arg-type]


def times(*measurements: Measurement) -> dict[Choice, float]:
    truth = Truth.of(Dataset.of(measurements))
    (measured,) = truth.problems
    return dict(zip(truth.choices_of(measured), measured.time_us.tolist(), strict=True))


def test_a_second_round_is_the_truth_and_the_first_is_brought_to_its_scale() -> None:
    found = times(
        timed(LIBRARY, 10.0),
        timed(config(16), 20.0),
        timed(config(32), 40.0),
        timed(LIBRARY, 11.0, method(2)),
        timed(config(16), 22.0, method(2)),
    )
    assert found[LIBRARY] == 11.0
    assert found[config(16)] == 22.0
    assert found[config(32)] == pytest.approx(44.0)


def test_a_choice_that_fails_in_the_second_round_fails() -> None:
    found = times(
        timed(LIBRARY, 10.0),
        timed(config(16), 5.0),
        timed(LIBRARY, 10.0, method(2)),
        failed(config(16), "shared_memory", method(2)),
    )
    assert np.isnan(found[config(16)])


def test_failures_stay_but_for_those_of_the_moment() -> None:
    found = times(timed(LIBRARY, 10.0), failed(config(16), "registers"), failed(config(32), "timeout"))
    assert found.keys() == {LIBRARY, config(16)}
    assert np.isnan(found[config(16)])


def test_the_sweeps_times_go_before_another_timers_of_the_same_problem() -> None:
    inductor = method(timer="inductor")
    found = times(timed(LIBRARY, 30.0, inductor), timed(LIBRARY, 10.0), timed(config(16), 50.0, inductor))
    assert found == {LIBRARY: 10.0}


def test_another_timers_times_stand_where_there_are_no_others() -> None:
    assert times(timed(LIBRARY, 30.0, method(timer="inductor"))) == {LIBRARY: 30.0}


def test_problems_without_a_time_and_what_is_no_gemm_are_left_out() -> None:
    other = OtherProblem("convolution", (TensorSpec((1, 2), (2, 1), "float32"),))
    dataset = Dataset.of([failed(config(16), "registers"), timed(LIBRARY, 1.0, problem=other)])
    assert len(Truth.of(dataset)) == 0


ELSEWHERE = Environment(msgspec.structs.replace(H200, name="Other GPU"))


def test_the_sweep_of_one_device_says_nothing_of_another_timers_times_on_another() -> None:
    there = Measurement(PROBLEM, LIBRARY, ELSEWHERE, method(timer="inductor"), Timing(20.0))
    truth = Truth.of(Dataset.of([timed(LIBRARY, 10.0), there]))
    assert {measured.hardware.name: measured.oracle_us for measured in truth.problems} == {
        "NVIDIA H200": 10.0,
        "Other GPU": 20.0,
    }


def test_devices_are_kept_apart() -> None:
    rows = [timed(LIBRARY, 10.0), Measurement(PROBLEM, LIBRARY, ELSEWHERE, method(), Timing(20.0))]
    truth = Truth.of(Dataset.of(rows))
    assert {measured.hardware.name: measured.oracle_us for measured in truth.problems} == {
        "NVIDIA H200": 10.0,
        "Other GPU": 20.0,
    }
