"""Sizes of nothing, of one, and sizes that are symbols."""

from __future__ import annotations

import pytest
import torch
from tests.integration.by_torch import library_kernels
from tests.integration.choices.lab import H200, TMA, Tensor, batch, lower, matrix
from torch._inductor.choices import InductorChoices
from torch._inductor.virtualized import V

import diode
from diode.integration.decision import last_decision
from diode.integration.described import described_gpu
from diode.types import AtenChoice, PersistentTMAConfig, TritonGEMMConfig

NO_TMA = dict.fromkeys(TMA, False)
EMPTY = {
    "mm of no rows": (torch.mm, matrix(0, 64), matrix(64, 32)),
    "mm of no columns": (torch.mm, matrix(16, 64), matrix(64, 0)),
    "mm of no K": (torch.mm, matrix(16, 0), matrix(0, 32)),
    "addmm of no rows": (torch.addmm, Tensor((32,)), matrix(0, 64), matrix(64, 32)),
    "addmm of no K": (torch.addmm, Tensor((32,)), matrix(16, 0), matrix(0, 32)),
    "bmm of no batch": (torch.bmm, batch(0, 16, 64), batch(0, 64, 32)),
    "bmm of no rows": (torch.bmm, batch(2, 0, 64), batch(2, 64, 32)),
    "bmm of no K": (torch.bmm, batch(2, 16, 0), batch(2, 0, 32)),
    "baddbmm of no rows": (torch.baddbmm, batch(2, 0, 32), batch(2, 0, 64), batch(2, 64, 32)),
}
ONES = {
    "mm of one row": (torch.mm, matrix(1, 64), matrix(64, 32)),
    "mm of one column": (torch.mm, matrix(16, 64), matrix(64, 1)),
    "mm of K = 1": (torch.mm, matrix(16, 1), matrix(1, 32)),
    "mm of ones": (torch.mm, matrix(1, 1), matrix(1, 1)),
    "addmm of one row": (torch.addmm, Tensor((32,)), matrix(1, 64), matrix(64, 32)),
    "bmm of one": (torch.bmm, batch(1, 1, 64), batch(1, 64, 1)),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("wanted", [1, 3])
def test_a_library_is_asked_for_what_is_empty_and_nothing_is_benchmarked(make_handler, name, wanted):
    handler = make_handler(top_k_configs=wanted, library=9.0, performance_threshold=1.1)
    function, *arguments = EMPTY[name]
    left = lower(function, *arguments, handler=handler).choices
    # Torch looks for both library kernels of an addmm where only the sum is empty.
    several = len(library_kernels("addmm")) if name == "addmm of no K" else 1
    assert len(left) == min(wanted, several)
    assert {type(choice) for choice in left} == {AtenChoice}


@pytest.mark.parametrize("name", ONES)
def test_sizes_of_one_are_chosen_for_as_any_other(make_handler, name):
    function, *arguments = ONES[name]
    for wanted in (1, 2):
        handler = make_handler(top_k_configs=wanted, library=9.0)
        left = lower(function, *arguments, handler=handler).choices
        assert len(left) == wanted
        assert isinstance(left[0] if wanted == 1 else left[-1], TritonGEMMConfig | AtenChoice)
        assert handler.get_stats()["model_selections"] == 1


def test_a_template_without_library_is_torch_s_where_nothing_is_to_do(make_handler, warnings):
    handler = make_handler(enable_fallback=True)
    settings = {"max_autotune_gemm_backends": "TRITON"}
    call = EMPTY["bmm of no K"]
    assert lower(*call, handler=handler, **settings) == lower(*call, handler=InductorChoices(), **settings)
    assert handler.get_stats()["fallback_empty_result"] == 1
    assert "add ATEN to max_autotune_gemm_backends" in warnings()[0]


def of_steps(x, w):
    """K is 64 times a symbol, and Inductor can know it."""
    return torch.mm(x.reshape(x.shape[0], -1), w.reshape(-1, w.shape[2]))


def sizes():
    return [(problem.M, problem.N, problem.K) for problem in last_decision().sizes]


def test_a_range_of_sizes_is_chosen_for_around_the_hint_and_within_bounds(make_handler):
    free = matrix(512, 1024, dynamic=(0,))
    bounded = matrix(512, 1024, dynamic=(0,), bounds=(300, 700))
    seen = []
    for x in (free, bounded, matrix(512, 1024)):
        lower(torch.mm, x, matrix(1024, 2048), handler=make_handler(), **NO_TMA)
        seen.append(sizes())
    assert [m for m, _, _ in seen[0]] == [512, 128, 256, 1024, 2048]
    assert [m for m, _, _ in seen[1]] == [512, 300, 700]
    assert seen[2] == [(512, 2048, 1024)]
    assert {(n, k) for one in seen for _, n, k in one} == {(2048, 1024)}


def test_one_symbol_in_several_places_is_one_size(make_handler):
    x, w = matrix(512, 1024, dynamic=(0, 1)), matrix(1024, 2048, dynamic=(0,))
    lower(torch.mm, x, w, handler=make_handler(), **NO_TMA)
    assert sizes() == [(m, 2048, 2 * m) for m in (512, 128, 256, 1024, 2048)]


def test_what_is_best_for_the_range_is_not_always_what_is_best_for_the_hint(make_handler):
    """Tiles of 64 rows are full at the hint, and mostly empty at smaller sizes."""
    likes = {"log_block_m": 6.0, "fill_m": 1.0}
    for x, kind in ((matrix(64, 1024), TritonGEMMConfig), (matrix(64, 1024, dynamic=(0,)), AtenChoice)):
        handler = make_handler(likes=likes, per_unit=4.0, library=0.3, top_k_configs=1)
        (only,) = lower(torch.mm, x, matrix(1024, 2048), handler=handler, **NO_TMA).choices
        assert isinstance(only, kind)


@pytest.mark.parametrize(
    ("function", "arguments", "even"),
    [
        (torch.mm, (matrix(512, 1024, dynamic=(1,)), matrix(1024, 2048, dynamic=(0,))), False),
        (of_steps, (Tensor((512, 16, 64), dynamic=(1,)), Tensor((16, 64, 2048), dynamic=(0,))), True),
        (torch.mm, (matrix(512, 1024, dynamic=(0,)), matrix(1024, 2048)), True),
        (torch.mm, (matrix(512, 1027, dynamic=(0,)), matrix(1027, 2048)), False),
    ],
)
def test_k_is_even_only_where_that_is_known_for_every_size(make_handler, function, arguments, even):
    handler = make_handler(top_k_configs=1, library=9.0)
    (only,) = lower(function, *arguments, handler=handler, decompose=True, **NO_TMA).choices
    assert (only.block_k, only.even_k) == (64, even)


DYNAMIC = {
    "mm": (torch.mm, matrix(512, 1024, dynamic=(0,)), matrix(1024, 2048)),
    "deep": (torch.mm, matrix(512, 1024, dynamic=(1,)), matrix(1024, 2048, dynamic=(0,))),
    "addmm": (torch.addmm, Tensor((2048,)), matrix(512, 1024, dynamic=(0,)), matrix(1024, 2048)),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_graph_holds_for_as_many_sizes_with_diode_as_without(model, name):
    """Inductor would guard on every size for persistent TMA, which diode switches on."""
    function, *arguments = DYNAMIC[name]
    without = lower(function, *arguments, handler=InductorChoices(), **NO_TMA)
    diode.enable()
    handler = V.choices
    switched_on = dict.fromkeys(TMA, torch._inductor.config.triton.enable_persistent_tma_matmul)
    told = lower(function, *arguments, handler=handler, **switched_on)
    assert told.guards == without.guards
    assert len(last_decision().sizes) == 5
    assert PersistentTMAConfig not in {type(choice) for choice in told.choices}
    lower(torch.mm, matrix(512, 1024), matrix(1024, 2048), handler=handler, **switched_on)
    with described_gpu(H200):
        assert last_decision().candidates > 2000


def test_reserved_multiprocessors_are_left_out_of_a_persistent_kernel_each_time(make_handler):
    handler = make_handler(top_k_configs=1, persistent=-1.0)
    used = []
    for reserved in (None, 32, None):
        torch._C._set_sm_carveout_experimental(reserved)
        try:
            (only,) = lower(torch.mm, matrix(512, 1024), matrix(1024, 2048), handler=handler).choices
        finally:
            torch._C._set_sm_carveout_experimental(None)
        used.append(only.num_sms)
    assert used == [132, 100, 132]
