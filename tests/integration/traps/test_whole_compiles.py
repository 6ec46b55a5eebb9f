"""Compiles that run to their end on any machine, and whose code shows what a model chose.

A Linear layer whose bias was expanded has two library kernels, and a model for this machine's CPU says which: nothing
is benchmarked, and no compiler called.
"""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tests.integration.by_torch import ROW_OF_BIAS_HAS_TWO_KERNELS, THREADS_COMPILE_AT_ONCE
from tests.integration.choices.models import write_model
from tests.integration.registration.conftest import LIBRARY_ONLY
from torch._dynamo.utils import counters
from torch._inductor import compile_fx, config
from torch._inductor.select_algorithm import add_feedback_saver, clear_feedback_savers
from torch._inductor.utils import run_and_get_code

import diode
from diode.integration.device import current_hardware
from diode.integration.inductor_integration import install_diode_choices

VECTOR, MATRIX = "bias_addmm", "addmm"


def linear(bias, x, weight):
    return torch.addmm(bias.expand(x.shape[0], bias.shape[0]), x, weight)


def arguments(rows=16):
    return torch.randn(48), torch.randn(rows, 32), torch.randn(32, 48)


def called(code):
    return re.findall(r"extern_kernels\.(\w+)\(", "\n".join(code))


def compiled(function=linear, *given, **how):
    """What was called, and what torch counted; a new compile, if its caches have none."""
    torch._dynamo.reset()
    counters.clear()
    given = given or arguments()
    found, code = run_and_get_code(torch.compile(function, **({"options": LIBRARY_ONLY} | how)), *given)
    torch.testing.assert_close(found, function(*given))
    return called(code)


@pytest.fixture
def prefer(tmp_path):
    """Has a model choose that prefers one of the kernels; `top_k_configs` is 1 unless it is told otherwise."""

    def install(kernel, **policy):
        path = tmp_path / f"prefers_{kernel}.safetensors"
        write_model(path, hardware=(current_hardware("cpu"),), takes_bias=-1.0 if kernel == VECTOR else 1.0)
        return install_diode_choices(path, **({"top_k_configs": 1, "enable_fallback": False} | policy))

    return install


@pytest.mark.parametrize("kernel", [VECTOR, MATRIX])
def test_what_the_model_chose_is_what_runs_and_nothing_was_benchmarked(prefer, kernel):
    handler = prefer(kernel)
    assert compiled(fullgraph=True) == [kernel]
    stats = handler.get_stats()
    assert (stats["decisions"], stats["model_selections"]) == (1, 1)
    assert counters["inductor"]["select_algorithm_autotune"] == 0
    assert counters["inductor"]["pad_mm_bench"] == 0


def test_several_choices_are_benchmarked_by_torch(prefer):
    prefer(VECTOR, top_k_configs=2, performance_threshold=1000.0)
    assert compiled()[0] in (VECTOR, MATRIX)
    assert counters["inductor"]["select_algorithm_autotune"] == 1


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_torch_s_modes_of_autotuning(prefer, mode):
    prefer(VECTOR)
    with config.patch(max_autotune_gemm_backends="ATEN"):
        assert compiled(options=None, mode=mode) == [VECTOR]
    assert counters["inductor"]["select_algorithm_autotune"] == 0


def test_a_mode_without_autotuning_is_not_diode_s(prefer):
    handler = prefer(VECTOR)
    assert compiled(options=None, mode="default") == [MATRIX]
    assert handler.get_stats()["decisions"] == 0


def test_torch_s_caches_serve_what_was_chosen_until_model_or_policy_change(prefer):
    def hits():
        return counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"]

    prefer(VECTOR)
    assert compiled() == [VECTOR]
    assert hits() == (0, 0)
    handler = prefer(VECTOR)
    compiled()
    assert hits() == (1, 1)
    assert handler.get_stats()["decisions"] == 0
    prefer(MATRIX)
    assert compiled() == [MATRIX]
    assert hits() == (0, 0)
    prefer(MATRIX, performance_threshold=1.2)
    compiled()
    assert hits() == (0, 0)
    prefer(VECTOR)
    compiled()
    assert hits() == (1, 1)
    diode.disable()
    compiled()
    assert hits() == (0, 0)


class LinearInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias, weight):
        ctx.save_for_backward(bias, weight)
        return linear(bias, x, weight)

    @staticmethod
    def backward(ctx, gradient):
        return linear(ctx.saved_tensors[0], gradient, ctx.saved_tensors[1]), None, None


def test_a_backward_graph_is_decided_in_the_thread_that_compiles_it(prefer):
    handler = prefer(VECTOR)
    bias, weight = torch.randn(48), torch.randn(48, 48)
    x = torch.randn(16, 48, requires_grad=True)
    torch._dynamo.reset()
    found = torch.compile(lambda x: LinearInBackward.apply(x, bias, weight), options=LIBRARY_ONLY)(x)
    assert handler.get_stats()["decisions"] == 1
    thread = threading.Thread(target=found.backward, args=[torch.ones(16, 48)])
    thread.start()
    thread.join()
    assert handler.get_stats()["model_selections"] == 2
    torch.testing.assert_close(x.grad, linear(bias, torch.ones(16, 48), weight))


def test_threads_that_compile_at_once_decide_each_for_itself(prefer):
    handler = prefer(VECTOR)
    at_once = threading.Barrier(4)
    torch._dynamo.reset()

    def work(rows):
        given = arguments(rows)
        at_once.wait()
        compiled = torch.compile(lambda *given: linear(*given), options=LIBRARY_ONLY, dynamic=False)
        with turn:
            torch.testing.assert_close(compiled(*given), linear(*given))

    turn = nullcontext() if THREADS_COMPILE_AT_ONCE else threading.Lock()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, (16, 24, 32, 40)))
    stats = handler.get_stats()
    assert (stats["decisions"], stats["model_selections"], stats["fallback_error"]) == (4, 4, 0)


@pytest.mark.parametrize("kernel", [VECTOR, MATRIX])
def test_a_compile_in_another_process_is_chosen_by_the_model_there(prefer, kernel):
    handler = prefer(kernel)
    torch._dynamo.reset()
    mode = compile_fx.fx_compile_mode
    compile_fx.fx_compile_mode = compile_fx.FxCompileMode.SUBPROCESS
    try:
        given = arguments()
        torch.testing.assert_close(torch.compile(linear, options=LIBRARY_ONLY)(*given), linear(*given))
    finally:
        compile_fx.fx_compile_mode = mode
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert called(path.read_text() for path in folder.rglob("*.py")) == [kernel]
    assert handler.get_stats()["total_calls"] == 0


def test_the_same_matrices_twice_in_a_graph_are_two_decisions(prefer):
    def twice(bias, x, weight, other):
        return linear(bias, x, weight), linear(other, x, weight)

    handler = prefer(VECTOR)
    assert compiled(twice, *arguments(), torch.randn(48)) == [VECTOR, VECTOR]
    assert handler.get_stats()["decisions"] == 2


def test_dynamic_sizes_run_with_one_choice_for_all(prefer):
    handler = prefer(VECTOR)
    torch._dynamo.reset()
    function = torch.compile(linear, options=LIBRARY_ONLY, dynamic=True)
    for rows in (16, 33, 50):
        given = arguments(rows)
        torch.testing.assert_close(function(*given), linear(*given))
    assert handler.get_stats()["decisions"] == 1


def test_in_deterministic_mode_torch_takes_the_first_library_kernel(prefer):
    first, other = (VECTOR, MATRIX) if ROW_OF_BIAS_HAS_TWO_KERNELS else (MATRIX, VECTOR)
    handler = prefer(other)
    assert compiled(options=LIBRARY_ONLY | {"deterministic": True}) == [first]
    assert handler.get_stats()["decisions"] == 0


def test_somebody_s_feedback_saver_hears_of_no_single_choice(prefer):
    heard = []
    add_feedback_saver(lambda timings, name, *rest: heard.append((name, len(timings))))
    try:
        prefer(VECTOR)
        compiled()
        prefer(VECTOR, top_k_configs=2, performance_threshold=1000.0)
        compiled()
    finally:
        clear_feedback_savers()
    assert heard == [("addmm", 2)]
