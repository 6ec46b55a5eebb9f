"""Chooses the problems of the H200 data: a test set, fixed before any model was trained, and training problems.

Writes `h200_test_shapeset.json` and `h200_train_shapeset.json`. Test problems come in groups that share op, layout,
type and K, so that each kernel that is compiled for the exhaustive truth is timed on several of them: half from real
networks, half log-normal. No training problem has the sizes of a test problem or of a real network, not even transposed
or batched.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from diode.collection.networks import networks_shapeset
from diode.collection.samplers import (
    FamilySampler,
    LogNormalSampler,
    PowerOfTwoSampler,
    ProblemLimits,
    ProblemMix,
    UniformSampler,
    without_twins,
)
from diode.storage.shapesets import write_shapeset
from diode.types import Layout, MMShape

HERE = Path(__file__).parent
LIMITS = ProblemLimits(max_flops=1.5e12)
TRAINING_LIMITS = ProblemLimits(max_flops=5e11)
"""Half a millisecond for the best choice, and some dozen for the worst: enough to learn what large problems want."""
TEST_GROUP = 8

NETWORK_GROUPS = (
    ("mm", "NT", "bfloat16", 4096),
    ("mm", "NT", "bfloat16", 8192),
    ("addmm", "NT", "float16", 768),
    ("bmm", "NT", "bfloat16", 128),
    ("bmm", "NN", "bfloat16", 2048),
    ("mm", "TN", "bfloat16", 4096),
    ("mm", "NT", "bfloat16", 14336),
    ("mm", "NT", "bfloat16", 512),
)
"""Projections of 8B and 70B language models, an encoder's layers, attention, a weight gradient, a recommender."""

LOG_NORMAL_GROUPS = (
    ("mm", "NT", "bfloat16"),
    ("mm", "NN", "bfloat16"),
    ("mm", "TN", "bfloat16"),
    ("addmm", "NT", "bfloat16"),
    ("addmm", "NN", "float16"),
    ("mm", "NT", "float16"),
    ("bmm", "NN", "bfloat16"),
    ("bmm", "NT", "float16"),
    ("mm", "NT", "tf32"),
)
"""By hand, so that nine draws cover ops, layouts and types; the sizes are drawn."""
LOG_NORMAL_SEED = 20261118
TRAINING_GROUP = 24
RAGGED_SEED = 5
RAGGED_GROUPS = 24


def group_of(problem: MMShape) -> tuple[str, str, str, int]:
    return (problem.op, problem.layout, problem.a.dtype, problem.K)


def spread(problems: Sequence[MMShape], count: int) -> list[MMShape]:
    """Evenly over the range of work."""
    ordered = sorted(problems, key=lambda problem: (problem.flops, problem.M, problem.N, problem.B))
    return [ordered[round(number * (len(ordered) - 1) / (count - 1))] for number in range(count)]


def network_test_problems() -> Iterator[MMShape]:
    feasible = [problem for problem in networks_shapeset() if LIMITS.admit(problem)]
    for group in NETWORK_GROUPS:
        members = [problem for problem in feasible if group_of(problem) == group]
        yield from dict.fromkeys(spread(members, min(TEST_GROUP, len(members))))


def log_normal_test_problems() -> Iterator[MMShape]:
    for number, (op, layout, precision) in enumerate(LOG_NORMAL_GROUPS):
        mix = ProblemMix({op: 1.0}, {layout: 1.0}, {precision: 1.0})
        yield from FamilySampler(LogNormalSampler(LOG_NORMAL_SEED + number, mix, LIMITS), TEST_GROUP).sample(TEST_GROUP)


def ragged_groups() -> Iterator[list[MMShape]]:
    """Groups with odd sizes: a few tokens or any number of them, a vocabulary or a hidden size that nobody rounded."""
    draw = random.Random(RAGGED_SEED).random
    mix = ProblemMix({"mm": 0.6, "addmm": 0.4}, {"NT": 0.8, "NN": 0.2}, {"bfloat16": 0.7, "float16": 0.3})
    limits = ProblemLimits(max_flops=2e11)
    for number, base in enumerate(LogNormalSampler(RAGGED_SEED, mix, limits).sample(RAGGED_GROUPS)):
        odd_n, k = number % 4 == 0, base.K + (number % 12 == 1)
        members: dict[MMShape, None] = {}
        while len(members) < TRAINING_GROUP:
            m = 1 if len(members) < 3 else 1 + 2 * round(math.exp(draw() * math.log(1500)) / 2)
            n = 8 * round(math.exp(math.log(4) + draw() * math.log(500))) + odd_n
            layout: Layout = "NT" if base.layout == "NT" else "NN"
            members[MMShape.of(base.op, m, n, k, dtype=base.a.dtype, layout=layout)] = None
        yield list(members)


def training_problems(held_out: Iterable[MMShape]) -> list[MMShape]:
    mix = ProblemMix(precisions={"bfloat16": 0.55, "float16": 0.25, "tf32": 0.14, "float32": 0.06})
    biased_batches = replace(mix, ops={"baddbmm": 1.0})
    uniform = UniformSampler(3, mix, TRAINING_LIMITS, 64, 64, 12288)
    sources = (
        FamilySampler(LogNormalSampler(1, mix, TRAINING_LIMITS), TRAINING_GROUP).sample(110 * TRAINING_GROUP),
        FamilySampler(PowerOfTwoSampler(2, mix, TRAINING_LIMITS), TRAINING_GROUP).sample(30 * TRAINING_GROUP),
        FamilySampler(uniform, TRAINING_GROUP).sample(60 * TRAINING_GROUP),
        FamilySampler(LogNormalSampler(6, biased_batches, TRAINING_LIMITS), TRAINING_GROUP).sample(14 * TRAINING_GROUP),
    )
    held_out = list(held_out)
    groups = [
        list(members)
        for source in sources
        for _, members in groupby(without_twins(source, held_out), key=lambda problem: (*group_of(problem), problem.B))
    ]
    groups += [list(without_twins(members, held_out)) for members in ragged_groups()]
    random.Random(4).shuffle(groups)
    return list(dict.fromkeys(problem for group in groups for problem in group))


def main() -> None:
    test = [*network_test_problems(), *log_normal_test_problems()]
    train = training_problems([*test, *networks_shapeset()])
    write_shapeset(test, HERE / "h200_test_shapeset.json")
    write_shapeset(train, HERE / "h200_train_shapeset.json")
    print(f"{len(test)} test problems, {len(train)} training problems")


if __name__ == "__main__":
    main()
