"""Seeded samplers of problems. A sampler and its seed name the same problems on every machine, always."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from statistics import NormalDist
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from diode.errors import CollectionError, UsageError
from diode.types import BATCHED_OPS, Layout, MMShape

Dimension = Literal["B", "M", "N", "K"]
Key = TypeVar("Key", bound=str)
Quantiles = Callable[[], float]
"""Draws from [0, 1). Only `random.Random.random`: of all generators of Python and numpy it alone is promised to give
the same sequence in every version; `gauss`, `randrange` and numpy's `normal` are not. All else is made from it here.
The exp and log of C libraries may differ in the last bit, which rounding to whole sizes removes."""

MAX_REDRAWS: Final = 10_000
FAMILY_MULTIPLE: Final = 8
"""What M and N are divisible by in a family: its kernel takes M / 8 and N / 8 at run time and serves all of them."""

_DIMENSIONS: Final[tuple[Dimension, ...]] = ("B", "M", "N", "K")
OPS: Final = ("mm", "addmm", "bmm", "baddbmm")
_LAYOUTS: Final = ("NN", "NT", "TN", "TT")
_PRECISIONS: Final = {
    "bfloat16": ("bfloat16", False),
    "float16": ("float16", False),
    "float32": ("float32", False),
    "tf32": ("float32", True),
}


class Sampler(Protocol):
    def sample(self, count: int) -> tuple[MMShape, ...]:
        """`count` distinct problems, always the same ones; a larger count begins with those of a smaller one.

        Raises CollectionError where there are not that many.
        """


class ProblemKind(NamedTuple):
    """All of a problem but its sizes."""

    op: str
    layout: Layout
    dtype: str
    allow_tf32: bool


@dataclass(frozen=True)
class ProblemMix:
    """Weights of ops, layouts and precisions, each drawn on its own; a weight says how often, relative to the others.

    `tf32` is float32 data that the tensor cores may round; NT is what a Linear layer does.
    """

    ops: Mapping[str, float] = field(default_factory=lambda: {"mm": 0.5, "addmm": 0.25, "bmm": 0.25})
    layouts: Mapping[Layout, float] = field(default_factory=lambda: {"NT": 0.5, "NN": 0.3, "TN": 0.2})
    precisions: Mapping[str, float] = field(
        default_factory=lambda: {"bfloat16": 0.5, "float16": 0.25, "tf32": 0.15, "float32": 0.1}
    )

    def __post_init__(self) -> None:
        _check_weights("ops", self.ops, OPS)
        _check_weights("layouts", self.layouts, _LAYOUTS)
        _check_weights("precisions", self.precisions, tuple(_PRECISIONS))

    def draw(self, quantiles: Quantiles) -> ProblemKind:
        op = _pick(self.ops, quantiles())
        layout = _pick(self.layouts, quantiles())
        return ProblemKind(op, layout, *_PRECISIONS[_pick(self.precisions, quantiles())])


@dataclass(frozen=True)
class ProblemLimits:
    """What can be run at all: the three matrices fit a share of the memory, indices fit int32, the work is bounded.

    The memory is a constant, not that of the GPU at hand, since the same seed must give the same problems anywhere.
    """

    memory_bytes: int = 16 * 2**30
    memory_share: float = 0.25
    max_flops: float = 4e12
    """For 16-bit operands; wider ones, which take longer, count for more."""
    max_elements: int = 2**31 - 1
    max_batch: int = 65_535
    """Batched templates count the batch along a dimension of CUDA's grid that ends there."""

    def admit(self, problem: MMShape) -> bool:
        return (
            problem.flops * _slowness(problem) <= self.max_flops
            and problem.min_bytes <= self.memory_bytes * self.memory_share
            and max(problem.matrix_elements) <= self.max_elements
            and self.max_batch >= problem.B
        )


