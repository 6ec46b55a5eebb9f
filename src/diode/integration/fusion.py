"""What a library kernel loses beside a template that could take the next op into its epilogue."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._inductor.virtualized import V

from diode.features import least_us
from diode.types import Hardware, MMShape

_LAUNCH_US: Final = 1.0
"""What another kernel in a row costs at least."""
_BANDWIDTH_GBS: Final = 1000.0
"""Of a device that does not tell its own."""


def fusion_saving(hardware: Hardware, problem: MMShape) -> float:
    """The intermediate result is written and read again, and one more kernel starts; as a share of the least time."""
    node = getattr(V.graph, "current_node", None)
    users = list(node.users) if node is not None else []
    if not users or not all(_is_pointwise(user) for user in users):
        return 0.0
    item = getattr(torch, problem.out.dtype).itemsize
    bandwidth = (hardware.memory_bandwidth_gbs or _BANDWIDTH_GBS) * 1e3
    return float((2 * problem.matrix_elements[2] * item / bandwidth + _LAUNCH_US) / least_us(hardware, problem))


def _is_pointwise(node: Any) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())
