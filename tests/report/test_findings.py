"""What a report says of a model, where all that was measured is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.model.conftest import untrained
from tests.model.made_up import HERE, config, problem_of, timed, truth_of

from diode.features import COLUMNS, least_us
from diode.model.prediction import Prediction
from diode.report.findings import Findings, Inspection, JudgedFile, gather
from diode.types import AtenChoice, Dataset, MMShape

LIBRARY = AtenChoice("mm")
BLOCK = COLUMNS.index("log_block_m")


class SmallestBlockFirst:
    """Takes every choice for twice the least time there is, and a little more the larger its block."""

    def predict(self, features: NDArray[np.float32]) -> Prediction:
        ratio = np.float32(np.log(2.0)) + np.float32(1e-6) * features[:, BLOCK]
        # the library, which has no block, is what it would never try
        failure = (features[:, COLUMNS.index("is_library")] > 0).astype(np.float32)
        return Prediction(ratio, np.ones_like(ratio), failure)

    predict_choices = predict


TIMES: dict[MMShape, dict[object, float | None]] = {
    problem_of(512): {config(16): 30.0, config(32): 20.0, config(64): 40.0, LIBRARY: 25.0},
    problem_of(768): {config(16): 50.0, config(32): 60.0, config(64): 70.0},
    problem_of(1024): {config(16): None, config(32): None, config(64): 100.0, LIBRARY: 300.0},
}


@pytest.fixture(scope="module")
def found() -> Findings:
    truth = truth_of(TIMES)  # type: ignore[arg-type]
    training = truth_of({problem_of(768): {config(64): 9.0, config(32): 10.0}, problem_of(99): {config(64): 9.0}})
    card = untrained().card
    return gather(SmallestBlockFirst(), card, truth, Inspection(top=2), training=training)


def test_the_worst_problems_come_first_with_what_was_chosen_and_what_was_best(found: Findings) -> None:
    worst, second = found.worst
    assert worst.problem == str(problem_of(1024))
    assert (worst.chosen, worst.chosen_us) == (str(config(16)), None)
    assert (worst.oracle, worst.oracle_us, worst.library_us) == (str(config(64)), 100.0, 300.0)
    # nothing of it ran, so the slowest stands in; the third would have
    assert (worst.regret_at_1, worst.regret_at_3) == (pytest.approx(2.0), pytest.approx(0.0))
    assert (second.problem, second.chosen_us, second.oracle_us) == (str(problem_of(512)), 30.0, 20.0)
    assert (second.regret_at_1, second.library_us, second.regime) == (pytest.approx(0.5), 25.0, "ordinary")


def test_problems_choices_and_twins_are_counted(found: Findings) -> None:
    assert (found.problems, found.median_choices, found.twins_in_training) == (3, 4, 1)
    assert found.regimes == ("ordinary", "ordinary", "ordinary")


def test_the_static_table_is_made_of_the_training_data_and_judged_like_the_others(found: Findings) -> None:
    assert next(iter(found.rankings)) == "model"
    assert set(found.rankings) == {"model", "model in full", "library", "random", "static table"}
    # 64 leads: 2, 7/5 and 1 times the oracle
    assert found.rankings["static table"].at(1).efficiency == pytest.approx(100 / (2 * 1.4) ** (1 / 3))
    assert found.rankings["model"].at(1).efficiency == pytest.approx(100 / (1.5 * 3.0) ** (1 / 3))


def test_predicted_times_stand_beside_the_measured_ones_without_failures(found: Findings) -> None:
    expected = [
        (time_us, 2.0 * least_us(HERE.hardware, problem))
        for problem, times in TIMES.items()
        for time_us in times.values()
        if time_us is not None
    ]
    pairs = zip(found.times.measured_us, found.times.predicted_us, strict=True)
    assert sorted(pairs) == [pytest.approx(pair, rel=1e-4) for pair in sorted(expected)]


def test_without_training_data_there_is_no_table_and_no_word_on_twins() -> None:
    truth = truth_of(TIMES)  # type: ignore[arg-type]
    found = gather(SmallestBlockFirst(), untrained().card, truth, Inspection(top=0))
    assert "static table" not in found.rankings
    assert (found.twins_in_training, found.worst, found.validation.worst) == (None, (), ())


def test_rankings_judged_elsewhere_are_added(found: Findings) -> None:
    truth = truth_of(TIMES)  # type: ignore[arg-type]
    elsewhere = {"elsewhere": found.rankings["library"]}
    more = gather(SmallestBlockFirst(), untrained().card, truth, Inspection(), baselines=elsewhere)
    assert more.rankings["elsewhere"] is found.rankings["library"]


def test_a_judged_file_tells_its_counts_and_circumstances() -> None:
    rows = [timed(problem, choice, time_us) for problem, row in TIMES.items() for choice, time_us in row.items()]  # type: ignore[arg-type]
    file = JudgedFile.of("a.json", "1" * 64, Dataset.of(rows))
    assert (file.problems, file.measurements, file.failures) == (3, 9, 2)
    assert file.circumstances == ("NVIDIA H200, torch 2.13.0, triton 3.9.0",)
