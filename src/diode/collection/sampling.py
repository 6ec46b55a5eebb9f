"""Which of a problem's choices to measure when not all are wanted.

The draw is decided by hashes, so it is the same everywhere, and one config gets the same lot for all problems of a
family: their samples overlap, and each kernel that is compiled is timed on many problems.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diode.types import Choice, Hardware, MMShape, PersistentTMAConfig, TiledConfig, TritonGEMMConfig

_TILED = (TritonGEMMConfig, PersistentTMAConfig)


@dataclass(frozen=True)
class ChoiceSample:
    """`count` tiled configs per problem: a share drawn evenly, the rest with a preference for plausible ones.

    An even draw alone spends nearly all time on configs that no model needs to tell apart; a preference alone never
    learns what is bad.
    """

    count: int
    seed: int = 42
    even_share: float = 0.35

    def draw(self, problem: MMShape, choices: Sequence[Choice], hardware: Hardware) -> list[Choice]:
        """The sample in the order of `choices`; whatever is no tiled config is always in it."""
        tiled = [choice for choice in choices if isinstance(choice, _TILED)]
        even_count = round(self.count * self.even_share)
        lots = {choice: self._lot(problem, choice) for choice in tiled}
        by_lot = sorted(tiled, key=lambda choice: lots[choice])
        drawn = set(by_lot[:even_count])
        rest = by_lot[even_count:]
        # An exponential race: the k smallest of -ln(u) / w are a weighted draw without replacement.
        rest.sort(key=lambda choice: -math.log(1.0 - lots[choice]) * rough_cost(problem, choice, hardware) ** 2)
        drawn.update(rest[: self.count - len(drawn)])
        return [choice for choice in choices if choice in drawn or choice not in lots]

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


def rough_cost(problem: MMShape, config: TiledConfig, hardware: Hardware) -> float:
    """An estimate of the relative time of a config: good enough to prefer, not to judge."""
    tiles = problem.B * math.ceil(problem.M / config.block_m) * math.ceil(problem.N / config.block_n)
    waves = math.ceil(tiles / (hardware.sm_count or 1))
    tile_area = config.block_m * config.block_n
    traffic = 48 * (config.block_m + config.block_n) / tile_area
    overlap = 1.0 if config.num_stages >= 3 else 1.6
    loop = 1.0 + 16 / config.block_k
    small_tensor_core_tile = 1.0 if config.block_m >= 64 and config.num_warps >= 4 else 1.4
    return waves * tile_area * (1.0 + traffic) * overlap * loop * small_tensor_core_tile
