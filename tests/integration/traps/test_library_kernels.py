"""Choices that are no tiles: library kernels that only Python can call, and products in parts of K."""

from __future__ import annotations

import pytest
import torch
from tests.integration.choices.lab import Tensor, graph_of, lower, matrix
from tests.integration.traps.whole import generated
from torch._inductor.kernel.mm import aten_addmm, aten_bias_addmm
from torch._inductor.kernel_inputs import MMKernelInputs

from diode.types import AtenChoice, DecomposeKConfig

LINEAR = (Tensor((512, 2048), (0, 1)), matrix(512, 1024), matrix(1024, 2048))
DEEP = (matrix(32, 65536), matrix(65536, 48))
KNOWS_PARTS = {"templates": ("aten", "decompose_k", "triton::mm", "triton::bmm"), "library": 3.0, "likes": {}}


@pytest.mark.parametrize("backends", ["ATEN", "ATEN,TRITON"])
@pytest.mark.parametrize("wanted", [1, 40])
def test_without_python_no_kernel_is_chosen_that_needs_it(make_handler, backends, wanted):
    named = {}
    for cpp_wrapper in (False, True):
        handler = make_handler(top_k_configs=wanted, library=-1.0, takes_bias=-1.0)
        settings = {"cpp_wrapper": cpp_wrapper, "max_autotune_gemm_backends": backends}
        named[cpp_wrapper] = lower(torch.addmm, *LINEAR, handler=handler, **settings).choices
    assert AtenChoice("bias_addmm") in named[False]
    assert AtenChoice("bias_addmm") not in named[True]
    assert AtenChoice("addmm") in named[True]


def test_nor_where_torch_offers_it_all_the_same(make_handler):
    """As older torch does, which lists both kernels for every addmm."""
    handler = make_handler(top_k_configs=1, library=-1.0, takes_bias=-1.0)
    for cpp_wrapper, expected in ((False, ["addmm", "bias_addmm"]), (True, ["addmm"])):
        with graph_of(torch.addmm, *LINEAR, handler=handler, cpp_wrapper=cpp_wrapper) as (graph, tensors):
            graph.run(*tensors)
            nodes = [graph.graph_inputs[name] for name in graph.graph_input_names]
            inputs = MMKernelInputs(nodes, scalars={"alpha": 1, "beta": 1})
            offered = handler.get_template_configs(inputs, [aten_addmm, aten_bias_addmm], "addmm")
        assert [caller.choice.name for caller in offered] == expected


def test_a_product_in_parts_is_one_decision_though_its_parts_are_lowered_too(make_handler):
    handler = make_handler(top_k_configs=1, **KNOWS_PARTS)
    outer, *inner = lower(torch.mm, *DEEP, handler=handler).autotuned
    ((only,),) = [outer.choices]
    assert isinstance(only, DecomposeKConfig)
    assert [gemm.choices for gemm in inner] == [(AtenChoice("bmm_dtype"),)]
    stats = handler.get_stats()
    assert (stats["total_calls"], stats["decisions"], stats["model_selections"]) == (2, 1, 1)


def test_the_parts_of_a_product_are_generated_without_a_benchmark(make_handler):
    handler = make_handler(top_k_configs=1, **KNOWS_PARTS)
    whole = generated(torch.mm, *DEEP, handler=handler)
    assert whole.library_calls == ["bmm_dtype"]
    assert handler.get_stats()["decisions"] == 1
