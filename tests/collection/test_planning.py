"""From a problem to kernels and grids, for a described H200."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.by_torch import FLOAT32_HAS_PERSISTENT_TMA, PRUNES_BY_SHARED_MEMORY

from diode.collection.kernels.compiler import CompileTarget, compile_kernel, kernel_key
from diode.collection.planning import PlanRequest, launch_grid, surely_illegal
from diode.collection.sampling import ChoiceList, ChoiceSample
from diode.errors import UnsupportedError
from diode.types import (
    AtenChoice,
    DecomposeKConfig,
    Failure,
    Hardware,
    MMShape,
    PersistentTMAConfig,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200

TARGET = CompileTarget.of(H200)
LINEAR = MMShape.of("addmm", 512, 1024, 768, layout="NT")
BATCHED = MMShape.of("bmm", 200, 96, 72, B=5)
CONFIG = TritonGEMMConfig("triton::mm", 64, 128, 32, 3, 4, even_k=True)
PERSISTENT = PersistentTMAConfig("triton::mm_persistent_tma", 128, 128, 64, 3, 8, True, True, num_sms=132, even_k=True)


@pytest.fixture(scope="module")
def exhaustive(planner):
    return planner.plan(PlanRequest(LINEAR, H200, "EXHAUSTIVE"))


def tiled_in(choices):
    return [choice for choice in choices if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig)]


def planned_choices(plan):
    return [planned.choice for planned in plan.choices]


def test_all_of_a_space_is_planned_or_told_why_not(planner, exhaustive):
    default = planner.plan(PlanRequest(LINEAR, H200, "DEFAULT"))
    assert len(exhaustive.choices) > 10 * len(default.choices) > 100
    for plan in (default, exhaustive):
        assert plan.problem == LINEAR
        choices = [*planned_choices(plan), *(choice for choice, _ in plan.failed)]
        assert len(set(choices)) == len(choices)
        assert {choice.template for choice in tiled_in(choices)} == {"triton::mm", "triton::mm_persistent_tma"}
        assert AtenChoice("addmm") in choices
    assert set(planned_choices(default)) <= set(planned_choices(exhaustive)) | {AtenChoice("addmm")}
    assert {failure.reason for _, failure in exhaustive.failed} == (
        set() if PRUNES_BY_SHARED_MEMORY else {"shared_memory"}
    )


def test_a_kernel_comes_with_key_grid_and_sizes(planner):
    for form, sizes in (("family", (25, 12, 5)), ("static", ())):
        plan = planner.plan(PlanRequest(BATCHED, H200, "DEFAULT", form=form))
        for planned in plan.choices:
            if isinstance(planned.choice, AtenChoice):
                assert planned.kernel is None
                continue
            kernel = planned.kernel
            assert kernel.key == kernel_key(kernel.source, TARGET)
            assert kernel.grid == launch_grid(BATCHED, planned.choice)
            assert kernel.sizes == sizes
            assert len(kernel.source.signature) == 3 + len(sizes)


def test_two_plans_of_a_family_share_their_kernels(planner):
    plans = [planner.plan(PlanRequest(resized_to(LINEAR, M=m), H200, "DEFAULT")) for m in (512, 4096)]
    of_small, of_large = ({planned.kernel.key for planned in plan.choices if planned.kernel} for plan in plans)
    assert of_small == of_large
    static = [planner.plan(PlanRequest(resized_to(LINEAR, M=m), H200, "DEFAULT", form="static")) for m in (512, 4096)]
    of_small, of_large = ({planned.kernel.key for planned in plan.choices if planned.kernel} for plan in static)
    assert not of_small & of_large


def test_a_deep_problem_has_decompose_k_and_the_librarys_kernel(planner):
    deep = MMShape.of("mm", 32, 64, 16384)
    plan = planner.plan(PlanRequest(deep, H200, "DEFAULT"))
    splits = [choice for choice in planned_choices(plan) if isinstance(choice, DecomposeKConfig)]
    assert splits
    assert all(deep.K % choice.k_split == 0 for choice in splits)
    assert AtenChoice("mm") in planned_choices(plan)
    assert [planned.kernel for planned in plan.choices if planned.choice in splits] == [None] * len(splits)


def test_only_what_is_asked_for_is_planned(planner, exhaustive):
    default = planned_choices(planner.plan(PlanRequest(LINEAR, H200, "DEFAULT")))
    rare = next(choice for choice in tiled_in(planned_choices(exhaustive)) if choice not in default)
    asked = (AtenChoice("addmm"), rare, default[3])
    request = PlanRequest(LINEAR, H200, "EXHAUSTIVE", only=asked, form="static")
    assert planned_choices(planner.plan(request)) == list(asked)
    with_default = planned_choices(planner.plan(replace(request, with_default_space=True)))
    assert with_default[:3] == list(asked)
    assert sorted(map(str, with_default)) == sorted(map(str, {*asked, *default}))


def test_a_sample_or_a_list_takes_the_place_of_the_space(planner, exhaustive):
    request = PlanRequest(LINEAR, H200, "EXHAUSTIVE")
    everything = planned_choices(exhaustive)
    sample = ChoiceSample(12, seed=3)
    sampled = planner.plan(replace(request, sample=sample))
    drawn = {*planned_choices(sampled), *(choice for choice, _ in sampled.failed)}
    assert len(tiled_in(drawn)) == 12
    assert AtenChoice("addmm") in drawn
    asked = tiled_in(everything)[5:8]
    listed = planned_choices(planner.plan(replace(request, sample=ChoiceList.of(asked))))
    assert tiled_in(listed) == asked
    assert set(listed) - set(asked) == set(everything) - set(tiled_in(everything))


def test_a_problem_that_needs_wide_addresses_is_refused(planner):
    for sizes in ((2**16, 2**15, 64), (2**17, 64, 2**14), (64, 2**17, 2**14)):
        problem = MMShape.of("mm", *sizes)
        with pytest.raises(UnsupportedError, match="more than 2147483647 elements needs 64-bit addresses"):
            planner.plan(PlanRequest(problem, H200, "DEFAULT"))
    widest = MMShape.of("mm", 2**16, 2**15 - 8, 64)
    assert tiled_in(planned_choices(planner.plan(PlanRequest(widest, H200, "DEFAULT"))))


def test_a_gpu_of_which_too_little_is_known_is_refused(planner):
    with pytest.raises(UnsupportedError, match="sm_count"):
        planner.plan(PlanRequest(LINEAR, Hardware("some GPU", "cuda", capability=(9, 0)), "DEFAULT"))


sizes = st.integers(1, 70_000)
blocks = st.sampled_from([16, 32, 64, 128, 256])


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(M=sizes, N=sizes, B=st.integers(1, 300_000), block_m=blocks, block_n=blocks)
def test_every_tile_of_every_batch_has_its_place_in_the_grid(M, N, B, block_m, block_n):
    config = msgspec.structs.replace(CONFIG, template="triton::bmm", block_m=block_m, block_n=block_n)
    x, y, z = launch_grid(MMShape.of("bmm", M, N, 64, B=B), config)
    assert x == math.ceil(M / block_m) * math.ceil(N / block_n)
    assert B <= y * z < B + z
    assert y <= 65535
    assert z == math.ceil(B / 65535)


def test_a_persistent_kernel_has_no_more_programs_than_tiles_or_processors():
    assert launch_grid(MMShape.of("mm", 4096, 4096, 64), PERSISTENT) == (132, 1, 1)
    assert launch_grid(MMShape.of("mm", 300, 200, 64), PERSISTENT) == (6, 1, 1)


def test_what_is_called_illegal_does_not_fit_and_is_not_compiled(planner):
    """The compiler's word for configs on both sides of the limit."""
    problem = MMShape.of("mm", 1024, 1024, 1024, dtype="float32")
    plan = planner.plan(PlanRequest(problem, H200, "EXHAUSTIVE"))
    assert bool(plan.failed) is not PRUNES_BY_SHARED_MEMORY
    limit = H200.shared_memory_per_block
    for choice, failure in plan.failed:
        assert surely_illegal(problem, choice, H200) == failure
        assert failure == Failure("shared_memory", failure.message)
        assert f"limit {limit}" in failure.message

    def tightest(choices):
        """Of each template the one nearest to the limit, and small enough to be compiled quickly."""
        by_template = {}
        for choice in sorted(choices, key=buffers):
            by_template.setdefault(choice.template, choice)
        return by_template.values()

    def buffers(choice):
        return (choice.block_m + choice.block_n) * choice.block_k * 4 * (choice.num_stages - 1), choice.num_warps

    called_illegal = tightest(choice for choice, _ in plan.failed)
    assert len(called_illegal) == (0 if PRUNES_BY_SHARED_MEMORY else 2)
    for choice in called_illegal:
        source = planner.pattern(problem, choice, H200).static(problem, choice)
        assert compile_kernel(source, TARGET).shared_bytes > limit


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_nothing_that_fits_is_called_illegal(planner, dtype, steps):
    """With a limit right at what the compiler takes for a kernel, that kernel stays legal."""
    problem = MMShape.of("mm", 256, 256, 32 * steps, dtype=dtype)
    tiles = {"block_m": 64, "block_n": 64, "block_k": 32}
    kinds = (CONFIG, PERSISTENT) if dtype != "float32" or FLOAT32_HAS_PERSISTENT_TMA else (CONFIG,)
    for kind, stages in itertools.product(kinds, (2, 3, 5)):
        config = msgspec.structs.replace(kind, **tiles, num_stages=stages)
        needed = compile_kernel(planner.pattern(problem, config, H200).family(problem, config), TARGET).shared_bytes
        tight = msgspec.structs.replace(H200, shared_memory_per_block=needed)
        assert surely_illegal(problem, config, tight) is None


def test_where_the_limit_is_not_known_nothing_is_called_illegal():
    unknown = msgspec.structs.replace(H200, shared_memory_per_block=None)
    huge = msgspec.structs.replace(CONFIG, block_m=256, block_n=256, block_k=256, num_stages=8)
    assert surely_illegal(LINEAR, huge, H200) is not None
    assert surely_illegal(LINEAR, huge, unknown) is None


def resized_to(problem, **sizes):
    given = {name: sizes.get(name, getattr(problem, name)) for name in "MNKB"}
    return MMShape.of(problem.op, **given, layout=problem.layout, dtype=problem.a.dtype)
