"""What passes through the hook, or near it, and is no GEMM that a model knows: Inductor's own choices, and no error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import sympy
import torch
from tests.integration.by_torch import BMM_INTO_ANOTHER_TYPE_HAS_TEMPLATES, library_kernels
from tests.integration.choices.lab import H200, Tensor, batch, lower, matrix
from torch._inductor.choices import InductorChoices
from torch._inductor.fx_passes.post_grad import post_grad_passes
from torch._inductor.virtualized import V

from diode.integration.described import described_gpu

F16, F32, F64, FP8 = torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn


def scaled(a, b, one, other):
    return torch._scaled_mm(a, b, one, other, out_dtype=torch.bfloat16)


def sum_of_two(a, b, c, d):
    return torch.mm(a, b) + torch.mm(c, d)


def wide_bmm(a, b):
    return torch.bmm(a, b, out_dtype=F32)


def wide_mm(a, b):
    return torch.mm(a, b, out_dtype=F32)


def convolved(x, weight):
    return torch.nn.functional.conv2d(x, weight, padding=1)


def pointwise_convolved(x, weight):
    return torch.nn.functional.conv2d(x, weight)


@dataclass(frozen=True)
class Op:
    function: Callable[..., Any]
    arguments: tuple[Tensor, ...]
    fallbacks: int
    """How many are counted: none where there is nothing to choose for us, or where the hook is not asked at all."""
    how: dict[str, Any] = field(default_factory=dict)


SCALES = (Tensor((), None, F32),) * 2
OPS = {
    "scaled_mm": Op(scaled, (matrix(512, 1024, dtype=FP8), matrix(1024, 2048, "T", FP8), *SCALES), 1),
    "mm_plus_mm": Op(
        sum_of_two,
        (matrix(512, 1024), matrix(1024, 2048)) * 2,
        1,
        {"prepare": lambda graph: post_grad_passes(graph, True)},
    ),
    "int_mm": Op(torch._int_mm, (matrix(512, 1024, dtype=torch.int8), matrix(1024, 2048, dtype=torch.int8)), 1),
    "bmm into another type": Op(
        wide_bmm, (batch(4, 512, 1024), batch(4, 1024, 2048)), int(BMM_INTO_ANOTHER_TYPE_HAS_TEMPLATES)
    ),
    "mm into another type": Op(wide_mm, (matrix(512, 1024), matrix(1024, 2048)), 0),
    "float64 mm": Op(torch.mm, (matrix(512, 1024, dtype=F64), matrix(1024, 2048, dtype=F64)), 0),
    "float64 bmm": Op(torch.bmm, (batch(4, 64, 128, dtype=F64), batch(4, 128, 64, dtype=F64)), 0),
    "float64 addmm": Op(
        torch.addmm,
        (Tensor((2048,), None, F64), matrix(512, 1024, dtype=F64), matrix(1024, 2048, dtype=F64)),
        len(library_kernels("addmm")) - 1,
    ),
    "whole numbers": Op(torch.mm, (matrix(64, 64, dtype=torch.int64), matrix(64, 64, dtype=torch.int64)), 0),
    "convolution": Op(convolved, (Tensor((8, 64, 32, 32)), Tensor((64, 64, 3, 3))), 0),
    "convolution by a matrix": Op(pointwise_convolved, (Tensor((8, 64, 32, 32)), Tensor((64, 64, 1, 1))), 0),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("wanted", [1, 3])
def test_an_op_that_no_model_knows_gets_inductor_s_own_choices(make_handler, warnings, name, wanted):
    op = OPS[name]
    handler = make_handler(top_k_configs=wanted, library=9.0, enable_fallback=True)
    own = lower(op.function, *op.arguments, handler=InductorChoices(), **op.how)
    assert lower(op.function, *op.arguments, handler=handler, **op.how) == own
    stats = handler.get_stats()
    assert (stats["decisions"], stats["model_selections"]) == (op.fallbacks, 0)
    assert stats["fallback_unsupported_op"] == op.fallbacks
    assert len(warnings()) == op.fallbacks


@pytest.mark.parametrize("name", OPS)
def test_in_a_plain_compile_that_is_not_even_counted(make_handler, warnings, name):
    op = OPS[name]
    handler = make_handler(enable_fallback=True)
    own = lower(op.function, *op.arguments, handler=InductorChoices(), max_autotune=False, **op.how)
    assert lower(op.function, *op.arguments, handler=handler, max_autotune=False, **op.how) == own
    assert handler.get_stats()["decisions"] == 0
    assert not warnings()


def test_complex_numbers_do_not_reach_the_hook(make_handler):
    handler = make_handler(top_k_configs=1)
    a, b = torch.randn(8, 16, dtype=torch.complex64), torch.randn(16, 4, dtype=torch.complex64)
    with V.set_choices_handler(handler):
        found = torch.compile(torch.mm, options={"max_autotune": True})(a, b)
    torch.testing.assert_close(found, a @ b)
    assert handler.get_stats()["decisions"] == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, F32])
def test_kernels_of_attention_and_convolution_are_inductor_s(make_handler, dtype):
    ours, own = make_handler(), InductorChoices()
    facts = {"head_dim": 64, "seq_len": sympy.Integer(1024), "dtype": dtype}
    with described_gpu(H200):
        for name in ("get_flex_attention_fwd_configs", "get_flex_attention_bwd_configs", "get_flex_decode_configs"):
            asked = inspect.signature(getattr(InductorChoices, name)).parameters
            told = {fact: value for fact, value in facts.items() if fact in asked}
            assert getattr(ours, name)(**told) == getattr(own, name)(**told) != []
        assert str(ours.get_conv_configs().args) == str(own.get_conv_configs().args)
    assert ours.get_stats()["total_calls"] == 0
