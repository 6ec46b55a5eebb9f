"""The option by which Inductor offers its persistent TMA templates, where switching it on takes nothing from a user."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_symbols

ADDED_TEMPLATES: Final = (
    "triton::mm_persistent_tma",
    "triton::mm_persistent",
    "triton::blackwell_ws_persistent_device_tma",
)
"""What Inductor offers of its own for an mm or addmm where the option is on, each on its kind of GPU."""

_GEMMS: Final = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class OnForStaticGemms(int):
    """A value of `triton.enable_persistent_tma_matmul`: true, but while Inductor lowers what it would do harm to.

    To see whether a tensor can be described for TMA, Inductor guards on each of its sizes: a graph with symbolic sizes
    would be compiled for one of them only. And the templates of ops that no model knows would be other ones.
    """

    def __new__(cls) -> OnForStaticGemms:
        return super().__new__(cls, 1)

    def __bool__(self) -> bool:
        node = getattr(V.graph, "current_node", None)
        return node is None or (node.target in _GEMMS and all(_is_static(given) for given in node.all_input_nodes))

    def __repr__(self) -> str:
        return repr(True)

    def __reduce__(self) -> tuple[Any, ...]:
        return OnForStaticGemms, ()


def _is_static(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not free_symbols(value)
