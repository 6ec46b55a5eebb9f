"""The tensors of a problem, its reference result, and what PyTorch itself can run for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from diode.types import AtenChoice, Choice, DecomposeKConfig, MMShape, Operand

_RELATIVE_ERROR: Final = {"bfloat16": 4e-3, "float16": 1e-3, "float32": 2e-5, "tf32": 2e-3}
_LARGEST_ERROR: Final = {"bfloat16": 0.06, "float16": 0.01, "float32": 1e-3, "tf32": 0.05}


class Operands:
    """Random operands in the problem's layouts, an output, and a reference computed in higher precision."""

    def __init__(self, problem: MMShape, device: torch.device, seed: int = 0) -> None:
        self.problem = problem
        generator = torch.Generator(device=device).manual_seed(seed)
        batch = (problem.B,) if len(problem.a.strides) == 3 else ()
        self.a = _random(problem.a, (*batch, problem.M, problem.K), generator)
        self.b = _random(problem.b, (*batch, problem.K, problem.N), generator)
        self.out = torch.empty_strided(
            (*batch, problem.M, problem.N), problem.out.strides, dtype=_dtype(problem.out), device=device
        )
        self.bias = None
        if problem.bias is not None:
            self.bias = _random(problem.bias, (*batch, problem.M, problem.N), generator)
        self._reference: torch.Tensor | None = None
        self._norm = torch.ones((), device=device)

    def pointer(self, argument: str) -> int:
        """The address for an argument of one of Inductor's kernels."""
        if argument == "arg_A":
            return self.a.data_ptr()
        if argument == "arg_B":
            return self.b.data_ptr()
        if argument.startswith("in_ptr") and self.bias is not None:
            return self.bias.data_ptr()
        if argument.startswith("out_ptr"):
            return self.out.data_ptr()
        return self.out.data_ptr()  # a workspace that this generation of templates declares and does not touch

    def backend_launch(self, choice: Choice) -> Callable[[], object] | None:
        """What PyTorch runs for a choice that is no Triton kernel; None where it has nothing."""
        torch.backends.cuda.matmul.allow_tf32 = self.problem.allow_tf32
        if isinstance(choice, AtenChoice):
            return self._aten(choice.kernel)
        if isinstance(choice, DecomposeKConfig):
            return self._decompose_k(choice.k_split)
        return None

    def poison(self) -> None:
        self.out.fill_(float("nan"))

    def errors(self) -> torch.Tensor:
        """Relative and largest error of the output, left on the GPU: waiting for each would cost more than the work."""
        if self._reference is None:
            self._reference = self._compute_reference()
            self._norm = torch.linalg.vector_norm(self._reference)
        difference = self.out.to(self._reference.dtype).sub_(self._reference)
        norm = torch.linalg.vector_norm(difference)
        largest = torch.linalg.vector_norm(difference, float("inf")) * difference.numel() ** 0.5
        return torch.stack((norm, largest)) / self._norm

    def verdict(self, relative: float, largest: float) -> str | None:
        """What is wrong with an output of these errors, or None."""
        precision = "tf32" if self.problem.allow_tf32 else self.problem.a.dtype
        if relative <= _RELATIVE_ERROR[precision] and largest <= _LARGEST_ERROR[precision]:
            return None
        return f"relative error {relative:.2g}, largest {largest:.2g} of the result's root mean square"

    def _compute_reference(self) -> torch.Tensor:
        wide = torch.float64 if self.problem.a.dtype == "float32" and not self.problem.allow_tf32 else torch.float32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            result = torch.matmul(self.a.to(wide), self.b.to(wide))
        finally:
            torch.backends.cuda.matmul.allow_tf32 = self.problem.allow_tf32
        return result if self.bias is None else result.add_(self.bias)

    def _aten(self, kernel: str) -> Callable[[], object] | None:
        a, b, out, bias = self.a, self.b, self.out, self.bias
        if kernel in ("mm", "bmm"):
            operation = torch.mm if kernel == "mm" else torch.bmm
            return lambda: operation(a, b, out=out)
        if bias is None:
            return None
        if kernel == "addmm":
            return lambda: torch.addmm(bias, a, b, out=out)
        if kernel == "bias_addmm":
            # A vector takes another route through cuBLASLt than its expansion does.
            vector = bias[0]
            return lambda: torch.addmm(vector, a, b, out=out)
        if kernel == "baddbmm":
            return lambda: torch.baddbmm(bias, a, b, out=out)
        return None

    def _decompose_k(self, split: int) -> Callable[[], object]:
        problem = self.problem
        part = problem.K // split
        a = self.a.reshape(problem.M, split, part).permute(1, 0, 2)
        b = self.b.reshape(split, part, problem.N)
        out, reduce = self.out, _reduction()
        return lambda: reduce(torch.bmm(a, b, out_dtype=torch.float32), out)


_compiled_reduction: Callable[[torch.Tensor, torch.Tensor], object] | None = None


def _reduction() -> Callable[[torch.Tensor, torch.Tensor], object]:
    """The sum over the parts of K as Inductor compiles it, once for all sizes."""
    global _compiled_reduction
    if _compiled_reduction is None:

        def reduce(parts: torch.Tensor, out: torch.Tensor) -> None:
            out.copy_(parts.sum(0).to(out.dtype))

        _compiled_reduction = torch.compile(reduce, dynamic=True)
    return _compiled_reduction


def _random(operand: Operand, sizes: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, operand.strides, strict=True))
    storage = torch.randn(extent, generator=generator, device=generator.device, dtype=torch.float32)
    return storage.to(_dtype(operand)).as_strided(sizes, operand.strides)


def _dtype(operand: Operand) -> torch.dtype:
    dtype = getattr(torch, operand.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype
