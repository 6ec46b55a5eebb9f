"""Problems of all kinds and the choices that Inductor has for them, to ask models about."""

from __future__ import annotations

from itertools import product
from typing import Final

from diode.types import AtenChoice, Choice, DecomposeKConfig, MMShape, PersistentTMAConfig, TritonGEMMConfig

PROBLEMS: Final = (
    MMShape.of("mm", 4096, 4096, 4096, layout="NT"),
    MMShape.of("mm", 1, 1, 1),
    MMShape.of("mm", 16, 12288, 4096, dtype="float16", layout="NT"),
    MMShape.of("mm", 1000, 77, 3001, dtype="float32"),
    MMShape.of("mm", 512, 512, 65536, dtype="float32", layout="TN", allow_tf32=True),
    MMShape.of("mm", 131072, 32768, 16384),
    MMShape.of("addmm", 2048, 3072, 768, layout="NT"),
    MMShape.of("bmm", 128, 64, 128, B=96, dtype="float16"),
    MMShape.of("baddbmm", 64, 64, 64, B=7),
)
"""From the smallest to what hardly fits a GPU, ragged ones too."""

_BLOCKS, _STAGES, _WARPS = (16, 32, 64, 128, 256), (2, 4), (4, 8)


def choices_for(problem: MMShape) -> tuple[Choice, ...]:
    """More than a model with a screen looks at closely, of every kind, in no particular order."""
    batched = problem.op in ("bmm", "baddbmm")
    template = "triton::bmm" if batched else "triton::mm"
    found: list[Choice] = [
        TritonGEMMConfig(template, m, n, k, stages, warps)
        for m, n, k, stages, warps in product(_BLOCKS, _BLOCKS, (32, 64), _STAGES, _WARPS)
    ]
    if not batched:
        found += [
            PersistentTMAConfig("triton::mm_persistent_tma", m, n, 64, stages, 8, True, False, 132)
            for m, n, stages in product((64, 128), (64, 128, 256), _STAGES)
        ]
        found.append(DecomposeKConfig(8))
    return (*found, AtenChoice(problem.op))