@dataclass(frozen=True)
class DistributionSampler(ABC):
    """Draws B, M, N and K each on its own, and draws all of them again where the problem breaks the limits.

    Hence the problems follow the distribution conditioned on the limits: clamping would heap them up at the bounds
    instead. Op, layout and precision are drawn before and kept, so that the limits do not shift the mix.
    """

    seed: int
    mix: ProblemMix = field(default_factory=ProblemMix)
    limits: ProblemLimits = field(default_factory=ProblemLimits)
    multiple: int = 8
    """What M, N and K are divisible by."""

    def __post_init__(self) -> None:
        if self.multiple < 1:
            raise UsageError(f"{type(self).__name__}: multiple is {self.multiple}, but must be at least 1")

    @abstractmethod
    def size(self, dimension: Dimension, quantile: float) -> int:
        """The size at a quantile in [0, 1) of the distribution of one dimension."""

    def sample(self, count: int) -> tuple[MMShape, ...]:
        quantiles = random.Random(self.seed).random
        drawn: dict[MMShape, None] = {}
        while len(drawn) < count:
            drawn[self.draw_new(self.mix.draw(quantiles), quantiles, drawn)] = None
        return tuple(drawn)

    def draw_new(self, kind: ProblemKind, quantiles: Quantiles, taken: Collection[MMShape]) -> MMShape:
        """A problem of this kind that is not in `taken`; raises CollectionError where there seems to be none."""
        problem = self.draw_sizes(kind, {} if kind.op in BATCHED_OPS else {"B": 1}, quantiles, taken)
        if problem is None:
            raise CollectionError(
                f"{type(self).__name__}: after {len(taken)} problems, {MAX_REDRAWS} draws of sizes gave no new one for "
                f"{kind.op} {kind.dtype} {kind.layout} within the limits: ask for fewer, or widen sizes or limits"
            )
        return problem

    def draw_sizes(
        self, kind: ProblemKind, fixed: Mapping[Dimension, int], quantiles: Quantiles, taken: Collection[MMShape]
    ) -> MMShape | None:
        """The same with some sizes given; None where there seems to be none."""
        for _ in range(MAX_REDRAWS):
            B, M, N, K = (fixed.get(name) or self.size(name, quantiles()) for name in _DIMENSIONS)
            problem = MMShape.of(
                kind.op, M, N, K, B=B, dtype=kind.dtype, layout=kind.layout, allow_tf32=kind.allow_tf32
            )
            if self.limits.admit(problem) and problem not in taken:
                return problem
        return None


@dataclass(frozen=True)
class LogNormalSampler(DistributionSampler):
    """Sizes whose logarithms are normal, rounded to `multiple` and never below it."""

    ln_b: NormalDist = field(default_factory=partial(NormalDist, 2.5, 1.2))
    ln_m: NormalDist = field(default_factory=partial(NormalDist, 6.57, 2.56))
    ln_n: NormalDist = field(default_factory=partial(NormalDist, 5.91, 1.67))
    ln_k: NormalDist = field(default_factory=partial(NormalDist, 6.20, 2.16))

    def size(self, dimension: Dimension, quantile: float) -> int:
        normal = {"B": self.ln_b, "M": self.ln_m, "N": self.ln_n, "K": self.ln_k}[dimension]
        step = 1 if dimension == "B" else self.multiple
        logarithm = normal.inv_cdf(max(quantile, 2.0**-53))
        size = math.exp(min(logarithm, 700.0))  # beyond any limit already, and short of overflow
        return max(step, round(size / step) * step)


@dataclass(frozen=True)
class UniformSampler(DistributionSampler):
    """Sizes that are each as likely, `largest` included."""

    smallest: int = 8
    largest: int = 8192
    largest_batch: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range(self, self.smallest, self.largest, self.largest_batch)

    def size(self, dimension: Dimension, quantile: float) -> int:
        if dimension == "B":
            return 1 + int(quantile * self.largest_batch)
        steps = (self.largest - self.smallest) // self.multiple + 1
        return self.smallest + int(quantile * steps) * self.multiple


