"""Choices as columns of numbers, made once for a list of choices and used for every problem that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.types import AtenChoice, Choice, DecomposeKConfig, PersistentTMAConfig, TritonGEMMConfig

Floats = NDArray[np.float64]

TILED, PERSISTENT, LIBRARY, DECOMPOSED, UNKNOWN = range(5)
"""Kinds of choice, as codes."""

_LIBRARY_TILE: Final = (128, 256, 64, 4, 8)
"""Blocks, stages and warps that a library's kernel is described with: what it runs is not known."""


@dataclass(frozen=True, eq=False)
class ChoiceTable:
    """One entry per choice."""

    kind: NDArray[np.int8]
    block_m: Floats
    block_n: Floats
    block_k: Floats
    stages: Floats
    warps: Floats
    group_m: Floats
    k_split: Floats
    even_k: NDArray[np.bool_]
    adds_bias_itself: NDArray[np.bool_]
    """A library kernel that takes the bias as a vector."""

    @classmethod
    def of(cls, choices: Sequence[Choice]) -> ChoiceTable:
        rows = np.array([_row(choice) for choice in choices], dtype=np.float64).reshape(len(choices), 10)
        return cls(
            kind=rows[:, 0].astype(np.int8),
            block_m=rows[:, 1],
            block_n=rows[:, 2],
            block_k=rows[:, 3],
            stages=rows[:, 4],
            warps=rows[:, 5],
            group_m=rows[:, 6],
            k_split=rows[:, 7],
            even_k=rows[:, 8] > 0,
            adds_bias_itself=rows[:, 9] > 0,
        )

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> ChoiceTable:
        return ChoiceTable(**{name: column[rows] for name, column in vars(self).items()})


def _row(choice: Choice) -> tuple[float, ...]:
    if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig):
        kind = PERSISTENT if isinstance(choice, PersistentTMAConfig) else TILED
        blocks = (choice.block_m, choice.block_n, choice.block_k, choice.num_stages, choice.num_warps)
        return (kind, *blocks, choice.group_m, 1, choice.even_k, 0)
    if isinstance(choice, AtenChoice):
        return (LIBRARY, *_LIBRARY_TILE, 8, 1, 0, choice.kernel == "bias_addmm")
    if isinstance(choice, DecomposeKConfig):
        return (DECOMPOSED, *_LIBRARY_TILE, 8, choice.k_split, 0, 0)
    return (UNKNOWN, *_LIBRARY_TILE, 8, 1, 0, 0)
