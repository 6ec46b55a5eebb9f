"""Compiles that reach Inductor's hook on any machine, and a process that is left as it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.integration.choices.models import write_model
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.utils import fresh_cache
from torch._inductor.virtualized import V

import diode
from diode.integration.factory import ConfiguredChoices
from diode.integration.fallback import forget_what_was_said
from diode.integration.integrations import registry

LIBRARY_ONLY = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}
"""Nothing is benchmarked, and no C++ compiled."""

Compile = Callable[..., dict[str, int]]


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("DIODE_MODEL_PATH", raising=False)
    forget_what_was_said()
    V.set_choices_handler(InductorChoices())
    with fresh_cache():
        yield
    diode.disable()
    for name in list(registry.status()):
        registry.forget(name)
    left = V.choices
    assert type(left) is InductorChoices or (
        isinstance(left, ConfiguredChoices) and not left.factory.is_named_by_config()
    )
    assert config.inductor_choices_class is None


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that knows everything, at hand."""
    folder = tmp_path / "models"
    folder.mkdir()
    path = write_model(folder / "all.safetensors")
    monkeypatch.setenv("DIODE_MODEL_PATH", str(path.parent))
    return path


@pytest.fixture
def compile_bmm() -> Compile:
    """Compiles and runs a batched product; gives what torch counted: misses and hits of its caches."""

    def compiled(rows: int = 16, backward: bool = False, **options: object) -> dict[str, int]:
        torch._dynamo.reset()
        counters.clear()
        a = torch.randn(2, rows, 24, requires_grad=backward)
        b = torch.randn(2, 24, 8, requires_grad=backward)
        found = torch.compile(torch.bmm, options=LIBRARY_ONLY | options)(a, b)
        torch.testing.assert_close(found, torch.bmm(a, b))
        if backward:
            found.sum().backward()
            torch.testing.assert_close(a.grad, b.sum(dim=2).unsqueeze(1).expand_as(a))
        return dict(counters["inductor"])

    return compiled
