"""Real calls of Inductor's template hook, for a GPU that need not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel_inputs import KernelInputs
from torch._inductor.kernel_template_choice import KernelTemplateChoice
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from diode.integration.described import described_gpu
from diode.types import Hardware

H100 = Hardware(
    name="NVIDIA H100 80GB HBM3",
    device_type="cuda",
    capability=(9, 0),
    sm_count=132,
    shared_memory_per_sm=233472,
    shared_memory_per_block=232448,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    warp_size=32,
    l2_bytes=52428800,
    memory_bytes=85029158912,
)


@dataclass(frozen=True)
class HookCall:
    """What Inductor handed to its choices handler for one op."""

    op_name: str
    inputs: KernelInputs
    choices: dict[str, list[KernelTemplateChoice]]


class _HookRecorder(InductorChoices):
    def __init__(self, calls: list[HookCall]) -> None:
        super().__init__()
        self._calls = calls

    def uuid(self) -> str:
        return "hook-recorder"

    def _finalize_template_configs(self, template_choices, kernel_inputs, templates, op_name, kwarg_overrides=None):
        choices = {uid: list(generated) for uid, generated in template_choices.items()}
        self._calls.append(HookCall(op_name, kernel_inputs, choices))
        # library kernels alone: nothing needs to be rendered, and the lowering comes to its end
        return [ktc for uid, generated in choices.items() if uid.startswith("aten::") for ktc in generated]


Lower = Callable[..., list[HookCall]]
"""`lower(function, *arguments, **settings)`; an argument is (sizes, strides or None, dtype)."""


@pytest.fixture
def lower() -> Iterator[Lower]:
    """Lowers a function for an H100; the graph stays open, so that the nodes can be read until the test ends."""
    with ExitStack() as stack:

        def lower_on_h100(function, *arguments, **settings):
            calls: list[HookCall] = []
            fake = FakeTensorMode(shape_env=ShapeEnv())
            stack.enter_context(described_gpu(H100))
            stack.enter_context(
                config.patch({"max_autotune": True, "triton.enable_persistent_tma_matmul": True, **settings})
            )
            with fake:
                tensors = [_fake_cuda_tensor(fake, *argument) for argument in arguments]
                traced = make_fx(function, tracing_mode="real")(*tensors)
            graph = GraphLowering(traced, example_inputs=tensors, shape_env=fake.shape_env)
            for handler in (
                V.set_choices_handler(_HookRecorder(calls)),
                V.set_graph_handler(graph),
                V.set_fake_mode(fake),
            ):
                stack.enter_context(handler)
            with fake:
                graph.run(*tensors)
            return calls

        yield lower_on_h100


def _fake_cuda_tensor(fake, sizes, strides, dtype):
    if strides is None:
        return torch.empty(sizes, dtype=dtype, device="cuda:0")
    return torch.empty_strided(sizes, strides, dtype=dtype, device="cuda:0")
