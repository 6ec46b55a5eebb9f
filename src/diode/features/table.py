"""Choices as columns of numbers, made once for a list of choices and used for every problem that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from diode.types import AtenChoice, Choice, DecomposeKConfig, PersistentTMAConfig, TritonGEMMConfig

CHOICE_COLUMNS: Final = (
    "is_tiled",
    "is_persistent",
    "is_library",
    "is_decomposed",
    "adds_bias_itself",
    "log_block_m",
    "log_block_n",
    "log_block_k",
    "log_area",
    "log_aspect",
    "stages",
    "one_stage",
    "log_warps",
    "log_area_per_warp",
    "log_k_split",
    "tensor_core_rows",
)

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

TILED, PERSISTENT, LIBRARY, DECOMPOSED, UNKNOWN = range(5)
"""Kinds of choice, as codes."""

_LIBRARY_TILE: Final = (128, 256, 64, 4, 8)
"""Blocks, stages and warps that a library's kernel is described with: what it runs is not known."""
_LIBRARY_STAGE_ELEMENTS: Final = 1024
"""What a library's kernel holds in shared memory fits in any precision, or it would not be there."""


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
    adds_bias_itself: NDArray[np.bool_]
    """A library kernel that takes the bias as a vector."""

    @classmethod
    def of(cls, choices: Sequence[Choice]) -> ChoiceTable:
        rows = np.array([_row(choice) for choice in choices], dtype=np.float64).reshape(len(choices), 9)
        return cls(
            kind=rows[:, 0].astype(np.int8),
            block_m=rows[:, 1],
            block_n=rows[:, 2],
            block_k=rows[:, 3],
            stages=rows[:, 4],
            warps=rows[:, 5],
            group_m=rows[:, 6],
            k_split=rows[:, 7],
            adds_bias_itself=rows[:, 8] > 0,
        )

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def joined(cls, tables: Sequence[ChoiceTable]) -> ChoiceTable:
        """One table after the other; what was computed for them once is not computed again."""
        names = [field.name for field in fields(cls)]
        whole = cls(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in names})
        whole.__dict__["columns"] = np.concatenate([table.columns for table in tables], axis=1)
        return whole

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> ChoiceTable:
        taken = ChoiceTable(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})
        taken.__dict__["columns"] = self.columns[:, rows]
        return taken

    @cached_property
    def steps_through_k(self) -> NDArray[np.bool_]:
        """Choices whose loop over K Inductor writes: what else runs is not known."""
        steps: NDArray[np.bool_] = self.kind <= PERSISTENT
        return steps

    @cached_property
    def shapes(self) -> TileShapes:
        return TileShapes.of(self)

    def divides(self, size: int) -> NDArray[np.bool_]:
        """Whether a K of this size is a whole number of each choice's blocks."""
        distinct, places = self._distinct_block_k
        divides: NDArray[np.bool_] = (size % distinct == 0)[places]
        return divides

    @cached_property
    def _distinct_block_k(self) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        distinct, places = np.unique(self.block_k, return_inverse=True)
        return distinct.astype(np.int64), places

    @cached_property
    def columns(self) -> NDArray[np.float32]:
        """`CHOICE_COLUMNS`, each one piece in memory: they are the same for all problems."""
        area = self.block_m * self.block_n
        rows = [
            self.kind == TILED,
            self.kind == PERSISTENT,
            self.kind == LIBRARY,
            self.kind == DECOMPOSED,
            self.adds_bias_itself,
            np.log2(self.block_m),
            np.log2(self.block_n),
            np.log2(self.block_k),
            np.log2(area),
            np.log2(self.block_m / self.block_n),
            self.stages,
            self.stages <= 1,
            np.log2(self.warps),
            np.log2(area / self.warps),
            np.log2(self.k_split),
            (self.block_m >= 64) & (self.warps >= 4),
        ]
        return np.array(rows, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class TileShapes:
    """What of the features is the same for all problems, in the precision that features are computed with."""

    block_m: Singles
    block_n: Singles
    block_k: Singles
    stages: Singles
    warps: Singles
    group_m: Singles
    k_split: Singles
    area: Singles
    sides: Singles
    stage_elements: Singles
    """Elements in shared memory: all stages but one, for that one is in registers while it is used."""
    threads: Singles
    registers: Singles
    """Of a block, by a rule of thumb."""
    most_per_sm: Singles
    log_accumulators: Singles
    """Of one thread."""
    log_intensity: Singles

    @classmethod
    def of(cls, table: ChoiceTable) -> TileShapes:
        area, sides = table.block_m * table.block_n, table.block_m + table.block_n
        persistent = table.kind == PERSISTENT
        held_stages = np.maximum(table.stages - ((table.stages > 1) & ~persistent), 1)
        threads = table.warps * 32
        accumulators = area / threads
        columns = {
            **{name: getattr(table, name) for name in ("block_m", "block_n", "block_k", "stages", "warps")},
            "group_m": table.group_m,
            "k_split": table.k_split,
            "area": area,
            "sides": sides,
            "stage_elements": np.where(
                table.steps_through_k, sides * table.block_k * held_stages, _LIBRARY_STAGE_ELEMENTS
            ),
            "threads": threads,
            "registers": np.minimum(accumulators * 1.3 + 40, 255) * threads,
            "most_per_sm": np.where(persistent, 1, 32),
            "log_accumulators": np.log2(accumulators),
            "log_intensity": np.log2(area / sides),
        }
        return cls(**{name: column.astype(np.float32) for name, column in columns.items()})


def _row(choice: Choice) -> tuple[float, ...]:
    if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig):
        kind = PERSISTENT if isinstance(choice, PersistentTMAConfig) else TILED
        blocks = (choice.block_m, choice.block_n, choice.block_k, choice.num_stages, choice.num_warps)
        return (kind, *blocks, choice.group_m, 1, 0)
    if isinstance(choice, AtenChoice):
        return (LIBRARY, *_LIBRARY_TILE, 8, 1, choice.kernel == "bias_addmm")
    if isinstance(choice, DecomposeKConfig):
        return (DECOMPOSED, *_LIBRARY_TILE, 8, choice.k_split, 0)
    return (UNKNOWN, *_LIBRARY_TILE, 8, 1, 0)
