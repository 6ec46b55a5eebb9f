"""Right numbers, whatever is chosen: ragged sizes, all layouts and element types, fusions, dynamic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tests.integration.gpu.lab import (
    AS_IT_IS,
    LEARNED,
    SEARCHING,
    Gemms,
    assert_close,
    benchmarked,
    choosing,
    compiled_cold,
    fell_back,
    kernels_in,
    known_problems,
    model_that_likes,
    random,
    tf32,
)
from tests.integration.gpu.registry import check
from torch._dynamo.utils import counters
from torch.nn import functional as F

from diode.integration.decision import last_decision
from diode.types import MMShape

RAGGED = ((200, 328, 1040), (333, 257, 515), (129, 72, 264), (17, 1000, 100), (512, 640, 1000))
"""M, N, K: multiples of 8 that no tile divides, odd ones, few rows; the last is large enough for Inductor's TF32."""
FORMS: tuple[tuple[str, Any], ...] = (
    ("mm", None),
    ("addmm", "vector"),
    ("addmm", "matrix"),
    ("bmm", None),
    ("baddbmm", "matrix"),
)
EVERY_LAYOUT = ("NN", "NT", "TN", "TT")


def ragged_problems(precision: str, layouts: Sequence[str]) -> list[MMShape]:
    """Every op in every layout, with other sizes each time."""
    return [
        MMShape.of(
            op,
            *RAGGED[(row + column) % len(RAGGED)],
            B=3 if op in ("bmm", "baddbmm") else 1,
            dtype="float32" if precision == "tf32" else precision,
            layout=layout,  # type: ignore[arg-type]
            bias=bias,
            allow_tf32=precision == "tf32",
        )
        for row, layout in enumerate(layouts)
        for column, (op, bias) in enumerate(FORMS)
    ]


@check(
    ("bfloat16", "64x64 tiles"),
    ("bfloat16", "what it learned"),
    ("bfloat16", "persistent TMA"),
    ("bfloat16", "128x256 tiles"),
    ("float16", "64x64 tiles"),
    ("float32", "64x64 tiles"),
    ("tf32", "64x64 tiles"),
)
def one_choice_computes_what_it_should(folder: Path, precision: str, liking: str) -> None:
    gemms = Gemms(known_problems(liking, ragged_problems(precision, EVERY_LAYOUT)))
    model = model_that_likes(liking, folder, *gemms.ops, precision=precision)
    with tf32(precision == "tf32"), choosing(model, 1) as choices:
        results = compiled_cold(
            gemms.compute, lambda compiled: compiled(gemms.arguments), folder / "caches", options=dict(AS_IT_IS)
        )
        wrong = gemms.wrong(results)
    assert not wrong, "; ".join(wrong)
    stats = choices.get_stats()
    assert stats["decisions"] == stats["model_selections"] == len(gemms.problems), stats
    assert benchmarked() == 0, f"{benchmarked()} kernels were benchmarked"
    if liking != "what it learned":
        kernels = kernels_in(folder / "caches")
        assert kernels >= len(gemms.problems), f"only {kernels} Triton kernels for {len(gemms.problems)} problems"


@check(
    ("bfloat16", "NN TT"),
    ("float16", "NT TN"),
    ("float32", "NN NT"),
    ("tf32", "NT TN"),
)
def three_choices_compute_what_they_should(folder: Path, precision: str, layouts: str) -> None:
    gemms = Gemms(ragged_problems(precision, layouts.split()))
    with tf32(precision == "tf32"), choosing(model_that_likes("64x64 tiles", folder), 3) as choices:
        results = compiled_cold(
            gemms.compute, lambda compiled: compiled(gemms.arguments), folder / "caches", options=dict(AS_IT_IS)
        )
        wrong = gemms.wrong(results)
    assert not wrong, "; ".join(wrong)
    stats = choices.get_stats()
    assert stats["decisions"] == stats["model_selections"] == len(gemms.problems), stats
    assert 0 < benchmarked() <= 3 * len(gemms.problems), f"{benchmarked()} benchmarks"


@check(("64x64 tiles", 1), ("128x256 tiles", 1), ("persistent TMA", 1), ("64x64 tiles", 3), ("the library", 1))
def fused_epilogues_compute_what_they_should(folder: Path, liking: str, top_k: int) -> None:
    """A bias, GELU, a residual and a cast behind the product; unbenchmarked where there is one choice."""
    x, weight, bias, residual = random(1000, 520), random(520, 776), random(776), random(1000, 776)

    def layer(x, weight, bias, residual):
        return (F.gelu(torch.addmm(bias, x, weight)) * 0.5 + residual).float()

    with choosing(model_that_likes(liking, folder), top_k) as choices:
        found = compiled_cold(
            layer,
            lambda compiled: compiled(x, weight, bias, residual),
            folder / "caches",
            options=dict(AS_IT_IS),
        )
    assert_close(found, layer(*(tensor.float() for tensor in (x, weight, bias, residual))))
    assert not fell_back(choices), fell_back(choices)
    if top_k == 1 and liking != "the library":
        kernels = kernels_in(folder / "caches")
        assert kernels == 1, f"{kernels} kernels: the epilogue was not fused"


