"""Runs planned kernels under Triton's interpreter, on this CPU: a program of its own, since Triton decides at import.

Reads problems as JSON from stdin; writes, for each config that was run on one of them in both forms, how far the
results are from what torch computes, relative to its largest value, and whether both are the same to the last bit.
"""

from __future__ import annotations

import os
import re
import sys

os.environ["TRITON_INTERPRET"] = "1"

from dataclasses import replace

import msgspec
import torch
from triton.runtime import interpreter

from diode.collection.gpu.operands import Operands
from diode.collection.kernels.compiler import _load
from diode.collection.planning import PlannedKernel, Planner, PlanRequest
from diode.types import MMShape, PersistentTMAConfig
from diode.types.known_hardware import H200

EVERY = 7
"""How many of a problem's configs are left out for each one that is run."""


_patch_lang_tensor = interpreter._patch_lang_tensor


def _with_indices(tensor, scope):
    """Up to 3.6 Triton has numpy make a number of an array of one element, which numpy 2.4 refuses."""
    _patch_lang_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = _with_indices


def interpretable(text: str) -> str:
    """The interpreter keeps constants as Python's integers, and takes comparisons of single values for integers."""
    text = re.sub(r"\b(r[mnk])\.to\(tl\.int32\)", r"\1", text)
    return text.replace("(idx_q < BATCH)", "(idx_q + 0 * idx_m < BATCH)")


def run_kernel(operands: Operands, kernel: PlannedKernel) -> torch.Tensor:
    operands.poison()
    function = _load(replace(kernel.source, text=interpretable(kernel.source.text)), kernel.key)
    tensors = {"arg_A": operands.a, "arg_B": operands.b, "in_ptr0": operands.bias}
    pointers = [name for name, kind in kernel.source.signature if kind.startswith("*")]
    function[kernel.grid](*(tensors.get(name, operands.out) for name in pointers), *kernel.sizes)
    return operands.out.clone()


def true_result(operands: Operands) -> torch.Tensor:
    product = torch.matmul(operands.a.double(), operands.b.double())
    return product if operands.bias is None else product + operands.bias


def runs(planner: Planner, problem: MMShape) -> list[dict[str, object]]:
    forms = [planner.plan(PlanRequest(problem, H200, "DEFAULT", form=form)).choices for form in ("static", "family")]
    pairs = [(s.choice, s.kernel, f.kernel) for s, f in zip(*forms, strict=True) if s.kernel and f.kernel]
    # With one row, Inductor's template describes A by strides that no tensor descriptor can have.
    one_row = problem.M == 1
    first_tma = [pair for pair in pairs if isinstance(pair[0], PersistentTMAConfig) and not one_row][:1]
    pairs = [pair for pair in pairs if not isinstance(pair[0], PersistentTMAConfig)]
    operands = Operands(problem, torch.device("cpu"))
    truth = true_result(operands)
    done: list[dict[str, object]] = []
    for choice, static, family in dict.fromkeys([*pairs[:: EVERY + 1], *first_tma]):
        results = [run_kernel(operands, kernel) for kernel in (static, family)]
        errors = [float((found.double() - truth).abs().max() / truth.abs().max()) for found in results]
        done.append({"problem": problem, "choice": choice, "errors": errors, "same": torch.equal(*results)})
    return done


if __name__ == "__main__":
    problems = msgspec.json.decode(sys.stdin.buffer.read(), type=list[MMShape])
    planner = Planner()
    sys.stdout.buffer.write(msgspec.json.encode([run for problem in problems for run in runs(planner, problem)]))
