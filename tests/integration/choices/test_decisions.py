"""What is decided, how it is counted, remembered and told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.integration.by_torch import ADDMM_CALLS, PRUNES_BY_SHARED_MEMORY, library_kernels
from tests.integration.choices.lab import A100, H200, TMA, Tensor, batch, lower, matrix
from tests.integration.choices.models import SQUARE_64, write_model
from torch._inductor.select_algorithm import get_algorithm_selector_cache

from diode.errors import UsageError
from diode.integration.choices import DiodeInductorChoices
from diode.integration.decision import last_decision
from diode.integration.lowering import lowered
from diode.integration.policy import Policy
from diode.integration.statistics import FALLBACK_REASONS
from diode.types import AtenChoice, MMShape, PersistentTMAConfig, TritonGEMMConfig

MM = (matrix(512, 1024), matrix(1024, 2048))
ADDMM = (Tensor((2048,)), *MM)
TRITON_ONLY = {"max_autotune_gemm_backends": "TRITON"}


def counts(handler, *names):
    stats = handler.get_stats()
    return tuple(stats[name] for name in names)


def fallbacks(handler):
    return {name: count for name, count in handler.get_stats().items() if name.startswith("fallback_") and count}


def test_the_statistics_have_the_promised_names(make_handler):
    expected = {"total_calls", "decisions", "model_selections", "configs_filtered", *FALLBACK_REASONS}
    expected |= {"store_answers", "store_corrections"}
    expected |= {"decision_seconds_total", "decision_seconds_median", "decision_seconds_max"}
    handler = make_handler(top_k_configs=3)
    assert handler.get_stats() == dict.fromkeys(expected, 0)
    lower(torch.mm, *MM, handler=handler)
    lower(torch.mm, *MM, handler=handler)
    stats = handler.get_stats()
    assert stats.keys() == expected
    assert counts(handler, "total_calls", "decisions", "model_selections") == (2, 2, 2)
    assert not fallbacks(handler)
    with lowered(MMShape.of("mm", 512, 2048, 1024), "EXHAUSTIVE", H200) as offered:
        assert stats["configs_filtered"] == 2 * (len(offered) - 3)
    assert 0 < stats["decision_seconds_median"] <= stats["decision_seconds_max"] < stats["decision_seconds_total"]


def test_all_calls_of_an_addmm_are_one_decision(make_handler):
    for wanted in (1, 3):
        handler = make_handler(top_k_configs=wanted)
        left = lower(torch.addmm, *ADDMM, handler=handler).choices
        assert len(left) == wanted
        assert counts(handler, "total_calls", "decisions", "model_selections") == (ADDMM_CALLS, 1, 1)
        assert set(left) == {pick.choice for pick in last_decision().picks}


def test_linear_layers_in_one_graph_are_decided_each_by_itself(make_handler):
    def mlp(x, bias, first, second):
        return torch.addmm(bias, torch.addmm(bias, x, first), second)

    handler = make_handler(top_k_configs=1)
    told = lower(mlp, matrix(512, 1024), Tensor((1024,)), matrix(1024, 1024), matrix(1024, 1024, "T"), handler=handler)
    assert [len(gemm.choices) for gemm in told.autotuned] == [1, 1]
    assert counts(handler, "total_calls", "decisions") == (2 * ADDMM_CALLS, 2)


def test_the_same_matrices_with_another_bias_are_another_decision(make_handler):
    def twice(one, other, x, weight):
        return torch.addmm(one, x, weight), torch.addmm(other, x, weight)

    # Of library kernels alone there is a choice for the first bias, a row, where torch has two of them for it.
    for backends, decisions in (("ATEN,TRITON", 2), ("ATEN", len(library_kernels("addmm")) - 1)):
        handler = make_handler(top_k_configs=1)
        biases = (Tensor((2048,)), matrix(512, 2048))
        told = lower(twice, *biases, *MM, handler=handler, max_autotune_gemm_backends=backends)
        assert [len(gemm.choices) for gemm in told.autotuned] == [1, 1]
        assert counts(handler, "decisions") == (decisions,)


def test_two_library_kernels_and_no_template_are_decided_too(make_handler):
    bias = Tensor((512, 2048), (0, 1))
    handler = make_handler(top_k_configs=1)
    left = lower(torch.addmm, bias, *MM, handler=handler, max_autotune_gemm_backends="ATEN").choices
    assert len(left) == 1
    assert counts(handler, "decisions", "model_selections", "configs_filtered") == (1, 1, 1)


def test_an_addmm_is_one_decision_where_somebody_cleared_inductor_s_preprocessing(make_handler):
    handler = make_handler(top_k_configs=1)
    lower(torch.addmm, *ADDMM, handler=handler)
    get_algorithm_selector_cache().preprocessing_fns.clear()
    get_algorithm_selector_cache()._register_default_preprocessing_fns()
    assert len(lower(torch.addmm, *ADDMM, handler=handler).choices) == 1


def test_the_threshold_leaves_only_what_is_near_the_best(make_handler):
    left = {}
    for threshold in (1.0, 1.6, 1.7, 3.0):
        # A step in one of block, stages or warps takes e**0.5 = 1.65 times the time.
        handler = make_handler(top_k_configs=64, performance_threshold=threshold, per_unit=0.5, library=9.0)
        lower(torch.mm, *MM, handler=handler, **TRITON_ONLY)
        picks = last_decision().picks
        left[threshold] = len(picks)
        assert max(pick.predicted_us for pick in picks) <= threshold * picks[0].predicted_us * 1.0001
    assert left[1.0] == left[1.6] == 2  # the plain template and the persistent one
    assert 10 < left[1.7] < left[3.0] == 64


def test_a_threshold_of_one_leaves_aten_beside_the_best(make_handler):
    handler = make_handler(top_k_configs=3, performance_threshold=1.0, persistent=1.0)
    left = lower(torch.mm, *MM, handler=handler).choices
    assert [type(choice) for choice in left] == [TritonGEMMConfig, AtenChoice]


def test_more_doubt_leaves_more_choices(make_handler):
    left = []
    for sigma in (0.0004, 0.05, 0.2, 0.8):
        handler = make_handler(top_k_configs="auto", sigma=sigma, per_unit=0.1, library=1.0)
        left.append(len(lower(torch.mm, *MM, handler=handler).choices))
    assert left == sorted(left)
    assert (left[0], left[-1]) == (1, 8)
    assert len(set(left)) >= 3


def test_a_wider_bound_of_the_regret_leaves_fewer_choices(make_handler):
    handler = make_handler(top_k_configs="auto", sigma=0.2, per_unit=0.1, library=1.0)
    left = []
    for bound in (0.3, 0.02):
        handler.policy = Policy("auto", 1000.0, bound)
        left.append(len(lower(torch.mm, *MM, handler=handler).choices))
    assert left[0] < left[1]
    assert "regret below 0.02" in last_decision().policy


def test_near_equal_choices_are_of_different_tiles(make_handler):
    likes = {"log_block_m": 6.0, "log_block_n": 6.0, "log_block_k": 6.0}  # whatever the stages and warps
    handler = make_handler(likes=likes, per_unit=0.01, persistent=5.0, library=9.0, top_k_configs=4)
    left = lower(torch.mm, *MM, handler=handler, **TRITON_ONLY).choices
    assert len({(choice.block_m, choice.block_n, choice.block_k) for choice in left}) == 4
    handler = make_handler(likes=likes, per_unit=1.0, persistent=5.0, library=9.0, top_k_configs=4)
    left = lower(torch.mm, *MM, handler=handler, **TRITON_ONLY).choices
    assert {(choice.block_m, choice.block_n, choice.block_k) for choice in left} == {(64, 64, 64)}


def test_equal_predictions_are_taken_in_inductor_s_order(make_handler):
    with lowered(MMShape.of("mm", 512, 2048, 1024), "EXHAUSTIVE", H200) as candidates:
        offered = [candidate.choice for candidate in candidates]
    for settings, kind in (({}, AtenChoice), (TRITON_ONLY, TritonGEMMConfig)):
        handlers = [make_handler(likes={}, library=0.0, top_k_configs=wanted) for wanted in (1, 1, 4, 4)]
        left = [lower(torch.mm, *MM, handler=handler, **settings).choices for handler in handlers]
        assert left[0] == left[1] == (next(choice for choice in offered if isinstance(choice, kind)),)
        assert left[2] == left[3]
        assert list(left[2]) == sorted(left[2], key=offered.index)


def test_a_decision_is_remembered_for_the_same_problem_policy_and_device(make_handler):
    handler = make_handler(top_k_configs=2, hardware=(H200, A100))
    first = lower(torch.mm, *MM, handler=handler).choices
    assert not last_decision().remembered

    again = lower(torch.mm, *MM, handler=handler).choices
    assert last_decision().remembered
    assert again == first
    assert "(remembered)" in str(last_decision())

    others: list[Callable[[], Any]] = [
        partial(lower, torch.mm, matrix(512, 1024), matrix(1024, 2048, "T"), handler=handler),
        partial(lower, torch.mm, matrix(512, 1024), matrix(1024, 2040), handler=handler),
        partial(lower, torch.addmm, *ADDMM, handler=handler),
        partial(lower, torch.mm, *MM, handler=handler, hardware=A100),
        partial(lower, torch.mm, *MM, handler=handler, max_autotune_gemm_backends="TRITON"),
        partial(lower, torch.mm, *MM, handler=handler, **dict.fromkeys(TMA, False)),
    ]
    for other in others:
        other()
        assert not last_decision().remembered
    for policy in (Policy(1), Policy("auto", 1000.0), Policy(2, 1000.0, 0.5)):
        handler.policy = policy
        lower(torch.mm, *MM, handler=handler)
        assert not last_decision().remembered
    handler.policy = Policy(2, 1000.0)
    lower(torch.mm, *MM, handler=handler)
    assert last_decision().remembered


def test_a_remembered_choice_is_made_anew_for_the_problem_at_hand(make_handler):
    handler = make_handler(top_k_configs=1, persistent=-1.0)
    for layout, a_row_major in (("N", True), ("T", False), ("N", True)):
        (only,) = lower(torch.mm, matrix(512, 1024, layout), matrix(1024, 2048), handler=handler).choices
        assert isinstance(only, PersistentTMAConfig)
        assert only.a_row_major is a_row_major


class InAnotherOrder(DiodeInductorChoices):
    """As in a torch that asks for its templates in another order."""

    last_first = False

    def get_template_configs(self, inputs, templates, *rest, **keywords):
        in_order = [*templates[-1:], *templates[:-1]] if self.last_first else templates
        return super().get_template_configs(inputs, in_order, *rest, **keywords)


def test_a_remembered_choice_is_the_same_among_other_templates(tmp_path):
    """The model knows nothing of the last template, which then comes before what it does know."""
    path = write_model(tmp_path / "model.safetensors", likes=SQUARE_64, library=1.5, templates=("aten", "triton::mm"))
    handler = InAnotherOrder(path, top_k_configs=1, enable_fallback=False)
    first = lower(torch.mm, *MM, handler=handler).choices
    assert isinstance(first[0], TritonGEMMConfig)
    handler.last_first = True
    assert lower(torch.mm, *MM, handler=handler).choices == first


def test_the_latest_decision_explains_itself(make_handler):
    handler = make_handler(top_k_configs=2, name="my model", version="7", persistent=1.0)
    lower(torch.mm, *MM, handler=handler)
    told = str(last_decision())
    candidates = 2059 if PRUNES_BY_SHARED_MEMORY else 2401
    assert told.startswith(f"mm 512x2048x1024 bfloat16 NN on NVIDIA H200, top 2 within 1000: 2 of {candidates} choices")
    assert "by my model 7 (" in told
    best, second = told.splitlines()[1:]
    assert best.startswith("  mm 64x64x64 stages=3 warps=4 group=8: ")
    assert second.startswith("  aten mm: ")
    assert [pick.sigma for pick in last_decision().picks] == pytest.approx([0.05, 0.05], rel=1e-3)
    fast, slow = (pick.predicted_us for pick in last_decision().picks)
    assert slow == pytest.approx(fast * 2.718281828**1.5, rel=1e-3)


def test_without_benchmarking_a_library_kernel_pays_for_what_it_cannot_fuse(make_handler):
    def best(function, wanted, library):
        lower(function, *MM, handler=make_handler(library=library, top_k_configs=wanted))
        return type(last_decision().picks[0].choice)

    def with_relu(a, b):
        return torch.relu(torch.mm(a, b))

    # The template is predicted to take e times the least time, 3.2 us; writing and reading the result, 1.9 us.
    assert best(torch.mm, 1, -0.1) is AtenChoice
    assert best(lambda a, b: torch.mm(a, b).sum(), 1, -0.1) is AtenChoice
    assert best(with_relu, 1, -0.1) is TritonGEMMConfig
    assert best(with_relu, 1, -0.5) is AtenChoice
    assert best(with_relu, 2, -0.1) is AtenChoice


def test_what_a_policy_cannot_be_is_refused(tmp_path):
    path = write_model(tmp_path / "model.safetensors")
    for wrong in (0, -1, True, 2.0, "best"):
        with pytest.raises(UsageError, match="top_k_configs"):
            DiodeInductorChoices(path, top_k_configs=wrong)
    for wrong in (0.99, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="performance_threshold"):
            DiodeInductorChoices(path, performance_threshold=wrong)


def test_a_batch_is_decided_by_its_template(make_handler):
    handler = make_handler(top_k_configs=1)
    (only,) = lower(torch.bmm, batch(8, 256, 128), batch(8, 128, 512), handler=handler).choices
    assert only.template == "triton::bmm"
    assert counts(handler, "total_calls", "decisions") == (1, 1)