@check(("64x64 tiles", 1), ("128x256 tiles", 1), ("persistent TMA", 1), ("64x64 tiles", 3))
def fused_prologues_compute_what_they_should(folder: Path, liking: str, top_k: int) -> None:
    """A cast from fp32, weights of 8 bits, and a scale, each before a product that nobody timed with it."""
    x, scale = random(512, 1032, dtype=torch.float32), random(512, 1)
    weight = torch.randint(-127, 127, (1032, 640), device="cuda", dtype=torch.int8)

    def products(x, scale, weight):
        half = x.to(torch.bfloat16)
        return half @ weight.to(torch.bfloat16), (half * scale) @ (weight.to(torch.bfloat16) + 1.0)

    with choosing(model_that_likes(liking, folder), top_k) as choices:
        found = compiled_cold(
            products, lambda compiled: compiled(x, scale, weight), folder / "caches", options=dict(AS_IT_IS)
        )
    half, wide = x.to(torch.bfloat16).float(), weight.float()
    assert_close(found[0], half @ wide)
    assert_close(found[1], (half * scale.float()) @ (wide + 1.0), at_most=1e-2)
    assert choices.get_stats()["model_selections"] == 2
    assert not fell_back(choices), fell_back(choices)


@check(("persistent TMA", 1), ("64x64 tiles", 1), ("what it learned", 1), ("persistent TMA", 3), ("64x64 tiles", 3))
def a_transposed_producer_computes_what_it_should(folder: Path, liking: str, top_k: int) -> None:
    """Inductor is free to lay out the sum as it likes until a kernel is chosen that relies on one layout."""
    a, weight = random(512, 1024), random(512, 768, seed=1)

    def product(a, weight):
        return torch.mm(a.permute(1, 0) + 1, weight) * 2

    with choosing(model_that_likes(liking, folder, "mm"), top_k):
        found = compiled_cold(product, lambda compiled: compiled(a, weight), folder / "caches", options=dict(AS_IT_IS))
    assert_close(found, product(a.float(), weight.float()), at_most=1e-2)


@check(("64x64 tiles", 1), ("persistent TMA", 1), ("what it learned", 1), ("64x64 tiles", 3))
def one_kernel_serves_all_sizes_of_a_dynamic_dimension(folder: Path, liking: str, top_k: int) -> None:
    weight, bias = random(520, 776, seed=1), random(776, seed=2)

    def layer(x, weight, bias):
        return torch.mm(x, weight), torch.addmm(bias, x, weight)

    def call(compiled):
        found = []
        for rows in (512, 33, 257, 1000, 4096):
            x = random(rows, 520, seed=rows)
            torch._dynamo.mark_dynamic(x, 0)
            found.append((x, *compiled(x, weight, bias)))
        return found

    with choosing(model_that_likes(liking, folder, "mm", "addmm"), top_k) as choices:
        results = compiled_cold(layer, call, folder / "caches", options=dict(AS_IT_IS))
    assert counters["stats"]["unique_graphs"] == 1, f"{counters['stats']['unique_graphs']} graphs were compiled"
    assert not fell_back(choices), fell_back(choices)
    decision = last_decision()
    assert decision is not None
    assert len(decision.sizes) > 1, f"decided for {decision.sizes} alone"
    for x, product, with_bias in results:
        assert_close(product, x.float() @ weight.float())
        assert_close(with_bias, torch.addmm(bias.float(), x.float(), weight.float()))


@check(("max-autotune", "64x64 tiles", 1), ("max-autotune", "persistent TMA", 1), ("max-autotune", "64x64 tiles", 3))
def replays_of_cuda_graphs_compute_what_they_should(folder: Path, mode: str, liking: str, top_k: int) -> None:
    def layer(x, weight):
        return torch.relu(torch.mm(x, weight))

    inputs = [(random(384, 512, seed=seed), random(512, 640, seed=seed + 10)) for seed in range(5)]

    def call(compiled):
        found = []
        for x, weight in inputs:
            torch.compiler.cudagraph_mark_step_begin()
            found.append(compiled(x, weight).clone())
        return found

    with choosing(model_that_likes(liking, folder), top_k) as choices:
        results = compiled_cold(layer, call, folder / "caches", mode=mode)
    recorded = counters["inductor"]["cudagraph_recorded_non_static_inputs"]
    assert recorded > 0, f"no CUDA graph was made: {dict(counters['inductor'])}"
    assert choices.get_stats()["model_selections"] == 1
    for (x, weight), found in zip(inputs, results, strict=True):
        assert_close(found, layer(x.float(), weight.float()))


@check(("max-autotune-no-cudagraphs", 1), ("max-autotune-no-cudagraphs", 3))
def the_mode_without_cuda_graphs_computes_what_it_should(folder: Path, mode: str, top_k: int) -> None:
    problems = [MMShape.of(op, 256, 384, 512, B=4 if op == "bmm" else 1) for op in ("mm", "addmm", "bmm")]
    gemms = Gemms(known_problems(LEARNED, problems))
    with choosing(model_that_likes(LEARNED, folder, *gemms.ops), top_k) as choices:
        results = compiled_cold(gemms.compute, lambda compiled: compiled(gemms.arguments), folder / "c", mode=mode)
        wrong = gemms.wrong(results)
    assert not wrong, "; ".join(wrong)
    assert choices.get_stats()["model_selections"] == len(gemms.problems)
    assert (benchmarked() == 0) is (top_k == 1), f"{benchmarked()} benchmarks with k = {top_k}"


@check(("64x64 tiles", 1), ("64x64 tiles", 3))
def padded_products_compute_what_they_should(folder: Path, liking: str, top_k: int) -> None:
    """With Inductor's padding of odd sizes, as it is by default."""
    gemms = Gemms([MMShape.of("mm", 1001, 1023, 4097), MMShape.of("addmm", 2047, 1025, 2049, dtype="float16")])
    with choosing(model_that_likes(liking, folder), top_k) as choices:
        results = compiled_cold(
            gemms.compute, lambda compiled: compiled(gemms.arguments), folder / "caches", options=dict(SEARCHING)
        )
        wrong = gemms.wrong(results)
    assert not wrong, "; ".join(wrong)
    assert not fell_back(choices), fell_back(choices)
