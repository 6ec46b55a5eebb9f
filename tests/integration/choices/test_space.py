"""What a handler leaves is a part of what Inductor itself generates, and fits the policy, for every GEMM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import torch
from tests.integration.by_torch import TILES_OF_THE_WHOLE_SPACE_AT_DEEP_K, UNPRUNED, library_kernels
from tests.integration.choices.lab import A100, H100, H200, Tensor, batch, lower, matrix
from torch._inductor.choices import InductorChoices

from diode.integration.decision import last_decision
from diode.integration.lowering import lowered
from diode.types import AtenChoice, DecomposeKConfig, MMShape, PersistentTMAConfig, TritonGEMMConfig

OPS = {"mm": torch.mm, "addmm": torch.addmm, "bmm": torch.bmm, "baddbmm": torch.baddbmm}
LAYOUTS = ("NN", "NT", "TN", "TT")
M, N, K = 200, 328, 1040
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def operands(op, layout, dtype=BF16, sizes=(M, N, K)):
    m, n, k = sizes
    if op in ("bmm", "baddbmm"):
        bias = [batch(4, m, n, "N", dtype)] if op == "baddbmm" else []
        return [*bias, batch(4, m, k, layout[0], dtype), batch(4, k, n, layout[1], dtype)]
    bias = [Tensor((n,), None, dtype)] if op == "addmm" else []
    return [*bias, matrix(m, k, layout[0], dtype), matrix(k, n, layout[1], dtype)]


def problem_of(op, layout, dtype=BF16, sizes=(M, N, K), allow_tf32=False):
    name = str(dtype).removeprefix("torch.")
    batches = 4 if op in ("bmm", "baddbmm") else 1
    bias = "matrix" if op == "baddbmm" else None
    return MMShape.of(op, *sizes, B=batches, layout=layout, dtype=name, bias=bias, allow_tf32=allow_tf32)


def exhaustive(problem, hardware):
    with lowered(problem, "EXHAUSTIVE", hardware) as candidates:
        return {candidate.choice for candidate in candidates}


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def tiled(choices):
    return [choice for choice in choices if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig)]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_left_is_of_the_exhaustive_space_and_aten_is_among_it(make_handler, op, layout):
    handler = make_handler(top_k_configs=12)
    left = lower(OPS[op], *operands(op, layout), handler=handler).choices
    assert last_decision().sizes == (problem_of(op, layout),)
    assert len(left) == len(set(left)) == 12
    assert set(left) <= exhaustive(problem_of(op, layout), H200)
    assert library_kernels(op) & set(left)
    best = last_decision().picks[0].choice
    assert best in left
    assert (best.block_m, best.block_n, best.block_k, best.num_stages, best.num_warps) == (64, 64, 64, 3, 4)


@pytest.mark.parametrize("hardware", [H100, A100], ids=lambda hardware: hardware.name)
@pytest.mark.parametrize("op", OPS)
def test_other_gpus_have_their_own_space(make_handler, hardware, op):
    handler = make_handler(top_k_configs=12, hardware=(hardware,), persistent=-1.0)
    left = lower(OPS[op], *operands(op, "NT"), handler=handler, hardware=hardware).choices
    assert len(left) == 12
    assert set(left) <= exhaustive(problem_of(op, "NT"), hardware)
    has_tma = hardware is H100 and op in ("mm", "addmm")
    assert any(isinstance(choice, PersistentTMAConfig) for choice in left) is has_tma
    assert last_decision().device == hardware.name


@pytest.mark.parametrize(("dtype", "allow_tf32"), [(F16, False), (F32, False), (F32, True)])
@pytest.mark.parametrize("op", OPS)
def test_precision_of_every_choice_is_inductor_s(make_handler, op, dtype, allow_tf32):
    sizes = (512, 640, 1040)  # Inductor takes TF32 for no smaller ones
    with tf32(allow_tf32):
        left = lower(OPS[op], *operands(op, "NN", dtype, sizes), handler=make_handler(top_k_configs=8)).choices
    assert set(left) <= exhaustive(problem_of(op, "NN", dtype, sizes, allow_tf32), H200)
    assert {choice.allow_tf32 for choice in tiled(left)} == {allow_tf32}
    assert {choice.acc_type for choice in tiled(left)} == {"tl.float32"}


@pytest.mark.parametrize(("k", "even"), [(1040, False), (1024, True)])
def test_whether_k_is_even_is_told_by_each_problem_and_not_remembered(make_handler, k, even):
    handler = make_handler(top_k_configs=1)
    lower(torch.mm, *operands("mm", "NN", sizes=(M, N, 2064 - k)), handler=handler)
    (only,) = lower(torch.mm, *operands("mm", "NN", sizes=(M, N, k)), handler=handler).choices
    assert (only.block_k, only.even_k) == (64, even)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("library", "kind"), [(1.5, TritonGEMMConfig), (-1.5, AtenChoice)])
def test_one_choice_is_exactly_one_and_the_best(make_handler, op, library, kind):
    (only,) = lower(OPS[op], *operands(op, "NT"), handler=make_handler(top_k_configs=1, library=library)).choices
    assert isinstance(only, kind)
    assert [pick.choice for pick in last_decision().picks] == [only]


def test_a_large_problem_that_the_library_wins_goes_to_it_without_benchmarking(make_handler):
    handler = make_handler(top_k_configs=3, performance_threshold=1.1, library=-1.5)
    left = lower(torch.mm, *operands("mm", "NT", sizes=(8192, 8192, 8192)), handler=handler).choices
    assert left == (AtenChoice("mm"),)


@pytest.mark.parametrize("library", [-2.0, 9.0])
@pytest.mark.parametrize("wanted", [2, 5])
@pytest.mark.parametrize("op", OPS)
def test_where_several_are_left_aten_is_among_them(make_handler, op, wanted, library):
    left = lower(OPS[op], *operands(op, "NN"), handler=make_handler(top_k_configs=wanted, library=library)).choices
    assert len(left) == wanted
    assert library_kernels(op) & set(left)


def test_persistent_and_plain_templates_compete_in_one_ranking(make_handler):
    handler = make_handler(top_k_configs=1, persistent=-0.5)
    (only,) = lower(torch.mm, *operands("mm", "NT"), handler=handler).choices
    assert isinstance(only, PersistentTMAConfig)
    assert (only.a_row_major, only.b_row_major, only.num_sms) == (True, False, 132)
    assert only in exhaustive(problem_of("mm", "NT"), H200)


def test_both_library_kernels_of_a_linear_layer_are_candidates(make_handler):
    bias = Tensor((M, N), (0, 1))
    handler = make_handler(top_k_configs=40, library=-1.0)
    left = lower(torch.addmm, bias, *operands("mm", "NT"), handler=handler).choices
    assert {AtenChoice("addmm"), AtenChoice("bias_addmm")} <= set(left)
    one = make_handler(top_k_configs=1, library=-1.0)
    assert len(lower(torch.addmm, bias, *operands("mm", "NT"), handler=one).choices) == 1


def test_no_shared_memory_beyond_the_device_is_offered(make_handler):
    huge = {"log_block_m": 8.0, "log_block_n": 7.0, "log_block_k": 7.0, "stages": 5.0, "log_warps": 3.0}
    for limit in (232448, 101376):
        hardware = msgspec.structs.replace(H200, shared_memory_per_block=limit)
        handler = make_handler(likes=huge, top_k_configs=30, hardware=(hardware,))
        left = lower(torch.mm, *operands("mm", "NN"), handler=handler, hardware=hardware).choices
        least = [_shared_bytes(choice, spared=isinstance(choice, TritonGEMMConfig)) for choice in tiled(left)]
        assert len(least) == 29
        assert limit / 2 < max(least) <= limit


def test_the_only_choice_keeps_a_margin_for_what_may_be_fused_into_it(make_handler):
    wide = {"log_block_m": 7.0, "log_block_n": 7.0, "log_block_k": 7.0, "stages": 4.0, "log_warps": 3.0}
    problem = operands("mm", "NN")
    among = lower(torch.mm, *problem, handler=make_handler(likes=wide, top_k_configs=2), **UNPRUNED).choices
    (only,) = lower(torch.mm, *problem, handler=make_handler(likes=wide, top_k_configs=1), **UNPRUNED).choices
    (best,) = (choice for choice in tiled(among))
    assert _shared_bytes(best, spared=True) <= 232448 < _shared_bytes(best, spared=False)
    assert only != best
    assert _shared_bytes(only, spared=False) < 232448


def _shared_bytes(choice, spared):
    stages = choice.num_stages - (spared and choice.num_stages > 1)
    return (choice.block_m + choice.block_n) * choice.block_k * 2 * stages


def test_what_is_said_to_fail_is_never_offered(make_handler):
    handler = make_handler(top_k_configs=20, doomed={"log_block_m": 5.0})
    left = tiled(lower(torch.mm, *operands("mm", "NN"), handler=handler).choices)
    assert {choice.block_m for choice in left} == {16, 32}


@pytest.mark.parametrize(
    ("backends", "wanted", "kinds"),
    [
        ("ATEN", 3, [AtenChoice]),
        ("ATEN", 1, [AtenChoice]),
        ("TRITON", 3, [TritonGEMMConfig] * 3),
        ("TRITON", 1, [TritonGEMMConfig]),
        ("ATEN,TRITON", 1, [TritonGEMMConfig]),
        ("ATEN,TRITON", 2, [TritonGEMMConfig, AtenChoice]),
    ],
)
@pytest.mark.parametrize("op", OPS)
def test_only_backends_that_the_user_allows_are_offered(make_handler, op, backends, wanted, kinds):
    handler = make_handler(top_k_configs=wanted, persistent=50.0)
    left = lower(OPS[op], *operands(op, "NN"), handler=handler, max_autotune_gemm_backends=backends).choices
    library = len(library_kernels(op))
    if backends == "ATEN":
        kinds = kinds * min(library, wanted)
    assert sorted(type(choice).__name__ for choice in left) == sorted(kind.__name__ for kind in kinds)
    assert handler.get_stats()["decisions"] == ("TRITON" in backends or library > 1)


DEEP = (matrix(32, 65536), matrix(65536, 48))


def test_deep_k_is_decided_among_what_inductor_offers_there(make_handler):
    own = lower(torch.mm, *DEEP, handler=InductorChoices()).choices
    assert {type(choice) for choice in own} == {AtenChoice, DecomposeKConfig}
    whole = {"max_autotune_gemm_search_space": "EXHAUSTIVE"}
    offered = lower(torch.mm, *DEEP, handler=InductorChoices(), **whole).choices
    assert set(own) <= set(offered)
    assert bool(tiled(offered)) is TILES_OF_THE_WHOLE_SPACE_AT_DEEP_K

    knowing = make_handler(top_k_configs=3, library=0.0, templates=("aten", "decompose_k", "triton::mm"))
    left = lower(torch.mm, *DEEP, handler=knowing).choices
    assert len(left) == 3
    assert set(left) <= set(own)
    assert AtenChoice("mm") in left

    unknowing = make_handler(top_k_configs=3)
    assert lower(torch.mm, *DEEP, handler=unknowing).choices == (AtenChoice("mm"),)


def test_tiles_follow_the_sizes_of_the_problem(make_handler):
    large = {"log_block_m": 7.0, "log_block_n": 8.0, "log_block_k": 6.0, "stages": 3.0, "log_warps": 3.0}
    handler = make_handler(likes=large, library=9.0, top_k_configs=1)
    blocks = {}
    for m, n in ((16, 4096), (4096, 16), (4096, 4096), (40, 4096)):
        (only,) = lower(torch.mm, *operands("mm", "NN", sizes=(m, n, 1024)), handler=handler).choices
        blocks[m, n] = (only.block_m, only.block_n)
    assert blocks == {(16, 4096): (16, 256), (4096, 16): (128, 16), (4096, 4096): (128, 256), (40, 4096): (64, 256)}
