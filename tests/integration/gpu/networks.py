"""Real models, forward and backward: compiled with diode they are as near to the truth as eager ones are."""

from __future__ import annotations

import copy
from pathlib import Path

from tests.integration.gpu.lab import (
    CUDA,
    SEARCHING,
    choosing,
    compiled_cold,
    fell_back,
    model_that_likes,
    relative_error,
)
from tests.integration.gpu.registry import check
from torch._dynamo.utils import counters

from small_models import SmallModel, bert_layer, llama_block, small_vit, training_step

LLAMA, VIT, BERT = llama_block(), small_vit(), bert_layer()
NOISE = 2e-3


@check(
    *[(model.name, model, liking, 1) for model in (LLAMA, VIT, BERT) for liking in ("what it learned", "64x64 tiles")],
    (BERT.name, BERT, "what it learned", 3),
)
def a_model_trains_as_it_does_in_eager(folder: Path, name: str, model: SmallModel, liking: str, top_k: int) -> None:
    module, inputs = model.make(CUDA)
    exact = copy.deepcopy(module).float()
    truth = training_step(exact, exact, inputs.float())
    eager = training_step(module, module, inputs)
    precision = str(model.dtype).removeprefix("torch.")
    with choosing(model_that_likes(liking, folder, *model.ops, precision=precision), top_k) as choices:
        found = compiled_cold(
            module, lambda forward: training_step(forward, module, inputs), folder / "caches", options=dict(SEARCHING)
        )
    names = ["output", *(name for name, _ in module.named_parameters())]
    worse = [
        f"{name}: {mine:.2g}, in eager {theirs:.2g}"
        for name, *three in zip(names, found, eager, truth, strict=True)
        if (mine := relative_error(three[0], three[2])) > 2 * (theirs := relative_error(three[1], three[2])) + NOISE
    ]
    assert not worse, "; ".join(worse)
    stats = choices.get_stats()
    assert stats["model_selections"] == stats["decisions"] >= 11, stats
    assert not fell_back(choices), fell_back(choices)
    searches = counters["inductor"]["select_algorithm_autotune"] + counters["inductor"]["pad_mm_bench"]
    # Reductions may have several configs of their own to benchmark.
    assert (searches == 0) is (top_k == 1), f"{searches} searches with k = {top_k}"
