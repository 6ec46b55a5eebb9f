"""Lowers functions with a handler of ours for GPUs that are only described, and tells what autotuning would see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import get_algorithm_selector_cache
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)
from torch.utils._sympy.value_ranges import ValueRanges

from diode.integration.conversion import choice_from_caller
from diode.integration.described import described_gpu
from diode.integration.operation import stop_taking_back
from diode.types import Choice, Hardware
from diode.types.known_hardware import H200

H100 = msgspec.structs.replace(
    H200,
    name="NVIDIA H100 80GB HBM3",
    l2_bytes=52428800,
    memory_bytes=85029158912,
    memory_bandwidth_gbs=3352.0,
)
A100 = Hardware(
    name="NVIDIA A100-SXM4-80GB",
    device_type="cuda",
    capability=(8, 0),
    sm_count=108,
    shared_memory_per_sm=167936,
    shared_memory_per_block=166912,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    warp_size=32,
    l2_bytes=41943040,
    memory_bytes=85094825984,
    memory_bandwidth_gbs=2039.0,
    peak_tflops=(("bfloat16", 312.0), ("float16", 312.0), ("float32", 19.5), ("tf32", 156.0)),
)

TMA = {"triton.enable_persistent_tma_matmul": True}


@dataclass(frozen=True)
class Tensor:
    """A fake CUDA tensor to be; sizes whose place is in `dynamic` are symbols, within bounds if there are any."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.bfloat16
    dynamic: tuple[int, ...] = ()
    bounds: tuple[int, int] | None = None
    device: int = 0

    def make(self, fake: FakeTensorMode) -> torch.Tensor:
        like = torch.empty(self.sizes, dtype=self.dtype, device="meta")
        if self.strides is not None:
            like = torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device="meta")
        if self.dynamic:
            like = fake.from_tensor(like, symbolic_context=self._symbols())
        with fake:
            return torch.empty_strided(like.shape, like.stride(), dtype=self.dtype, device=f"cuda:{self.device}")

    def real(self) -> torch.Tensor:
        """Numbers on the CPU, for what is run in place of a GPU."""
        numbers = torch.empty_strided(self.sizes, self.strides or torch.empty(self.sizes).stride(), dtype=self.dtype)
        return numbers.normal_(generator=torch.Generator().manual_seed(0))

    def _symbols(self) -> StatelessSymbolicContext[Any, Any]:
        places = range(len(self.sizes))
        within = None if self.bounds is None else StrictMinMaxConstraint(False, ValueRanges(*self.bounds))
        return StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DYNAMIC if place in self.dynamic else DimDynamic.STATIC for place in places],
            constraint_sizes=[within if place in self.dynamic else None for place in places],
        )


def matrix(rows: int, columns: int, letter: str = "N", dtype: torch.dtype = torch.bfloat16, **how: Any) -> Tensor:
    """Row-major, or lying transposed in memory (T)."""
    return Tensor((rows, columns), None if letter == "N" else (1, rows), dtype, **how)


def batch(size: int, rows: int, columns: int, letter: str = "N", dtype: torch.dtype = torch.bfloat16) -> Tensor:
    inner = (columns, 1) if letter == "N" else (1, rows)
    return Tensor((size, rows, columns), (rows * columns, *inner), dtype)


@dataclass(frozen=True)
class Autotuned:
    """One GEMM as it came to autotuning."""

    choices: tuple[Choice, ...]


@dataclass
class Lowered:
    autotuned: list[Autotuned] = field(default_factory=list)
    layouts: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Kind of layout and strides of every buffer, at the end."""
    guards: set[str] = field(default_factory=set)
    """What the compiled graph holds for, of its symbols."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Of the only GEMM."""
        (only,) = self.autotuned
        return only.choices


def lower(
    function: Callable[..., Any],
    *arguments: Tensor,
    handler: InductorChoices,
    **how: Any,
) -> Lowered:
    """Lowers down to where choices would be compiled and benchmarked: the first of them is taken. See `graph_of`."""
    told = Lowered()
    with _listening(told.autotuned), graph_of(function, *arguments, handler=handler, **how) as (graph, tensors):
        graph.run(*tensors)
        told.layouts = [
            (type(buffer.layout).__name__, tuple(int(stride) for stride in buffer.get_stride()))
            for buffer in graph.buffers
            if not any(getattr(stride, "free_symbols", None) for stride in buffer.get_stride())
        ]
        told.guards = {str(guard.expr) for guard in graph.sizevars.shape_env.guards}
    return told


@contextmanager
def graph_of(
    function: Callable[..., Any],
    *arguments: Tensor,
    handler: InductorChoices,
    hardware: Hardware = H200,
    others: Sequence[Hardware] = (),
    prepare: Callable[[GraphModule], object] | None = None,
    cpp_wrapper: bool = False,
    decompose: bool = False,
    **settings: Any,
) -> Iterator[tuple[GraphLowering, list[torch.Tensor]]]:
    """A function as a graph of Inductor's that can be run, for `hardware` as device 0 and `others` behind it.

    `prepare` changes the graph as Inductor's passes do, and `decompose` applies Inductor's decompositions.
    """
    fake = FakeTensorMode(shape_env=ShapeEnv())
    with ExitStack() as stack:
        stack.enter_context(described_gpu(hardware, *others))
        stack.enter_context(config.patch({"max_autotune": True, **TMA, **settings}))
        tensors = [argument.make(fake) for argument in arguments]
        with fake:
            table = select_decomp_table() if decompose else None
            traced = make_fx(function, table, tracing_mode="real")(*tensors)
            if prepare is not None:
                with V.set_fake_mode(fake):
                    prepare(traced)
        graph = GraphLowering(traced, example_inputs=tensors, shape_env=fake.shape_env, cpp_wrapper=cpp_wrapper)
        for scope in (V.set_choices_handler(handler), V.set_graph_handler(graph), V.set_fake_mode(fake), fake):
            stack.enter_context(scope)
        yield graph, tensors


@contextmanager
def _listening(autotuned: list[Autotuned]) -> Iterator[None]:
    selector = get_algorithm_selector_cache()
    stop_taking_back()
    before = list(selector.preprocessing_fns)

    def listen(choices: Sequence[Any]) -> Sequence[Any]:
        # Whoever came later has a say first.
        functions = selector.preprocessing_fns
        for function in functions[functions.index(listen) + 1 :]:
            choices = function(choices)
        autotuned.append(Autotuned(tuple(choice_from_caller(choice) for choice in choices)))
        return choices[:1]

    selector.add_preprocessing_fn(listen)
    try:
        yield
    finally:
        selector.preprocessing_fns = before
