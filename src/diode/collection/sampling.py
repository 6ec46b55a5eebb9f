"""Which of a problem's choices to measure when not all are wanted.

The draw is decided by hashes, so it is the same everywhere, and one config gets the same lot and the same odds for all
problems of a family: their samples overlap, and each kernel that is compiled is timed on many problems.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from diode.types import Choice, Hardware, MMShape, PersistentTMAConfig, TiledConfig, TritonGEMMConfig

_TILED: Final = (TritonGEMMConfig, PersistentTMAConfig)
_SIZES: Final = (16, 64, 256, 1024, 4096, 16384)
_BLOCKS: Final = (16, 32, 64, 128, 256)
_HOPELESS: Final = 8.0
_HOPELESS_SHARE: Final = 0.1
_CHEAP_US: Final = 150.0


@dataclass(frozen=True)
class ChoiceSample:
    """`count` tiled configs per problem: a share drawn evenly, the rest with a preference for plausible ones.

    An even draw alone spends nearly all time on configs that no model needs to tell apart; a preference alone never
    learns what is bad.
    """

    count: int
    seed: int = 42
    even_share: float = 0.35
    shared: bool = False
    """Whether what is drawn for one problem is measured for all others of its family that have it, too: far more
    measurements for each kernel that is compiled."""

    def draw(self, problem: MMShape, choices: Sequence[Choice], hardware: Hardware) -> list[Choice]:
        """The sample in the order of `choices`; whatever is no tiled config is always in it."""
        drawn = self._drawn(problem, [choice for choice in choices if isinstance(choice, _TILED)], hardware)
        return [choice for choice in choices if choice in drawn or not isinstance(choice, _TILED)]

    def draw_for_family(
        self, problem: MMShape, choices: Sequence[Choice], hardware: Hardware
    ) -> frozenset[TiledConfig]:
        """What is drawn for any problem of a family, whose largest problems have these choices."""
        tiled = [choice for choice in choices if isinstance(choice, _TILED)]
        drawn: set[TiledConfig] = set()
        for most_m, most_n in itertools.product(_BLOCKS, repeat=2):
            # Inductor offers a small problem no larger blocks than it can fill.
            small = [choice for choice in tiled if choice.block_m <= most_m and choice.block_n <= most_n]
            drawn |= self._drawn(problem, small, hardware)
        return frozenset(drawn)

    def pick(
        self, problem: MMShape, choices: Sequence[Choice], drawn: Collection[TiledConfig], hardware: Hardware
    ) -> list[Choice]:
        """Of the choices of a problem those drawn for its family, without most of what would only waste time on it."""
        return [
            choice
            for choice in choices
            if not isinstance(choice, _TILED) or (choice in drawn and (self._worth_its_time(problem, choice, hardware)))
        ]

    def _worth_its_time(self, problem: MMShape, choice: TiledConfig, hardware: Hardware) -> bool:
        sm_count = hardware.sm_count or 1
        times_slower = _launch_cost(problem, choice, sm_count) / _least_launch_cost(problem, sm_count)
        if times_slower < _HOPELESS or times_slower * least_us(problem, hardware) < _CHEAP_US:
            return True
        return self._lot(problem, choice) * 2**20 % 1.0 < _HOPELESS_SHARE  # what is drawn has low lots to begin with

    def _drawn(self, problem: MMShape, tiled: Sequence[TiledConfig], hardware: Hardware) -> set[TiledConfig]:
        sm_count = hardware.sm_count or 1
        even_count = round(self.count * self.even_share)
        lots = {choice: self._lot(problem, choice) for choice in tiled}
        by_lot = sorted(tiled, key=lambda choice: lots[choice])
        drawn = set(by_lot[:even_count])
        rest = by_lot[even_count:]
        # An exponential race: the k smallest of -ln(u) / w are a weighted draw without replacement.
        rest.sort(key=lambda choice: -math.log(1.0 - lots[choice]) * _family_cost(problem.B, choice, sm_count) ** 2)
        drawn.update(rest[: self.count - len(drawn)])
        return drawn

    def _lot(self, problem: MMShape, choice: TiledConfig) -> float:
        family = (problem.op, problem.layout, problem.a.dtype, problem.allow_tf32, problem.K)
        digest = hashlib.sha256(repr((self.seed, family, choice)).encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56


@dataclass(frozen=True)
class ChoiceList:
    """A given list of configs; what follows from the problem (masks, layouts) comes from Inductor, not the list."""

    configs: frozenset[tuple[object, ...]]

    @classmethod
    def of(cls, choices: Iterable[Choice]) -> ChoiceList:
        return cls(frozenset(_tile(choice) for choice in choices if isinstance(choice, _TILED)))

    def draw(self, problem: MMShape, choices: Sequence[Choice], hardware: Hardware) -> list[Choice]:
        """Those of the list that Inductor generates for the problem, and whatever is no tiled config."""
        return [choice for choice in choices if not isinstance(choice, _TILED) or _tile(choice) in self.configs]


def _tile(config: TiledConfig) -> tuple[object, ...]:
    kind = type(config).__name__
    return (kind, config.block_m, config.block_n, config.block_k, config.num_stages, config.num_warps, config.group_m)


def least_us(problem: MMShape, hardware: Hardware) -> float:
    """The least time that the arithmetic and the traffic of a problem can take; 0 where the rates are not known."""
    rates = dict(hardware.peak_tflops)
    peak = rates.get("tf32" if problem.allow_tf32 else problem.a.dtype)
    arithmetic = problem.flops / peak / 1e6 if peak else 0.0
    bandwidth = hardware.memory_bandwidth_gbs
    return max(arithmetic, problem.min_bytes / bandwidth / 1e3 if bandwidth else 0.0)


@cache
def _least_launch_cost(problem: MMShape, sm_count: int) -> float:
    return min(
        _tile_cost(problem.B, problem.M, problem.N, (block_m, block_n), sm_count)
        for block_m in _BLOCKS
        for block_n in _BLOCKS
    )


def _launch_cost(problem: MMShape, config: TiledConfig, sm_count: int) -> float:
    """As `_tile_cost`, with what the measurements of an H200 show of short loops and of one tile at a time."""
    persistent = isinstance(config, PersistentTMAConfig)
    tile = (config.block_m, config.block_n)
    underfilled = max(1.0, (2048 if persistent else 256) / (config.block_m * config.block_n))
    loop = 1.0 + (64 if persistent else 24) / config.block_k
    overlap = {1: 2.5, 2: 1.6}.get(config.num_stages, 1.0)
    return _tile_cost(problem.B, problem.M, problem.N, tile, sm_count) * underfilled * loop * overlap


def _family_cost(batch: int, config: TiledConfig, sm_count: int) -> float:
    """The least cost of a config, relative to the best, over sizes that a family may have: is it ever worth a try?"""
    tile = (config.block_m, config.block_n)
    overlap = 1.0 if config.num_stages >= 3 else 1.6
    loop = 1.0 + 16 / config.block_k
    small_tensor_core_tile = 1.0 if config.block_m >= 64 and config.num_warps >= 4 else 1.4
    return _relative_tile_cost(batch, tile, sm_count) * overlap * loop * small_tensor_core_tile


@cache
def _relative_tile_cost(batch: int, tile: tuple[int, int], sm_count: int) -> float:
    tiles = [(block_m, block_n) for block_m in _BLOCKS for block_n in _BLOCKS]
    return min(
        _tile_cost(batch, m, n, tile, sm_count) / min(_tile_cost(batch, m, n, other, sm_count) for other in tiles)
        for m, n in itertools.product(_SIZES, repeat=2)
    )


def _tile_cost(batch: int, m: int, n: int, tile: tuple[int, int], sm_count: int) -> float:
    """An estimate of the relative time with tiles of this size: good enough to prefer, not to judge."""
    block_m, block_n = tile
    waves = math.ceil(batch * math.ceil(m / block_m) * math.ceil(n / block_n) / sm_count)
    area = block_m * block_n
    traffic = 48 * (block_m + block_n) / area
    return waves * area * (1.0 + traffic)
