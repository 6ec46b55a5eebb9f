"""The sizes that a kernel will meet where some of them are symbols: a small grid around the hint."""

from __future__ import annotations

from typing import Any, Final

import sympy  # type: ignore[import-untyped]  # it has no types
from torch._inductor.virtualized import V

from diode.integration.conversion import assuming, problem_from_inputs
from diode.types import MMShape

_FACTORS: Final = (0.25, 0.5, 2.0, 4.0)


def sizes_to_serve(op_name: str, kernel_inputs: Any, hint: MMShape) -> tuple[MMShape, ...]:
    """The hint, then what is smaller and larger within the bounds that the graph knows of its symbols."""
    symbols: set[Any] = set()
    for size in (size for node in kernel_inputs.nodes() for size in node.get_size()):
        symbols |= getattr(size, "free_symbols", set())
    if not symbols:
        return (hint,)
    sizes = [hint]
    for factor in _FACTORS:
        assumed = {symbol: value for symbol in symbols if (value := _scaled(symbol, factor)) is not None}
        with assuming(assumed):
            problem = problem_from_inputs(op_name, kernel_inputs)
        if isinstance(problem, MMShape) and problem not in sizes:
            sizes.append(problem)
    return tuple(sizes)


def _scaled(symbol: sympy.Symbol, factor: float) -> int | None:
    """A multiple of the symbol's hint, within its bounds; None where it has no hint of its own."""
    sizevars: Any = V.graph.sizevars
    try:
        # torch 2.10 has no method of the newer name
        hint = (
            sizevars.optimization_hint(symbol) if hasattr(sizevars, "optimization_hint") else sizevars.size_hint(symbol)
        )
    except (TypeError, ValueError):
        return None
    bounds = sizevars.shape_env.var_to_range.get(symbol)
    wanted = max(1, round(int(hint) * factor))
    if bounds is None:
        return wanted
    # Torch's own infinity says that it is finite.
    lower, upper = (int(b) if isinstance(b, sympy.Integer) else wanted for b in (bounds.lower, bounds.upper))
    return min(max(wanted, lower), upper)
