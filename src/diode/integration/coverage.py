"""What is diode's to choose, and what of it a model can judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch._inductor import config as inductor_config

from diode.errors import SelectionError
from diode.integration.candidates import Space, is_rankable
from diode.model.card import ModelCard
from diode.types import MMShape

_FOR_AUTOHEURISTIC: Final = "-ah"
"""Ends the name of a call for more candidates of a GEMM."""


def leaves_choosing_to_us(op_name: str) -> bool:
    """Whether torch, as it is configured here, would benchmark this GEMM."""
    if not (inductor_config.max_autotune or inductor_config.max_autotune_gemm):
        return False
    # The library kernel is taken then, whatever the sizes are, and whichever model is at hand.
    if getattr(inductor_config, "deterministic", False) or getattr(inductor_config, "batch_invariant", False):
        return False
    # AutoHeuristic ranks the choices itself, and fails where one that it knows is missing.
    return not inductor_config.run_autoheuristic(op_name.removesuffix(_FOR_AUTOHEURISTIC))


def check_covers(card: ModelCard, problem: MMShape, spaces: Sequence[Space]) -> None:
    """Raises where a model has not learned what it would have to judge."""
    precision = "tf32" if problem.allow_tf32 else problem.a.dtype
    if precision not in card.precisions:
        raise SelectionError(
            "fallback_unsupported_op",
            f"{card} knows {', '.join(card.precisions)}, not {precision}: train a model on that type",
        )
    types = {operand.dtype for operand in (problem.a, problem.b, problem.out, problem.bias) if operand is not None}
    if len(types) > 1 and problem.op != "int_mm":
        raise SelectionError(
            "fallback_unsupported_op", f"{problem} mixes {', '.join(sorted(types))}: diode has no model of that"
        )
    if getattr(inductor_config, "multi_kernel_hints", None):
        raise SelectionError("fallback_unsupported_op", "multi_kernel_hints asks for kernels that diode does not know")
    others = [space for space in spaces if space.uid.startswith("triton::") and len(space.table)]
    if others and not any(is_rankable(space, card.templates) for space in others):
        uids = ", ".join(space.uid for space in others)
        raise SelectionError("fallback_unsupported_op", f"{card} knows none of {uids}: train a model on them")
