"""The quick correction, on measurements of an H200."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
import pytest
from tests.learning.made_up import BY_INDUCTOR, HERE, LATENCY_HIDDEN, config, tuned

from diode.features import ChoiceTable, feature_matrix
from diode.integration.policy import Policy, choose
from diode.integration.ranking import rank
from diode.learning.correction import Correction, fit_correction
from diode.learning.measured import measured_here
from diode.learning.memory import NOTHING_KNOWN, Knowledge
from diode.learning.store import Autotuning
from diode.model.evaluation import Order, Ranker, regrets
from diode.model.truth import MeasuredProblem, Truth
from diode.model.wrapper import ModelWrapper
from diode.types import AtenChoice, Environment, MMShape
from diode.types.known_hardware import H200

METHODS = (BY_INDUCTOR, LATENCY_HIDDEN)
OnAGpu = Callable[[int, float], Truth]


def as_tuned(truth: Truth) -> list[Autotuning]:
    """What a store would hold of these problems."""
    autotunings = []
    for one in truth.problems:
        times = zip(truth.choices_of(one), one.time_us.tolist(), strict=True)
        autotunings.append(tuned(one.problem, {choice: None if np.isnan(us) else us for choice, us in times}))
    return autotunings


def learned(model: ModelWrapper, autotunings: Iterable[Autotuning], here: Environment = HERE) -> Correction | None:
    return fit_correction(model.model, H200, measured_here(autotunings, here).values())


def first_choices(model: ModelWrapper, correction: Correction | None, wanted: int) -> Ranker:
    """As many as a compile would be left with."""
    knowledge = Knowledge(correction=correction)

    def picked(truth: Truth, one: MeasuredProblem) -> Order:
        table = truth.table.take(one.choice_ids)
        ranked = rank(model, one.hardware, [one.problem], table, knowledge=knowledge)
        return np.array(choose(ranked, Policy(wanted)), dtype=np.intp)

    return picked


def regret(model: ModelWrapper, correction: Correction | None, truth: Truth, wanted: int) -> float:
    ratios = regrets(truth, first_choices(model, correction, wanted), (wanted,)).at(wanted)
    return float(np.log(ratios).mean())


def test_where_the_library_is_slower_than_the_model_thinks_held_out_regret_falls(
    model: ModelWrapper, on_a_gpu: OnAGpu
) -> None:
    correction = learned(model, as_tuned(on_a_gpu(1, 1.6)))
    held_out = on_a_gpu(2, 1.6)
    assert regret(model, correction, held_out, 3) < 0.85 * regret(model, None, held_out, 3)
    assert regret(model, correction, held_out, 1) < regret(model, None, held_out, 1) + 0.005


def test_where_nothing_is_wrong_nothing_is_lost(model: ModelWrapper, on_a_gpu: OnAGpu) -> None:
    correction = learned(model, as_tuned(on_a_gpu(1, 1.0)))
    held_out = on_a_gpu(2, 1.0)
    assert correction is not None
    for wanted in (1, 3):
        assert regret(model, correction, held_out, wanted) < regret(model, None, held_out, wanted) + 0.002


def test_few_problems_move_little(model: ModelWrapper, on_a_gpu: OnAGpu) -> None:
    autotunings = as_tuned(on_a_gpu(1, 3.0))
    library = []
    for count in (1, 8, len(autotunings)):
        correction = learned(model, autotunings[:count])
        assert correction is not None
        library.append(float(np.ptp(correction.shifts, axis=1).max()))
    assert 0.0 < library[0] < 0.5 < library[2]
    assert library[0] < library[1] < library[2]


def test_it_does_not_depend_on_the_order_of_the_store(model: ModelWrapper, on_a_gpu: OnAGpu) -> None:
    autotunings = as_tuned(on_a_gpu(1, 1.6))
    one, other = learned(model, autotunings), learned(model, autotunings[::-1])
    assert one is not None
    assert other is not None
    assert (one.shifts.tobytes(), one.problems) == (other.shifts.tobytes(), other.problems)


def test_without_anything_learned_predictions_are_the_model_s_own(model: ModelWrapper, on_a_gpu: OnAGpu) -> None:
    assert learned(model, []) is None
    truth = on_a_gpu(2, 1.0)
    one = truth.problems[0]
    table = truth.table.take(one.choice_ids)
    own = model.model.predict(feature_matrix(H200, one.problem, table))
    assert NOTHING_KNOWN.corrected(H200, one.problem, table, own) is own
    ranked = rank(model, H200, [one.problem], table)
    assert ranked.prediction.log_ratio.tobytes() == own.log_ratio.tobytes()


@pytest.mark.parametrize(
    "there",
    [
        msgspec.structs.replace(HERE, torch="2.13.1"),
        msgspec.structs.replace(HERE, triton="3.8.0"),
        msgspec.structs.replace(HERE, template_hashes=(("triton::mm", "1" * 64),)),
        msgspec.structs.replace(HERE, hardware=msgspec.structs.replace(H200, name="NVIDIA H100")),
        msgspec.structs.replace(HERE, hardware=msgspec.structs.replace(H200, sm_count=66)),
    ],
)
def test_what_was_measured_elsewhere_corrects_nothing(
    there: Environment, model: ModelWrapper, on_a_gpu: OnAGpu
) -> None:
    autotunings = as_tuned(on_a_gpu(1, 1.6))[:10]
    assert learned(model, autotunings) is not None
    assert learned(model, autotunings, there) is None


def test_tiny_problems_neither_correct_nor_are_corrected(model: ModelWrapper, on_a_gpu: OnAGpu) -> None:
    tiny = MMShape.of("addmm", 64, 64, 64)
    library, tiled = AtenChoice("addmm"), config(64)
    assert learned(model, [tuned(tiny, {library: 37.0, tiled: 18.0}, method=method) for method in METHODS]) is None
    correction = learned(model, as_tuned(on_a_gpu(1, 1.6)))
    assert correction is not None
    table = ChoiceTable.of([library, tiled])
    own = model.model.predict(feature_matrix(H200, tiny, table))
    assert correction.of(H200, tiny, table, own) is own
