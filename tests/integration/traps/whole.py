"""Whole compiles for a GPU that is only described: down to the source of kernels and wrapper, and what they compute."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.integration.choices.lab import Tensor, graph_of
from torch._inductor.choices import InductorChoices
from torch._inductor.debug import DebugContext
from torch._inductor.virtualized import V

from diode.collection.kernels.compiler import CompiledKernel, CompileTarget, compile_kernel
from diode.collection.kernels.pattern import KernelSource
from diode.integration.lowering import _parse_module
from diode.types import Hardware

_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('\w+', '''(.*?)''', device_str='cuda'\)$", re.M | re.S)
_BUFFER = re.compile(r"^ +(\w+) = empty_strided_\w+\(\(([^()]*)\), \(([^()]*)\)", re.M)
_INTERPRETED = Path(__file__).with_name("interpreted.py")


@dataclass(frozen=True)
class Generated:
    """What would be compiled and run."""

    source: str

    @property
    def kernels(self) -> dict[str, str]:
        return dict(_KERNEL.findall(self.source))

    @property
    def templates(self) -> list[str]:
        """Sources of the kernels that are made of a GEMM template, with whatever was fused into them."""
        return [source for name, source in self.kernels.items() if name.startswith("triton_tem")]

    @property
    def library_calls(self) -> list[str]:
        return re.findall(r"extern_kernels\.(\w+)\(", self.source)

    @property
    def strides(self) -> dict[str, tuple[int, ...]]:
        """Of every buffer that is allocated."""
        return {
            name: tuple(int(stride) for stride in strides.split(",") if stride.strip())
            for name, _, strides in _BUFFER.findall(self.source)
        }

    def constant(self, name: str) -> str:
        """As the only template has it."""
        (template,) = self.templates
        found = re.search(rf"^ +{name}(?: : tl\.constexpr)? = (.+)$", template, re.M)
        assert found, f"no {name} in the template"
        return found.group(1)


def generated(function: Callable[..., Any], *arguments: Tensor, handler: InductorChoices, **how: Any) -> Generated:
    """All of Inductor but the last step, the compilers. Where it benchmarks anything, this fails: there is no GPU."""
    with graph_of(function, *arguments, handler=handler, **how) as (graph, tensors):
        graph.run(*tensors)
        with V.set_debug_handler(DebugContext()):
            code, _ = graph.codegen()
    return Generated(code if isinstance(code, str) else code.value)


def compiled(template: str, hardware: Hardware) -> CompiledKernel:
    """A kernel as Triton compiles it for a GPU, which need not be there."""
    rendered = _parse_module(template, (1, 1, 1))
    source = KernelSource(
        rendered.source, rendered.signature, rendered.aligned, rendered.num_warps, rendered.num_stages
    )
    return compile_kernel(source, CompileTarget.of(hardware))


def computed(work: Sequence[tuple[Generated, Sequence[torch.Tensor]]], folder: Path) -> list[list[torch.Tensor]]:
    """What each computes of its arguments, in Triton's interpreter."""
    path = folder / "work.pt"
    torch.save([(whole.source, list(arguments)) for whole, arguments in work], path)
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, _INTERPRETED, path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    results: list[list[torch.Tensor]] = torch.load(path)
    return results
