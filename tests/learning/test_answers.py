"""When a measurement answers for a problem, and when the model does."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from tests.learning.made_up import BY_INDUCTOR, HERE, LATENCY_HIDDEN, LIBRARY, config, problem_of, tuned

from diode.features import ChoiceTable
from diode.learning.answers import Answer, answer
from diode.learning.measured import MeasuredHere, measured_here
from diode.learning.store import Autotuning
from diode.model.prediction import Prediction
from diode.types import Choice

PROBLEM = problem_of(1024)
CANDIDATES = [LIBRARY, config(16), config(32), config(64), config(128)]
FAMILY = msgspec.structs.replace(BY_INDUCTOR, kernel="family")
LEAST_US = 10.0


def of(*autotunings: Autotuning) -> MeasuredHere:
    return measured_here(autotunings, HERE)[PROBLEM]


def times(*autotunings: Autotuning) -> dict[Choice, float]:
    found = measured_here(autotunings, HERE).get(PROBLEM)
    return {} if found is None else dict(zip(found.choices, found.time_us.tolist(), strict=True))


def answered(
    measured: Mapping[Choice, float | None] | MeasuredHere,
    predicted_us: Mapping[Choice, float] | float,
    *,
    sigma: float = 0.1,
    saving: float = 0.0,
) -> Answer | None:
    if isinstance(predicted_us, float):
        predicted_us = dict.fromkeys(CANDIDATES, predicted_us)
    predicted = np.array([predicted_us.get(choice, 1e4) for choice in CANDIDATES])
    count = len(CANDIDATES)
    prediction = Prediction(
        np.log(predicted / LEAST_US).astype(np.float32), np.full(count, sigma, np.float32), np.zeros(count, np.float32)
    )
    known = measured if isinstance(measured, MeasuredHere) else of(tuned(PROBLEM, measured))
    return answer(known, ChoiceTable.of(CANDIDATES), prediction, np.ones(count, np.bool_), LEAST_US, saving)


def test_the_fastest_that_was_measured_is_the_answer() -> None:
    found = answered({LIBRARY: 90.0, config(64): 80.0, config(32): None}, 85.0)
    assert found == Answer((3,), config(64), 80.0, 2)


def test_of_several_minima_the_least_counts_and_of_several_medians_their_median() -> None:
    runs = [{LIBRARY: 90.0}, {LIBRARY: 80.0}, {LIBRARY: 85.0}]
    assert times(*(tuned(PROBLEM, run) for run in runs)) == {LIBRARY: 80.0}
    median = msgspec.structs.replace(BY_INDUCTOR, statistic="median")
    assert times(*(tuned(PROBLEM, run, method=median) for run in runs)) == {LIBRARY: 85.0}


def test_kernels_that_serve_many_sizes_say_nothing_of_one() -> None:
    assert times(tuned(PROBLEM, {LIBRARY: 90.0, config(64): 80.0}, method=FAMILY)) == {}


def test_one_time_alone_is_no_answer() -> None:
    assert answered({LIBRARY: 90.0, config(32): None}, 85.0) is None


@pytest.mark.parametrize(
    ("fastest", "predicted", "believed"),
    [
        (18.0, 100.0, False),  # may be all latency, whatever the model thinks
        (23.0, 4.0, False),  # what a kernel of 4 us reads while the GPU waits
        (37.0, 5.0, False),  # what the library reads when it is timed first
        (25.0, 24.0, True),
        (41.0, 5.0, True),
    ],
)
def test_times_that_may_be_launch_latency_do_not_overrule_the_model(
    fastest: float, predicted: float, believed: bool
) -> None:
    measured = {LIBRARY: 1.5 * fastest, config(64): fastest}
    assert (answered(measured, predicted) is not None) is believed
    hidden = of(tuned(PROBLEM, measured, method=LATENCY_HIDDEN))
    assert answered(hidden, predicted) is not None


def test_something_unmeasured_that_the_model_is_sure_of_goes_first() -> None:
    measured = {LIBRARY: 90.0, config(64): 80.0}
    predicted = {LIBRARY: 90.0, config(64): 80.0, config(128): 70.0}
    assert answered(measured, predicted, sigma=0.05) is None
    assert answered(measured, predicted, sigma=0.2) is not None
    # The model is twice as fast as this GPU for this problem as a whole: that is no reason to doubt the answer.
    assert answered(measured, {LIBRARY: 45.0, config(64): 40.0, config(128): 44.0}, sigma=0.05) is not None


def test_a_library_kernel_is_charged_with_what_it_cannot_fuse() -> None:
    measured = {LIBRARY: 80.0, config(64): 85.0}
    plain, fused = answered(measured, 85.0), answered(measured, 85.0, saving=1.0)
    assert plain is not None
    assert fused is not None
    assert (plain.choice, fused.choice) == (LIBRARY, config(64))


def test_what_is_no_candidate_any_more_is_no_answer() -> None:
    found = answered({LIBRARY: 90.0, config(64, stages=5): 70.0, config(32): 95.0}, 85.0)
    assert found is not None
    assert found.choice == LIBRARY
    assert answered({config(64, stages=5): 70.0, config(32, stages=5): 95.0}, 85.0) is None
