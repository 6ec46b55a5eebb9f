"""Compiles with diode on a GPU: written models that are known to choose, cold caches, and what was benchmarked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from tests.integration.choices.models import SQUARE_64, write_model
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config
from torch._inductor.utils import fresh_cache

from cold_compile import benchmarked, kernels_in, quiet
from diode.collection.gpu.operands import Operands
from diode.integration.choices import DiodeInductorChoices
from diode.integration.matmul_integration import MatmulIntegration
from diode.integration.policy import TopK
from diode.integration.statistics import FALLBACK_REASONS
from diode.model.card import ModelCard, card_path, read_card
from diode.types import MMShape
from model_scope import knows

__all__ = ["benchmarked", "kernels_in"]

Result = TypeVar("Result")
CUDA = torch.device("cuda")
SEARCHING: Mapping[str, object] = {"max_autotune_gemm": True}
AS_IT_IS: Mapping[str, object] = {**SEARCHING, "shape_padding": False}
"""Ragged sizes come to the hook as they are; else Inductor would pad some of them."""
OPS: dict[str, Callable[..., torch.Tensor]] = {
    "mm": torch.mm,
    "addmm": torch.addmm,
    "bmm": torch.bmm,
    "baddbmm": torch.baddbmm,
}
LARGE_TILE = {"log_block_m": 7.0, "log_block_n": 8.0, "log_block_k": 6.0, "stages": 3.0, "log_warps": 3.0}
LARGEST_TILE = {"log_block_m": 8.0, "log_block_n": 8.0, "log_block_k": 8.0, "stages": 5.0, "log_warps": 3.0}
WRITTEN: dict[str, dict[str, Any]] = {
    "64x64 tiles": {"likes": SQUARE_64, "library": 6.0},
    "128x256 tiles": {"likes": LARGE_TILE, "library": 6.0},
    "the largest tiles": {"likes": LARGEST_TILE, "library": 6.0},
    "persistent TMA": {"likes": SQUARE_64, "library": 6.0, "persistent": -5.0},
    "the library": {"likes": SQUARE_64, "library": -6.0},
}
"""By what each likes best."""
LEARNED = "what it learned"


def trained_model() -> Path | None:
    """The one that `DIODE_TEST_MODEL` names, or the one that this checkout ships, if it ships one."""
    named = os.environ.get("DIODE_TEST_MODEL")
    if named:
        return Path(named)
    folder = Path(__file__).parents[3] / "trained_models" / "diode_models"
    return next(iter(sorted(folder.glob("*.safetensors"))), None)


def trained_card() -> ModelCard | None:
    found = trained_model()
    return None if found is None else read_card(card_path(found))


def known_problems(liking: str, problems: Sequence[MMShape]) -> list[MMShape]:
    """For `what it learned` those that the trained model knows; all where it knows none, since none is checked then."""
    card = trained_card()
    if liking != LEARNED or card is None:
        return list(problems)
    return [problem for problem in problems if knows(card, problem)] or list(problems)


def model_that_likes(liking: str, folder: Path, *ops: str, precision: str = "bfloat16") -> Path:
    """A written one, or for `what it learned` the trained one.

    In its place stands one that likes 64x64 tiles where there is none, or none that knows all of the `ops`.
    """
    if liking == LEARNED:
        card, found = trained_card(), trained_model()
        if card is not None and found is not None and set(ops) <= set(card.ops) and precision in card.precisions:
            return found
        liking = "64x64 tiles"
    folder.mkdir(parents=True, exist_ok=True)
    return write_model(folder / "model.safetensors", **WRITTEN[liking])


@contextmanager
def choosing(model: Path, top_k: TopK, *, enable_fallback: bool = False) -> Iterator[DiodeInductorChoices]:
    """Inside, the model chooses in all compiles, as after `import diode`; what goes wrong is raised."""
    integration = MatmulIntegration(
        model, top_k_configs=top_k, enable_fallback=enable_fallback, performance_threshold=1000.0, on_mismatch="use"
    )
    status = integration.integrate()
    assert status, str(status)
    assert integration.choices is not None
    try:
        yield integration.choices
    finally:
        integration.undo()


@contextmanager
def cold(folder: Path) -> Iterator[None]:
    """Inside, nothing is remembered, and `folder` is where caches are."""
    torch._dynamo.reset()
    counters.clear()
    folder.mkdir(parents=True, exist_ok=True)
    with fresh_cache(dir=str(folder), delete=False), inductor_config.patch(quiet()):
        yield


def compiled_cold(
    function: Callable[..., Any],
    call: Callable[[Callable[..., Any]], Result],
    folder: Path,
    **how: Any,
) -> Result:
    """What `call` makes of the compiled function; `folder` then has the caches of the compile."""
    with cold(folder):
        result = call(torch.compile(function, fullgraph=True, **how))
        torch.cuda.synchronize()
    return result


def fell_back(choices: DiodeInductorChoices) -> dict[str, int | float]:
    stats = choices.get_stats()
    return {reason: stats[reason] for reason in FALLBACK_REASONS if stats[reason]}


class Gemms:
    """Several problems as one function of their operands, and what is wrong with its results."""

    def __init__(self, problems: Sequence[MMShape]) -> None:
        self.problems = list(problems)
        self._operations = [OPS[problem.op] for problem in problems]
        self._operands = [Operands(problem, CUDA) for problem in problems]

    @property
    def ops(self) -> set[str]:
        return {problem.op for problem in self.problems}

    @property
    def arguments(self) -> list[tuple[torch.Tensor, ...]]:
        return [_arguments(operands) for operands in self._operands]

    def compute(self, arguments: list[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        return [operation(*arguments[number]) for number, operation in enumerate(self._operations)]

    def wrong(self, results: Sequence[torch.Tensor]) -> list[str]:
        found = []
        for problem, operands, result in zip(self.problems, self._operands, results, strict=True):
            operands.out.copy_(result)
            relative, largest = operands.errors().tolist()
            verdict = operands.verdict(relative, largest)
            found += [] if verdict is None else [f"{problem}: {verdict}"]
        return found


def _arguments(operands: Operands) -> tuple[torch.Tensor, ...]:
    bias = operands.bias
    if bias is None:
        return (operands.a, operands.b)
    while bias.ndim > 1 and bias.stride(0) == 0:
        bias = bias[0]
    return (bias, operands.a, operands.b)


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def random(*sizes: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(*sizes, generator=generator, device=CUDA, dtype=torch.float32).to(dtype)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    difference = torch.linalg.vector_norm(found.double() - expected.double())
    return float(difference / torch.linalg.vector_norm(expected.double()).clamp_min(1e-30))


def assert_close(found: torch.Tensor, expected: torch.Tensor, at_most: float = 6e-3) -> None:
    error = relative_error(found, expected)
    assert error <= at_most, f"relative error {error:.2g}, at most {at_most:g} expected"
