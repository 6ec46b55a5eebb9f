"""Ahead of time: what is exported has the kernels that the model chose."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.integration.gpu.lab import (
    CUDA,
    SEARCHING,
    assert_close,
    choosing,
    cold,
    fell_back,
    model_that_likes,
    random,
)
from tests.integration.gpu.registry import check


@check(("the library",), ("64x64 tiles",))
def a_linear_with_bias_goes_through_aot_inductor(folder: Path, liking: str) -> None:
    """Of the library's two kernels for it, C++ can call one alone."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(520, 776).to(CUDA, torch.bfloat16).requires_grad_(False)
    x = random(200, 520)
    with choosing(model_that_likes(liking, folder), 1) as choices, cold(folder / "caches"):
        exported = torch.export.export(linear, (x,))
        package = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(folder / "linear.pt2"), inductor_configs=dict(SEARCHING)
        )
        found = torch._inductor.aoti_load_package(package)(x)
    assert_close(found, torch.nn.functional.linear(x.float(), linear.weight.float(), linear.bias.float()))
    assert choices.get_stats()["model_selections"] >= 1, choices.get_stats()
    assert not fell_back(choices), fell_back(choices)
