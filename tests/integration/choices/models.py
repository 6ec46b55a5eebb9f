"""Models whose order of choices is known, because their weights are written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diode.features import COLUMNS, SCHEMA_VERSION
from diode.model.card import ModelCard
from diode.model.fitting import FittedModel, save_model
from diode.model.spec import OUTPUTS, NetworkSpec
from diode.model.weights import encode_tensors
from diode.types.known_hardware import H200

TEMPLATES = ("aten", "triton::bmm", "triton::mm", "triton::mm_persistent_tma")
SQUARE_64 = {"log_block_m": 6.0, "log_block_n": 6.0, "log_block_k": 6.0, "stages": 3.0, "log_warps": 2.0}
"""The tile 64x64x64 with 3 stages and 4 warps."""
_SHARPNESS = 30.0
_NEVER = -1e4
"""Library kernels are described by a large tile; what is said of tiles is not said of them."""
_SCALE = 0.05  # a network clips features at 6 of these


def write_model(
    path: Path,
    *,
    likes: Mapping[str, float] | None = None,
    per_unit: float = 1.0,
    library: float = 0.0,
    persistent: float = 0.0,
    takes_bias: float = 0.0,
    sigma: float = 0.05,
    doomed: Mapping[str, float] | None = None,
    **described: Any,
) -> Path:
    """A model that predicts a choice the slower, the farther its features are from those that it likes.

    A column in `likes` adds `per_unit` to the logarithm of the time of a tiled choice for each unit of distance;
    `persistent` comes on top of that, and `library` is all that a library kernel has, with `takes_bias` on top for the
    one that takes the bias as a vector. A tiled choice whose column is
    above its value in `doomed` is said to fail.
    """
    units: list[tuple[dict[str, float], float, tuple[float, float, float]]] = []
    for column, wanted in (likes or {}).items():
        for sign in (1.0, -1.0):
            of_tiles = {column: sign * _SHARPNESS, "is_library": _NEVER}
            units.append((of_tiles, -sign * _SHARPNESS * wanted, (per_unit / _SHARPNESS, 0.0, 0.0)))
    extras = {"is_library": library, "is_persistent": persistent, "adds_bias_itself": takes_bias}
    for column, extra in extras.items():
        units.append(({column: _SHARPNESS}, 0.0, (extra / _SHARPNESS, 0.0, 0.0)))
    for column, most in (doomed or {}).items():
        units.append(({column: _SHARPNESS, "is_library": _NEVER}, -_SHARPNESS * most, (0.0, 0.0, 10.0)))
    spec = NetworkSpec("base", len(COLUMNS), len(units), 1)
    weights = np.zeros((1, len(COLUMNS), len(units)))
    bias, head = np.zeros((1, 1, len(units))), np.zeros((1, len(units), OUTPUTS))
    for number, (columns, offset, outputs) in enumerate(units):
        for column, weight in columns.items():
            weights[0, COLUMNS.index(column), number] = weight / _SCALE
        bias[0, 0, number], head[0, number] = offset, outputs
    parameters = {
        "center": np.zeros(len(COLUMNS)),
        "scale": np.full(len(COLUMNS), _SCALE),
        "offset": np.ones(1),
        "input.weight": weights,
        "input.bias": bias,
        "head.weight": head,
        "head.bias": np.array([[[0.0, np.log(sigma), -20.0]]]),
    }
    card: dict[str, Any] = {
        "name": "made-up",
        "version": "1",
        "type": "base",
        "feature_schema": SCHEMA_VERSION,
        "columns": COLUMNS,
        "sigma_scale": 1.0,
        "weights_sha256": "0" * 64,
        "hardware": (H200,),
        "ops": ("addmm", "baddbmm", "bmm", "mm"),
        "precisions": ("bfloat16", "float16", "float32", "tf32"),
        "templates": TEMPLATES,
        "network": spec,
    }
    fitted = FittedModel(ModelCard(**(card | described)), lambda suffix: encode_tensors(parameters, suffix))
    save_model(fitted, path)
    return path