@dataclass(frozen=True)
class PowerOfTwoSampler(DistributionSampler):
    """Powers of two that are each as likely, `largest` included."""

    smallest: int = 16
    largest: int = 8192
    largest_batch: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range(self, self.smallest, self.largest, self.largest_batch)
        for size in (self.smallest, self.largest, self.largest_batch):
            if size & (size - 1):
                raise UsageError(f"PowerOfTwoSampler: {size} is not a power of two")

    def size(self, dimension: Dimension, quantile: float) -> int:
        smallest, largest = (1, self.largest_batch) if dimension == "B" else (self.smallest, self.largest)
        return smallest << int(quantile * (largest // smallest).bit_length())


@dataclass(frozen=True)
class FamilySampler:
    """Groups of problems that one compiled kernel serves: all but M and N the same, M and N multiples of 8.

    A group stands together in the result. Its first problem is drawn as `base` draws, the others as `base` would draw
    them with kind, K and B given: so each problem by itself follows the distribution of `base`. A group with too few
    sizes within the limits (an enormous K) stays smaller.
    """

    base: DistributionSampler
    group_size: int = 8

    def __post_init__(self) -> None:
        if self.group_size < 1:
            raise UsageError(f"FamilySampler: group_size is {self.group_size}, but must be at least 1")
        if self.base.multiple % FAMILY_MULTIPLE:
            raise UsageError(
                f"FamilySampler: the base sampler rounds to multiples of {self.base.multiple}, but M and N must be "
                f"multiples of {FAMILY_MULTIPLE}"
            )

    def sample(self, count: int) -> tuple[MMShape, ...]:
        quantiles = random.Random(self.base.seed).random
        drawn: dict[MMShape, None] = {}
        while len(drawn) < count:
            kind = self.base.mix.draw(quantiles)
            first = self.base.draw_new(kind, quantiles, drawn)
            drawn[first] = None
            for _ in range(min(self.group_size - 1, count - len(drawn))):
                sibling = self.base.draw_sizes(kind, {"B": first.B, "K": first.K}, quantiles, drawn)
                if sibling is None:
                    break
                drawn[sibling] = None
        return tuple(drawn)


def without_twins(problems: Iterable[MMShape], training: Iterable[MMShape]) -> tuple[MMShape, ...]:
    """The problems of which no twin (the same sizes, in any op, batch, layout or precision) stands in `training`."""
    trained = {problem.twin_group for problem in training}
    return tuple(problem for problem in problems if problem.twin_group not in trained)


def _slowness(problem: MMShape) -> float:
    """How many times longer than with 16-bit operands a product takes on a GPU with tensor cores, roughly."""
    if problem.a.dtype == "float32":
        return 2.0 if problem.allow_tf32 else 16.0
    return 32.0 if problem.a.dtype == "float64" else 1.0


def _pick(weights: Mapping[Key, float], quantile: float) -> Key:
    # Sorted, so that two mixes that are equal give the same problems in whatever order they were written.
    keys = sorted(key for key, weight in weights.items() if weight > 0)
    bounds = list(accumulate(weights[key] for key in keys))
    return keys[min(bisect(bounds, quantile * bounds[-1]), len(keys) - 1)]


def _check_weights(what: str, weights: Mapping[Key, float], known: tuple[str, ...]) -> None:
    for key, weight in weights.items():
        if key not in known:
            raise UsageError(f"mix of {what}: {key!r} is not one of {', '.join(known)}")
        if not (math.isfinite(weight) and weight >= 0):
            raise UsageError(f"mix of {what}: the weight of {key} is {weight}, but must be finite and not negative")
    if not any(weights.values()):
        raise UsageError(f"mix of {what}: at least one of {', '.join(known)} needs a weight above 0")


def _check_range(sampler: DistributionSampler, smallest: int, largest: int, largest_batch: int) -> None:
    name = type(sampler).__name__
    if not 1 <= smallest <= largest or largest_batch < 1:
        raise UsageError(f"{name}: sizes from {smallest} to {largest} and a batch up to {largest_batch} are no ranges")
    if smallest % sampler.multiple:
        raise UsageError(f"{name}: smallest is {smallest}, but must be a multiple of {sampler.multiple}")
