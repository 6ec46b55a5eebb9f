"""A problem as a module, in the form in which Inductor has choices for it on a CPU."""

from __future__ import annotations

from typing import Final

import torch

from diode.collection.gpu.operands import Operands

OPS: Final = ("mm", "addmm", "bmm", "baddbmm")


class Product(torch.nn.Module):
    """`b` and the bias of an mm are weights, as in a Linear: for operands that may change, Inductor has ATen alone."""

    def __init__(self, operands: Operands) -> None:
        super().__init__()
        self.op = operands.problem.op
        a, b, bias = operands.a, operands.b, operands.bias
        self.inputs = (a, b) if b.dim() == 3 else (a,)
        self.weight = None if b.dim() == 3 else _constant(b)
        self.bias = None if bias is None else _constant(_unexpanded(bias))
        self.eval()

    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        second = self.weight if b is None else b
        assert second is not None
        if self.bias is None:
            return torch.mm(a, second) if self.op == "mm" else torch.bmm(a, second)
        if self.op == "addmm":
            return torch.addmm(self.bias, a, second)
        return torch.baddbmm(self.bias, a, second)


def _constant(tensor: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(tensor, requires_grad=False)


def _unexpanded(bias: torch.Tensor) -> torch.Tensor:
    """The bias as a model has it: a vector, say, where all rows of its expansion are the same memory."""
    for dimension, stride in enumerate(bias.stride()):
        if stride == 0:
            bias = bias.narrow(dimension, 0, 1)
    return bias[0] if bias.dim() == 2 and bias.shape[0] == 1 else bias
