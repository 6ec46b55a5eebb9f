from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import replace
from itertools import groupby
from statistics import NormalDist, median, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diode.collection.samplers import (
    DistributionSampler,
    FamilySampler,
    LogNormalSampler,
    PowerOfTwoSampler,
    ProblemLimits,
    ProblemMix,
    Sampler,
    UniformSampler,
    without_twins,
)
from diode.errors import CollectionError, UsageError
from diode.types import MMShape

UNLIMITED = ProblemLimits(memory_bytes=10**30, max_flops=1e40, max_elements=10**30)
ONLY_MM_NT_BF16 = ProblemMix(ops={"mm": 1}, layouts={"NT": 1}, precisions={"bfloat16": 1})

# One list per sampler: whoever changes these changes what every published seed means.
FIRST_PROBLEMS = [
    (
        LogNormalSampler(42),
        [
            "mm 104x1064x1328 bfloat16 NN",
            "mm 8x104x504 bfloat16 NN",
            "addmm 952x104x800 float16 NN",
            "mm 2696x184x56 float32 NN",
        ],
    ),
    (
        UniformSampler(42),
        [
            "mm 1832x6040x5544 bfloat16 NN",
            "mm 248x1792x4144 bfloat16 NN",
            "addmm 4472x1808x4832 float16 NN",
            "mm 5720x2792x1280 float32 NN",
        ],
    ),
    (
        PowerOfTwoSampler(42),
        [
            "mm 64x2048x1024 bfloat16 NN",
            "mm 16x64x512 bfloat16 NN",
            "addmm 512x64x512 float16 NN",
            "mm 1024x128x32 float32 NN",
        ],
    ),
    (
        FamilySampler(LogNormalSampler(42), group_size=2),
        [
            "mm 104x1064x1328 bfloat16 NN",
            "mm 16984x40x1328 bfloat16 NN",
            "bmm 12x8x88x1128 bfloat16 NN",
            "bmm 12x952x104x1128 bfloat16 NN",
        ],
    ),
]


@pytest.mark.parametrize(("sampler", "first"), FIRST_PROBLEMS)
def test_a_seed_names_the_same_problems_for_ever(sampler: Sampler, first: list[str]) -> None:
    assert [str(problem) for problem in sampler.sample(4)] == first


def test_a_thousand_problems_are_the_same_on_this_machine_as_on_any_other() -> None:
    lines = "\n".join(map(str, FamilySampler(LogNormalSampler(42)).sample(1000)))
    assert hashlib.sha256(lines.encode()).hexdigest()[:16] == "9af88a462b76218d"


def test_a_problem_is_dense_in_its_layout() -> None:
    assert LogNormalSampler(42).sample(1) == (MMShape.of("mm", 104, 1064, 1328, dtype="bfloat16", layout="NN"),)


@st.composite
def samplers(draw: st.DrawFn) -> Sampler:
    kind = draw(st.sampled_from([LogNormalSampler, UniformSampler, PowerOfTwoSampler]))
    base = kind(draw(st.integers(0, 2**64)))
    return draw(st.one_of(st.just(base), st.builds(FamilySampler, st.just(base), st.integers(1, 20))))


@given(samplers(), st.integers(0, 80), st.integers(0, 80))
@settings(max_examples=50, deadline=None)
def test_problems_are_distinct_legal_and_a_larger_count_begins_with_a_smaller(
    sampler: Sampler, fewer: int, more: int
) -> None:
    problems = sampler.sample(fewer + more)
    assert len(set(problems)) == fewer + more
    assert sampler.sample(fewer) == problems[:fewer]
    limits = ProblemLimits()
    for problem in problems:
        assert limits.admit(problem)
        assert problem.M % 8 == problem.N % 8 == problem.K % 8 == 0
        assert problem.allow_tf32 <= (problem.a.dtype == "float32")


def test_seeds_differ() -> None:
    assert not set(LogNormalSampler(1).sample(50)) & set(LogNormalSampler(2).sample(50))


def test_logarithms_of_sizes_are_normal_where_nothing_limits_them() -> None:
    problems = LogNormalSampler(7, ProblemMix(ops={"bmm": 1}), replace(UNLIMITED, max_batch=10**9), 1).sample(4000)
    expected = {"B": (2.5, 1.2), "M": (6.57, 2.56), "N": (5.91, 1.67), "K": (6.20, 2.16)}
    for dimension, (mean, deviation) in expected.items():
        logarithms = [math.log(getattr(problem, dimension)) for problem in problems]
        assert median(logarithms) == pytest.approx(mean, abs=0.15)
        assert stdev(logarithms) == pytest.approx(deviation, rel=0.1)


def test_the_distribution_within_limits_is_that_of_the_unlimited_problems_which_keep_them() -> None:
    limits = ProblemLimits(max_flops=1e8)
    rejected = [p for p in LogNormalSampler(3, ONLY_MM_NT_BF16, UNLIMITED).sample(6000) if limits.admit(p)]
    limited = LogNormalSampler(4, ONLY_MM_NT_BF16, limits).sample(3000)
    for dimension in ("M", "N", "K"):
        of_rejected = NormalDist.from_samples([math.log(getattr(p, dimension)) for p in rejected])
        of_limited = NormalDist.from_samples([math.log(getattr(p, dimension)) for p in limited])
        assert of_limited.mean == pytest.approx(of_rejected.mean, abs=0.15)
        assert of_limited.stdev == pytest.approx(of_rejected.stdev, rel=0.1)
    near_the_limit = sum(problem.flops > 0.9 * limits.max_flops for problem in limited)
    assert near_the_limit < 0.05 * len(limited)


@pytest.mark.parametrize(
    ("limits", "broken_by"),
    [
        (ProblemLimits(max_flops=1e9), MMShape.of("mm", 800, 800, 800)),
        (ProblemLimits(memory_bytes=2**20, memory_share=0.5), MMShape.of("mm", 8, 512, 512)),
        (ProblemLimits(max_elements=10_000), MMShape.of("mm", 8, 8, 1256)),
        (ProblemLimits(max_batch=10), MMShape.of("bmm", 8, 8, 8, B=11)),
    ],
)
def test_each_limit_is_kept(limits: ProblemLimits, broken_by: MMShape) -> None:
    assert ProblemLimits().admit(broken_by)
    assert not limits.admit(broken_by)
    assert all(limits.admit(problem) for problem in LogNormalSampler(0, limits=limits).sample(300))


def test_no_operand_outgrows_int32_even_in_a_big_memory() -> None:
    limits = ProblemLimits(memory_bytes=2**40, max_flops=1e30)
    assert limits.admit(MMShape.of("mm", 2**20, 8, 2**11 - 1))
    assert not limits.admit(MMShape.of("mm", 2**20, 8, 2**11))
    assert not limits.admit(MMShape.of("mm", 8, 2**20, 2**11))
    assert not limits.admit(MMShape.of("bmm", 2**10, 2**10, 8, B=2**11))


def test_the_mix_keeps_its_weights_though_limits_bite() -> None:
    mix = ProblemMix(
        ops={"mm": 6, "bmm": 3, "addmm": 0, "baddbmm": 1},
        layouts={"NT": 0.7, "TT": 0.3},
        precisions={"tf32": 1, "float16": 1, "float32": 2},
    )
    problems = LogNormalSampler(5, mix, ProblemLimits(max_flops=1e8)).sample(4000)
    shares = {
        "mm": 0.6, "bmm": 0.3, "baddbmm": 0.1, "NT": 0.7, "TT": 0.3,
        ("float16", False): 0.25, ("float32", False): 0.5, ("float32", True): 0.25,
    }  # fmt: skip
    found = Counter[object]()
    for problem in problems:
        found.update([problem.op, problem.layout, (problem.a.dtype, problem.allow_tf32)])
    assert found.keys() == shares.keys()
    for key, share in shares.items():
        assert found[key] / len(problems) == pytest.approx(share, abs=0.03)


def test_a_mix_means_the_same_in_whatever_order_it_is_written() -> None:
    forwards = ProblemMix(ops={"mm": 1, "bmm": 2}, layouts={"NN": 1, "TN": 3})
    backwards = ProblemMix(ops={"bmm": 2, "mm": 1}, layouts={"TN": 3, "NN": 1})
    assert UniformSampler(9, forwards).sample(20) == UniformSampler(9, backwards).sample(20)


