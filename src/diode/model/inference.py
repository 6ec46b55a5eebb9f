"""Networks as plain arrays: what runs inside a user's compile.

There, dispatch modes, autocast, a default device, and thread settings of the user's are in force. NumPy knows none of
them, so a prediction is the same wherever it is made, and no call of ours enters torch's dispatcher. The same network
on a GPU, or compiled, is `diode.model.networks`; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.model.spec import CLIP, NORM_EPSILON, NetworkSpec

Array = NDArray[np.float32]

_LARGEST_EXPONENT: Final = 80.0


class ArrayNetwork:
    """Computes what `TimingNetwork` does, from its parameters as arrays."""

    def __init__(self, spec: NetworkSpec, parameters: Mapping[str, Array]) -> None:
        self.spec = spec
        center, scale = parameters["center"], parameters["scale"]
        self._low, self._high = center - CLIP / scale, center + CLIP / scale
        weight, bias = parameters["input.weight"], parameters["input.bias"]
        # The normalisation goes into the first layer: one pass over the features less.
        folded = {"input.weight": scale[:, None] * weight, "input.bias": bias - (center * scale)[None, :] @ weight}
        self._parameters = {**parameters, **folded}

    def __call__(self, features: Array) -> Array:
        """`[rows, columns]` to `[members, rows, outputs]`."""
        clipped = np.maximum(features, self._low)  # twice as fast as numpy's clip
        values = _silu(self._linear("input", np.minimum(clipped, self._high, out=clipped)))
        if self.spec.type == "base":
            for number in range(self.spec.layers - 1):
                values = _silu(self._linear(f"layers.{number}", values))
        else:
            for number in range(self.spec.layers):
                inner = _silu(self._linear(f"expand.{number}", _normalised(values)))
                values += self._linear(f"reduce.{number}", inner)
        out = self._linear("head", values)
        out[..., 0] += self._parameters["offset"]
        return out

    def _linear(self, name: str, values: Array) -> Array:
        out: Array = values @ self._parameters[f"{name}.weight"]
        out += self._parameters[f"{name}.bias"]
        return out


def _silu(values: Array) -> Array:
    decay = np.exp(np.minimum(-values, np.float32(_LARGEST_EXPONENT)))
    out: Array = values / (np.float32(1.0) + decay)
    return out


def _normalised(values: Array) -> Array:
    centered: Array = values - values.mean(-1, keepdims=True)
    out: Array = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + np.float32(NORM_EPSILON))
    return out
