"""MatmulDatasetCollector over real max-autotune compiles for a GPU."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.utils import fresh_cache

from diode.collection import MatmulDatasetCollector
from diode.types import AtenChoice, MMShape, TritonGEMMConfig

pytestmark = pytest.mark.gpu


def tensor(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("op", "arguments", "problem"),
    [
        (torch.mm, ((512, 256), (256, 384)), MMShape.of("mm", 512, 384, 256)),
        (torch.bmm, ((4, 128, 64), (4, 64, 96)), MMShape.of("bmm", 128, 96, 64, B=4)),
        (torch.addmm, ((384,), (512, 256), (256, 384)), MMShape.of("addmm", 512, 384, 256)),
    ],
    ids=["mm", "bmm", "addmm"],
)
def test_all_choices_of_a_compile_are_recorded(op, arguments, problem):
    tensors = [tensor(*sizes) for sizes in arguments]
    torch._dynamo.reset()
    with fresh_cache(), MatmulDatasetCollector() as collector:
        result = torch.compile(op, mode="max-autotune-no-cudagraphs")(*tensors)
    torch.testing.assert_close(result, op(*tensors), rtol=2e-2, atol=2e-1)
    dataset = collector.dataset()
    assert set(dataset.problems) == {problem}
    assert any(isinstance(choice, AtenChoice) for choice in dataset.choices)
    assert sum(isinstance(choice, TritonGEMMConfig) for choice in dataset.choices) > 5
    assert {environment.hardware.name for environment in dataset.environments} == {torch.cuda.get_device_name()}
    assert {method.statistic for method in dataset.methods} == {"min"}
    times = dataset.columns.time_us[dataset.succeeded]
    assert times.min() > 1
    assert times.max() < 100_000
    assert collector.errors == {}


def test_what_torch_remembers_is_not_recorded_as_new():
    a, b = tensor(256, 512), tensor(512, 128)
    with fresh_cache():
        torch._dynamo.reset()
        with MatmulDatasetCollector() as first:
            torch.compile(torch.mm, mode="max-autotune-no-cudagraphs")(a, b)
        torch._dynamo.reset()
        settings = torch._inductor.config.patch(fx_graph_cache=False)
        with settings, MatmulDatasetCollector() as second:
            torch.compile(torch.mm, mode="max-autotune-no-cudagraphs")(a, b)
    assert len(first) > 5
    assert len(second) == 0
