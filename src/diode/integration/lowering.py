"""Asks Inductor itself which choices it would try for a problem, and what their kernels look like."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor.choices import InductorChoices
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import NoValidChoicesError
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from diode.errors import UnsupportedError
from diode.integration.conversion import choice_from_ktc
from diode.integration.described import described_gpu
from diode.types import Choice, Hardware, MMShape, Operand, SearchSpace

_OPS: dict[str, Callable[..., torch.Tensor]] = {
    "mm": torch.mm,
    "addmm": torch.addmm,
    "bmm": torch.bmm,
    "baddbmm": torch.baddbmm,
}


@dataclass(frozen=True)
class RenderedKernel:
    """A Triton kernel as Inductor wrote it, for one problem and config."""

    source: str
    """From the `@triton.jit` line to the end."""
    signature: tuple[tuple[str, str], ...]
    aligned: tuple[int, ...]
    """Positions of the arguments that are known to be divisible by 16."""
    num_stages: int
    num_warps: int
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Candidate:
    """One choice for a lowered problem, and the way to its kernel while the lowering is open."""

    choice: Choice
    _ktc: Any

    def render(self) -> RenderedKernel | None:
        """The kernel's source; None for what is no Triton template, or is refused by its template."""
        caller = self._ktc.choice
        request = getattr(caller, "bmreq", None)
        if request is None or not hasattr(request, "module_path"):
            return None
        extra = [int(value) for value in request.extra_args if isinstance(value, int)]
        grid = getattr(request, "grid", None) or tuple(extra[-3:])
        return _parse_module(Path(request.module_path).read_text(), (int(grid[0]), int(grid[1]), int(grid[2])))


class _Recorder(InductorChoices):
    """Takes what Inductor generates for each template and lets none of it go on to autotuning."""

    def __init__(self) -> None:
        super().__init__()
        self.generated: list[Any] = []

    def uuid(self) -> str:
        return "diode-recorder"

    def _finalize_template_configs(
        self, template_choices: Any, kernel_inputs: Any, templates: Any, op_name: str, kwarg_overrides: Any = None
    ) -> list[Any]:
        layout = kernel_inputs.output_layout(flexible=False)
        for generated in template_choices.values():
            for ktc in generated:
                ktc.layout = layout
                self.generated.append(ktc)
        return []


@contextmanager
def lowered(problem: MMShape, space: SearchSpace, hardware: Hardware) -> Iterator[list[Candidate]]:
    """The choices that Inductor's heuristics generate for `problem` on `hardware`, persistent TMA included."""
    operation = _OPS.get(problem.op)
    if operation is None:
        raise UnsupportedError(f"cannot lower {problem.op!r}: the sweep knows {', '.join(sorted(_OPS))}")
    fake = FakeTensorMode(shape_env=ShapeEnv())
    recorder = _Recorder()
    settings = {
        "max_autotune": True,
        "max_autotune_gemm_search_space": space,
        "triton.enable_persistent_tma_matmul": True,
        "enable_caching_generated_triton_templates": False,
    }
    known = {name: value for name, value in settings.items() if _has_setting(name)}
    with described_gpu(hardware), inductor_config.patch(known), _tf32(problem.allow_tf32):
        with fake:
            arguments = [_fake_operand(operand, sizes) for operand, sizes in _operands(problem)]
            graph_module = make_fx(operation, tracing_mode="real")(*arguments)
        graph = GraphLowering(graph_module, example_inputs=arguments, shape_env=fake.shape_env)
        with V.set_choices_handler(recorder), V.set_graph_handler(graph), V.set_fake_mode(fake), fake:
            try:
                graph.run(*arguments)
            except Exception as error:
                if not _is_no_valid_choice(error):
                    raise
            yield [Candidate(choice_from_ktc(ktc), ktc) for ktc in recorder.generated]


def _operands(problem: MMShape) -> list[tuple[Operand, tuple[int, ...]]]:
    batch = (problem.B,) if len(problem.a.strides) == 3 else ()
    operands = [
        (problem.a, (*batch, problem.M, problem.K)),
        (problem.b, (*batch, problem.K, problem.N)),
    ]
    if problem.bias is not None:
        sizes = (*batch, problem.M, problem.N)
        kept = next((i for i, stride in enumerate(problem.bias.strides) if stride != 0), len(sizes))
        bias = Operand(problem.bias.dtype, problem.bias.strides[kept:])
        operands.insert(0, (bias, sizes[kept:]))
    return operands


def _fake_operand(operand: Operand, sizes: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(sizes, operand.strides, dtype=getattr(torch, operand.dtype), device="cuda:0")


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@cache
def _has_setting(name: str) -> bool:
    owner: object = inductor_config
    for part in name.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def _is_no_valid_choice(error: BaseException) -> bool:
    """Whether the lowering ended where the recorder meant it to end."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, NoValidChoicesError) or NoValidChoicesError.__name__ in str(cause):
            return True
        cause = cause.__cause__ or getattr(cause, "inner_exception", None)
    return False


def _parse_module(text: str, grid: tuple[int, int, int]) -> RenderedKernel:
    module = ast.parse(text)
    function = next(node for node in module.body if isinstance(node, ast.FunctionDef))
    decorator = next(node for node in function.decorator_list if isinstance(node, ast.Call))
    keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
    meta_node = keywords["triton_meta"]
    assert isinstance(meta_node, ast.Dict)
    meta = {
        ast.literal_eval(key): value
        for key, value in zip(meta_node.keys, meta_node.values, strict=True)
        if key is not None
    }
    attributes = ast.literal_eval(meta["configs"])[0]
    return RenderedKernel(
        source=text[text.index("@triton.jit") :],
        signature=tuple(ast.literal_eval(meta["signature"]).items()),
        aligned=tuple(sorted(position for (position,) in attributes)),
        num_stages=ast.literal_eval(keywords["num_stages"]),
        num_warps=ast.literal_eval(keywords["num_warps"]),
        grid=grid,
    )
