"""A template has the strides of its inputs baked in, and Inductor may still change them."""

from __future__ import annotations

import pytest
import torch
from tests.integration.by_torch import LAYOUTS_ARE_CHECKED_FIRST
from tests.integration.choices.lab import lower, matrix
from tests.integration.traps.whole import generated
from torch._inductor.choices import InductorChoices

from diode.types import AtenChoice

PERSISTENT, PLAIN = -0.5, 0.5


def of_transposed(a, w):
    """The mm's first input has no layout of its own yet: its producer, and whoever comes later, may like another."""
    return torch.mm(a.permute(1, 0) + 1, w) * 2


def of_view(a, w):
    x = a + 1
    return torch.mm(x.permute(1, 0), w) * 2, x


def used_twice(a, w):
    x = a.permute(1, 0) + 1
    return torch.mm(x, w), torch.mm(x, w.narrow(1, 0, 64))


def matrices(m=512, n=2048, k=1024, dtype=torch.bfloat16):
    return matrix(k, m, dtype=dtype), matrix(k, n, dtype=dtype)


@pytest.mark.parametrize("persistent", [PERSISTENT, PLAIN])
@pytest.mark.parametrize("function", [of_transposed, of_view])
def test_the_only_kernel_reads_its_input_as_it_lies_in_memory(make_handler, function, persistent):
    handler = make_handler(top_k_configs=1, persistent=persistent, library=9.0)
    whole = generated(function, *matrices(), handler=handler, decompose=True)
    (template,) = whole.templates
    strides = (int(whole.constant("stride_am")), int(whole.constant("stride_ak")))
    laid = whole.strides["buf0"]
    assert strides == (laid if function is of_transposed else laid[::-1])
    if persistent == PERSISTENT:
        assert whole.constant("A_ROW_MAJOR") == str(strides[1] == 1)
        assert "make_tensor_descriptor" in template


def test_a_layout_is_fixed_where_nobody_would_notice_that_it_changed(make_handler):
    def of_inductor(backends):
        handler = InductorChoices()
        ((_, strides), *_) = lower(
            of_transposed, *matrices(), handler=handler, max_autotune_gemm_backends=backends
        ).layouts
        return strides

    as_offered, as_the_library_likes_it = (1024, 1), (1, 512)
    laid = {
        (1, 9.0, "ATEN,TRITON"): as_offered,
        (3, 9.0, "TRITON"): as_offered,
        (3, 9.0, "ATEN,TRITON"): of_inductor("ATEN,TRITON"),
        (1, -9.0, "ATEN,TRITON"): as_the_library_likes_it,
    }
    for (wanted, library, backends), expected in laid.items():
        handler = make_handler(top_k_configs=wanted, library=library)
        told = lower(of_transposed, *matrices(), handler=handler, max_autotune_gemm_backends=backends)
        assert told.layouts[0] == ("FixedLayout", expected)


def test_two_gemms_of_one_input_agree_on_its_layout(make_handler):
    handler = make_handler(top_k_configs=1, persistent=PERSISTENT, library=9.0)
    whole = generated(used_twice, *matrices(), handler=handler, decompose=True)
    assert len(whole.templates) == 2
    laid = whole.strides["buf0"]
    for template in whole.templates:
        assert f"A_ROW_MAJOR : tl.constexpr = {laid[1] == 1}" in template


def test_with_several_choices_a_conflict_of_layouts_ends_in_aten_and_no_error(make_handler):
    handler = make_handler(top_k_configs=3, persistent=PERSISTENT, library=9.0)
    if not LAYOUTS_ARE_CHECKED_FIRST:
        assert AtenChoice("mm") in lower(of_transposed, *matrices(), handler=handler).choices
        return
    whole = generated(of_transposed, *matrices(), handler=handler)
    assert (whole.templates, whole.library_calls) == ([], ["mm"])
