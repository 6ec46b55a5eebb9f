"""What torch decides by rule, or was told by the user, stays as it is."""

from __future__ import annotations

import pytest
import torch
from tests.integration.by_torch import AUTOHEURISTIC_OF_MM, MODES_WITHOUT_TIMING, torch_may_pad
from tests.integration.choices.lab import H100, H200, TMA, Tensor, batch, lower, matrix
from tests.integration.choices.models import write_model
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.exc import LoweringException
from torch._inductor.fx_passes.pad_mm import mm_replace
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode

import diode
from diode.integration.choices import DiodeInductorChoices
from diode.integration.decision import last_decision
from diode.integration.described import described_gpu
from diode.types import AtenChoice, TritonGEMMConfig

MM = (matrix(512, 1024), matrix(1024, 2048))
ADDMM = (Tensor((2048,)), *MM)
RAGGED = (matrix(512, 1027), matrix(1027, 2048))
BMM = (batch(4, 64, 128), batch(4, 128, 96))
CALLS = {
    "mm": (torch.mm, *MM),
    "addmm": (torch.addmm, *ADDMM),
    "bmm": (torch.bmm, *BMM),
    "baddbmm": (torch.baddbmm, batch(4, 64, 96), *BMM),
}
PLAIN = {"max_autotune": False}


def touched(handler):
    return {name: count for name, count in handler.get_stats().items() if count and name != "total_calls"}


@pytest.mark.parametrize("name", CALLS)
def test_a_plain_compile_looks_for_no_model_and_changes_no_choice(tmp_path, warnings, name):
    handler = DiodeInductorChoices(tmp_path / "there is none.safetensors", enable_fallback=False)
    own = lower(*CALLS[name], handler=InductorChoices(), **PLAIN)
    assert lower(*CALLS[name], handler=handler, **PLAIN) == own
    assert touched(handler) == {}
    assert handler.get_stats()["total_calls"] == 1
    assert not warnings()


def test_max_autotune_of_gemms_alone_is_enough(make_handler):
    handler = make_handler(top_k_configs=1)
    assert len(lower(torch.mm, *MM, handler=handler, max_autotune_gemm=True, **PLAIN).choices) == 1
    assert handler.get_stats()["decisions"] == 1


@pytest.mark.parametrize("mode", MODES_WITHOUT_TIMING)
@pytest.mark.parametrize("name", CALLS)
def test_where_torch_must_not_depend_on_what_is_fastest_diode_stands_aside(make_handler, mode, name):
    for wanted in (1, 3):
        handler = make_handler(top_k_configs=wanted)
        own = lower(*CALLS[name], handler=InductorChoices(), **{mode: True})
        assert lower(*CALLS[name], handler=handler, **{mode: True}) == own
        assert touched(handler) == {}


def test_deterministic_algorithms_get_the_same_choice_each_time(make_handler):
    torch.use_deterministic_algorithms(True)
    try:
        chosen = {lower(torch.mm, *MM, handler=make_handler(top_k_configs=k)).choices for k in (1, 1)}
        own = lower(torch.mm, *MM, handler=InductorChoices()).choices
        stands_aside = config.deterministic  # newer torch tells Inductor of it
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(chosen) == 1
    assert (chosen == {own}) is stands_aside


@pytest.mark.parametrize("backends", ["", "CUTLASS", "CPP"])
@pytest.mark.parametrize("name", CALLS)
def test_without_aten_and_triton_torch_itself_says_that_there_is_no_choice(make_handler, name, backends):
    for handler in (InductorChoices(), make_handler(top_k_configs=1), make_handler(top_k_configs=3)):
        with pytest.raises(LoweringException, match="NoValidChoicesError: No choices to select"):
            lower(*CALLS[name], handler=handler, max_autotune_gemm_backends=backends)


def test_torch_s_own_heuristic_is_left_to_choose_where_it_was_asked_for(make_handler, monkeypatch, warnings):
    monkeypatch.setenv("TORCHINDUCTOR_AUTOHEURISTIC_USE", "mm")
    how = {"hardware": H100, **AUTOHEURISTIC_OF_MM}
    own = lower(torch.mm, *MM, handler=InductorChoices(), **how)
    for wanted in (1, 3):
        handler = make_handler(top_k_configs=wanted, hardware=(H100,))
        assert lower(torch.mm, *MM, handler=handler, **how) == own
        assert touched(handler) == {}
        lower(torch.addmm, *ADDMM, handler=handler, **how)
        assert handler.get_stats()["decisions"] == 1
    assert not warnings()


def added_mm(a, b, *, out=None):
    return torch.mm(a, b, out=out)


def test_what_others_add_behind_the_hook_competes_with_what_was_chosen(make_handler):
    handler = make_handler(top_k_configs=1, library=9.0)
    chosen, added = lower(torch.mm, *MM, handler=handler, external_matmul=[added_mm]).choices
    assert isinstance(chosen, TritonGEMMConfig)
    assert added == AtenChoice("added_mm")


def test_a_gemm_that_torch_padded_is_chosen_for_as_it_was_padded(make_handler):
    for function, k in ((mm_replace, 1032), (torch.mm, 1027)):
        (only,) = lower(function, *RAGGED, handler=make_handler(top_k_configs=1, library=9.0)).choices
        assert [problem.K for problem in last_decision().sizes] == [k]
        assert not only.even_k


def test_whether_torch_may_pad_and_benchmark_for_it_stays_with_the_user(model):
    def may_pad(**settings):
        with described_gpu(H200), config.patch(settings), FakeTensorMode():
            a, b = (torch.empty(sizes, dtype=torch.bfloat16, device="cuda:0") for sizes in ((4096, 4095), (4095, 4096)))
            return torch_may_pad(a, b)

    for _ in range(2):
        assert may_pad()
        assert not may_pad(shape_padding=False)
        diode.enable()


def test_no_option_is_changed_but_those_that_are_told(model):
    before = config.get_config_copy()
    told = diode.enable()["matmul"].configs
    after = config.get_config_copy()
    changed = {name for name in before if before[name] is not after[name] and before[name] != after[name]}
    assert changed - {"inductor_choices_class"} == set(told)
    diode.disable()
    assert config.get_config_copy() == before


def test_templates_that_diode_switched_on_are_not_there_where_it_falls_back(tmp_path, monkeypatch):
    def scaled(a, b, one, other):
        return torch._scaled_mm(a, b, one, other, out_dtype=torch.bfloat16)

    fp8 = torch.float8_e4m3fn
    scales = [Tensor((), None, torch.float32)] * 2
    scaled_mm = (scaled, matrix(512, 1024, dtype=fp8), matrix(1024, 2048, "T", dtype=fp8), *scales)
    off = dict.fromkeys(TMA, False)
    own = [lower(*call, handler=InductorChoices(), **off) for call in ((torch.mm, *MM), scaled_mm)]
    path = write_model(
        tmp_path / "knows_bmm.safetensors", ops=("bmm",), templates=("aten", "triton::mm_persistent_tma")
    )
    monkeypatch.setenv("DIODE_MODEL_PATH", str(path))
    assert diode.enable()["matmul"].configs == tuple(TMA)
    on = dict.fromkeys(TMA, config.triton.enable_persistent_tma_matmul)
    handler = V.choices
    assert [lower(*call, handler=handler, **on) for call in ((torch.mm, *MM), scaled_mm)] == own
    assert diode.get_stats()["fallback_unsupported_op"] == 2