def test_biased_ops_carry_a_bias_and_others_none() -> None:
    problems = UniformSampler(1, ProblemMix(ops={"mm": 1, "addmm": 1, "bmm": 1, "baddbmm": 1})).sample(100)
    assert {(p.op, p.bias is not None) for p in problems} == {
        ("mm", False), ("addmm", True), ("bmm", False), ("baddbmm", True),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProblemMix(ops={"conv": 1}), "'conv' is not one of mm, addmm"),
        (lambda: ProblemMix(layouts={"NX": 1}), "'NX' is not one of NN"),  # type: ignore[dict-item]
        (lambda: ProblemMix(precisions={"float8": 1}), "'float8' is not one of bfloat16"),
        (lambda: ProblemMix(ops={"mm": -1}), "the weight of mm is -1"),
        (lambda: ProblemMix(ops={"mm": math.nan}), "the weight of mm is nan"),
        (lambda: ProblemMix(ops={"mm": 0}), "needs a weight above 0"),
        (lambda: ProblemMix(ops={}), "needs a weight above 0"),
        (lambda: LogNormalSampler(0, multiple=0), "multiple is 0"),
        (lambda: UniformSampler(0, smallest=64, largest=32), "from 64 to 32"),
        (lambda: UniformSampler(0, smallest=4), "smallest is 4, but must be a multiple of 8"),
        (lambda: PowerOfTwoSampler(0, largest=100), "100 is not a power of two"),
        (lambda: PowerOfTwoSampler(0, smallest=4), "smallest is 4, but must be a multiple of 8"),
        (lambda: FamilySampler(UniformSampler(0), group_size=0), "group_size is 0"),
        (lambda: FamilySampler(LogNormalSampler(0, multiple=4)), "multiples of 4"),
    ],
)
def test_nonsense_is_refused_at_once(make, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_uniform_sizes_are_each_as_likely_up_to_the_bounds() -> None:
    sampler = UniformSampler(2, ProblemMix(ops={"bmm": 1}), smallest=16, largest=40, largest_batch=3)
    problems = sampler.sample(500)
    expected = {"B": (1, 2, 3), **dict.fromkeys("MNK", (16, 24, 32, 40))}
    for dimension, sizes in expected.items():
        found = Counter(getattr(problem, dimension) for problem in problems)
        assert tuple(sorted(found)) == sizes
        assert min(found.values()) > 0.6 * len(problems) / len(sizes)


def test_powers_of_two_are_each_as_likely_up_to_the_bounds() -> None:
    sampler = PowerOfTwoSampler(2, ProblemMix(ops={"bmm": 1}), smallest=8, largest=64, largest_batch=4)
    problems = sampler.sample(500)
    expected = {"B": (1, 2, 4), **dict.fromkeys("MNK", (8, 16, 32, 64))}
    for dimension, sizes in expected.items():
        found = Counter(getattr(problem, dimension) for problem in problems)
        assert tuple(sorted(found)) == sizes
        assert min(found.values()) > 0.6 * len(problems) / len(sizes)


def test_running_out_of_problems_is_an_error_that_says_what_to_do() -> None:
    sampler = PowerOfTwoSampler(0, ONLY_MM_NT_BF16, smallest=8, largest=16)
    assert len(sampler.sample(8)) == 8
    with pytest.raises(CollectionError, match=r"after 8 problems.*mm bfloat16 NT.*ask for fewer"):
        sampler.sample(9)


def test_limits_that_admit_nothing_are_an_error() -> None:
    with pytest.raises(CollectionError, match="widen sizes or limits"):
        LogNormalSampler(0, limits=ProblemLimits(max_flops=100)).sample(1)


def family(problem: MMShape) -> tuple[object, ...]:
    return (problem.op, problem.B, problem.K, problem.a.dtype, problem.layout, problem.allow_tf32)


@pytest.mark.parametrize("base", [LogNormalSampler(11), UniformSampler(11), PowerOfTwoSampler(11)])
def test_families_share_all_but_m_and_n(base: DistributionSampler) -> None:
    problems = FamilySampler(base, group_size=6).sample(6 * 40 + 3)
    groups = [problems[start : start + 6] for start in range(0, len(problems), 6)]
    assert [len({family(problem) for problem in group}) for group in groups] == [1] * 41
    assert all(len({(problem.M, problem.N) for problem in group}) == len(group) for group in groups)
    assert len({family(problem) for problem in problems}) > 20
    assert any(problem.B > 1 for problem in problems)


def test_each_problem_of_a_family_follows_the_base_distribution() -> None:
    limits = ProblemLimits(max_flops=1e9)
    plain = LogNormalSampler(21, ONLY_MM_NT_BF16, limits).sample(4000)
    in_families = FamilySampler(LogNormalSampler(22, ONLY_MM_NT_BF16, limits), group_size=2).sample(4000)
    for dimension in ("M", "N", "K"):
        of_plain = NormalDist.from_samples([math.log(getattr(p, dimension)) for p in plain])
        of_families = NormalDist.from_samples([math.log(getattr(p, dimension)) for p in in_families])
        assert of_families.mean == pytest.approx(of_plain.mean, abs=0.2)
        assert of_families.stdev == pytest.approx(of_plain.stdev, rel=0.1)


def test_a_family_with_too_few_sizes_stays_smaller() -> None:
    base = PowerOfTwoSampler(0, ONLY_MM_NT_BF16, smallest=8, largest=16)
    problems = FamilySampler(base, group_size=100).sample(8)
    assert [len(list(group)) for _, group in groupby(problems, family)] == [4, 4]


def test_a_problem_with_a_twin_in_training_is_dropped() -> None:
    training = [MMShape.of("mm", 64, 128, 256), MMShape.of("addmm", 8, 16, 24)]
    twins = [
        MMShape.of("mm", 64, 128, 256),
        MMShape.of("mm", 128, 64, 256, dtype="float16", layout="TN"),
        MMShape.of("bmm", 64, 128, 256, B=7),
        MMShape.of("mm", 8, 16, 24),
    ]
    others = [MMShape.of("mm", 64, 256, 128), MMShape.of("mm", 64, 128, 264)]
    assert without_twins([*twins, *others], iter(training)) == tuple(others)
    assert without_twins(twins, []) == tuple(twins)
