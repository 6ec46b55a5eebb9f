"""What is promised beside right numbers: nothing benchmarked, the same each time, never out of resources, counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.integration.choices.lab import A100
from tests.integration.choices.models import SQUARE_64, write_model
from tests.integration.gpu.lab import (
    AS_IT_IS,
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
)
from tests.integration.gpu.registry import check

from compile_summary import chosen_problems
from diode.integration.decision import last_decision
from diode.integration.matmul_integration import MatmulIntegration
from diode.storage import read_shapeset
from diode.types import MMShape
from diode.types.known_hardware import H200

TEST_PROBLEMS = Path(__file__).parents[3] / "diode_datasets" / "h200_test_shapeset.json"
ALIGNED = (
    MMShape.of("mm", 512, 768, 1024, layout="NT"),
    MMShape.of("addmm", 1024, 256, 512, layout="NT"),
    MMShape.of("bmm", 128, 128, 64, B=24),
    MMShape.of("mm", 16, 4096, 1024, layout="NT"),
)
ODD = (MMShape.of("mm", 1001, 1023, 4097), MMShape.of("mm", 999, 2047, 2049, layout="NT"))


@check(("what it learned", "aligned", ALIGNED), ("64x64 tiles", "odd", ODD))
def one_choice_benchmarks_nothing_and_is_the_same_after_each_cold_compile(
    folder: Path, liking: str, _: str, problems: tuple[MMShape, ...]
) -> None:
    """Odd sizes included, where Inductor would benchmark whether to pad."""
    gemms = Gemms(known_problems(liking, problems))
    model = model_that_likes(liking, folder, *gemms.ops)
    seen = []
    for number in range(3):
        caches = folder / str(number)
        with choosing(model, 1):
            results = compiled_cold(
                gemms.compute, lambda compiled: compiled(gemms.arguments), caches, options=dict(SEARCHING)
            )
        assert benchmarked() == 0, f"{benchmarked()} kernels were benchmarked"
        decision = last_decision()
        assert decision is not None
        seen.append((decision.picks, kernels_in(caches), results))
    (picks, kernels, results), *others = seen
    for other_picks, other_kernels, other_results in others:
        assert other_picks == picks, f"{other_picks} was chosen, and before that {picks}"
        assert other_kernels == kernels, f"{other_kernels} kernels, and before that {kernels}"
        assert all(torch.equal(a, b) for a, b in zip(other_results, results, strict=True)), "other bits came out"


@check(("what it learned",), ("the largest tiles",))
def one_choice_never_runs_out_of_resources(folder: Path, liking: str) -> None:
    """Over a sample of the test problems, with an epilogue that takes more registers and shared memory."""
    chosen = chosen_problems(known_problems(liking, read_shapeset(TEST_PROBLEMS)), 60, H200)
    problems = [p for p in chosen if p.flops < 1.5e11 and not p.allow_tf32][:16]
    problems += [MMShape.of("mm", 1024, 1024, 1024, dtype="float32"), MMShape.of("mm", 2048, 2048, 2048, layout="TN")]
    problems = known_problems(liking, problems)
    gemms = Gemms(problems)

    def with_epilogues(arguments: Any) -> list[torch.Tensor]:
        return [torch.sigmoid(result.float()) * result for result in gemms.compute(arguments)]

    def call(compiled: Callable[..., Any]) -> Any:
        return compiled(gemms.arguments)

    with torch.no_grad(), choosing(model_that_likes(liking, folder, *gemms.ops), 1) as choices:
        plain = compiled_cold(gemms.compute, call, folder / "plain", options=dict(AS_IT_IS))
        wrong = gemms.wrong(plain)
        fused = compiled_cold(with_epilogues, call, folder / "fused", options=dict(AS_IT_IS))
    assert not wrong, "; ".join(wrong)
    for problem, found, result in zip(problems, fused, plain, strict=True):
        expected = torch.sigmoid(result.float()) * result
        assert torch.isfinite(found).all(), f"{problem}: not finite"
        assert_close(found, expected, at_most=2e-2)
    assert choices.get_stats()["model_selections"] == 2 * len(problems)
    assert benchmarked() == 0


@check()
def what_was_decided_is_counted(folder: Path) -> None:
    gemms = Gemms(ALIGNED)
    with choosing(model_that_likes("64x64 tiles", folder), 3) as choices:
        compiled_cold(gemms.compute, lambda compiled: compiled(gemms.arguments), folder / "c", options=dict(SEARCHING))
    stats = choices.get_stats()
    assert stats["decisions"] == stats["model_selections"] == len(ALIGNED), stats
    assert stats["total_calls"] >= len(ALIGNED), stats
    assert stats["configs_filtered"] > 1000, stats
    assert 0 < stats["decision_seconds_median"] <= stats["decision_seconds_max"], stats
    assert not fell_back(choices), stats
    assert 0 < benchmarked() <= 3 * len(ALIGNED), f"{benchmarked()} benchmarks"
    decision = last_decision()
    assert decision is not None
    assert decision.device == torch.cuda.get_device_name()
    assert len(decision.picks) == 3, str(decision)


@check()
def a_plain_compile_is_left_alone(folder: Path) -> None:
    a = random(256, 256)
    with choosing(model_that_likes("64x64 tiles", folder), 1) as choices:
        found = compiled_cold(torch.mm, lambda compiled: compiled(a, a), folder / "caches")
    assert_close(found, a.float() @ a.float())
    assert choices.get_stats()["decisions"] == 0, choices.get_stats()
    assert kernels_in(folder / "caches") == 0, "a Triton kernel was compiled"


@check()
def a_model_for_another_gpu_is_left_alone_and_counted(folder: Path) -> None:
    a = random(256, 256)
    model = write_model(folder / "other.safetensors", likes=SQUARE_64, hardware=(A100,))
    integration = MatmulIntegration(model, top_k_configs=1)
    assert integration.integrate(), "not registered"
    try:
        found = compiled_cold(torch.mm, lambda compiled: compiled(a, a), folder / "caches", options=dict(SEARCHING))
        assert integration.choices is not None
        stats = integration.choices.get_stats()
    finally:
        integration.undo()
    assert_close(found, a.float() @ a.float())
    assert stats["fallback_hardware_mismatch"] == 1, stats
    assert benchmarked() > 5, "Inductor's own search did not run"
