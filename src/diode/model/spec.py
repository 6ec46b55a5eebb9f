"""What a network looks like, apart from its parameters; known without torch."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

OUTPUTS: Final = 3
"""Logarithm of the time ratio, logarithm of its uncertainty, logit of a failure."""
CLIP: Final = 6.0
"""Standard deviations beyond which a feature says no more: what was never seen must not be extrapolated wildly."""
NORM_EPSILON: Final = 1e-5

NetworkType = Literal["base", "deep"]
Count = Annotated[int, msgspec.Meta(ge=1, le=4096)]


class NetworkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is needed to build a network that given parameters fit into."""

    type: NetworkType
    columns: Count
    hidden: Count
    layers: Count
    members: Count = 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter by name, in the order of `state_dict`'s names, with its shape."""
        members, columns, hidden = self.members, self.columns, self.hidden
        shapes: dict[str, tuple[int, ...]] = {
            "center": (columns,),
            "scale": (columns,),
            "offset": (1,),
        }
        inner = ("layers",) if self.type == "base" else ("expand", "reduce")
        repeats = self.layers - 1 if self.type == "base" else self.layers
        linear = [("input", columns, hidden), ("head", hidden, OUTPUTS)]
        linear += [(f"{name}.{number}", hidden, hidden) for name in inner for number in range(repeats)]
        for name, inputs, outputs in linear:
            shapes[f"{name}.weight"] = (members, inputs, outputs)
            shapes[f"{name}.bias"] = (members, 1, outputs)
        return shapes
