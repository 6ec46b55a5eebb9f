"""Kernel sources against Inductor's own: static ones are its text, family ones compute the same for many sizes."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.by_torch import SHORT_BMM_IS_ANOTHER_KERNEL

from diode.collection.kernels.pattern import MAX_UNIT, KernelPattern, SizeUnits, family_sizes, resized
from diode.collection.planning import launch_grid
from diode.errors import InvalidRecordError
from diode.integration.lowering import lowered
from diode.types import Choice, MMShape, Operand, PersistentTMAConfig, TritonGEMMConfig
from diode.types.known_hardware import H200

RENDERED = [
    MMShape.of("mm", 1000, 520, 264, layout="NT"),
    MMShape.of("mm", 512, 1024, 512, layout="TN", dtype="float16"),
    MMShape.of("mm", 77, 33, 51),
    MMShape.of("mm", 128, 96, 64, layout="TT"),
    MMShape.of("mm", 264, 200, 520, dtype="float32", allow_tf32=True),
    MMShape.of("mm", 64, 64, 64, dtype="float32"),
    MMShape.of("mm", 1, 4096, 1024, layout="NT"),
    MMShape.of("mm", 4096, 1, 1024),
    MMShape.of("mm", 64, 128, 1),
    MMShape.of("mm", 16, 16, 16),
    MMShape.of("addmm", 333, 512, 1000, layout="NT", dtype="float16"),
    MMShape.of("addmm", 256, 264, 104, bias="matrix"),
    MMShape.of("addmm", 1, 264, 104),
    MMShape.of("bmm", 200, 96, 72, B=5, layout="NT"),
    MMShape.of("bmm", 64, 128, 256, B=1),
    MMShape.of("bmm", 1, 128, 256, B=3, layout="TN"),
    MMShape.of("baddbmm", 64, 96, 72, B=4, bias="matrix"),
    MMShape.of("baddbmm", 64, 96, 72, B=2, bias="vector"),
]
"""All ops and layouts, K that blocks divide and that they do not, and dimensions of one."""

COMPUTED = [
    MMShape.of("mm", 50, 33, 40, dtype="float32"),
    MMShape.of("mm", 77, 64, 51, layout="TN", dtype="float16"),
    MMShape.of("mm", 264, 48, 64, layout="NT", dtype="float32"),
    MMShape.of("mm", 1, 72, 64, layout="NT", dtype="float32"),
    MMShape.of("mm", 40, 1, 24, dtype="float32"),
    MMShape.of("addmm", 50, 24, 40, layout="NT", dtype="float32"),
    MMShape.of("addmm", 48, 40, 32, bias="matrix", dtype="float16"),
    MMShape.of("bmm", 20, 24, 40, B=3, dtype="float32"),
    MMShape.of("bmm", 72, 40, 17, B=2, layout="NT", dtype="float16"),
    MMShape.of("baddbmm", 36, 24, 32, B=2, dtype="float32", bias="matrix"),
]
ERRORS = {"float16": 1e-3, "float32": 1e-6}
CONFIG = TritonGEMMConfig("triton::mm", 32, 64, 16, 3, 4, even_k=True)

sizes = st.integers(1, 2**20)


class Run(msgspec.Struct):
    """What the program beside this file found of one config on one problem, run in both forms."""

    problem: MMShape
    choice: Choice
    errors: tuple[float, float]
    same: bool


@pytest.mark.parametrize("problem", RENDERED, ids=str)
def test_a_static_kernel_is_what_inductor_renders_letter_by_letter(planner, problem):
    compared = set()
    with lowered(problem, "DEFAULT", H200) as candidates:
        tiled = [c for c in candidates if isinstance(c.choice, TritonGEMMConfig | PersistentTMAConfig)]
        for candidate in [*tiled[::5], tiled[-1]]:
            config, rendered = candidate.choice, candidate.render()
            source = planner.pattern(problem, config, H200).static(problem, config)
            assert source.text == rendered.source
            assert (source.signature, source.aligned) == (rendered.signature, rendered.aligned)
            assert (source.num_warps, source.num_stages) == (rendered.num_warps, rendered.num_stages)
            assert launch_grid(problem, config) == rendered.grid
            assert f"def {source.entry}(" in rendered.source
            compared.add(type(config))
    tma_is_legal = problem.op in ("mm", "addmm") and {c.choice for c in tiled if hasattr(c.choice, "num_sms")}
    assert compared == ({TritonGEMMConfig, PersistentTMAConfig} if tma_is_legal else {TritonGEMMConfig})


def test_both_forms_compute_what_torch_computes():
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "interpret.py")],
        input=msgspec.json.encode(COMPUTED),
        capture_output=True,
        check=True,
    )
    runs = msgspec.json.decode(answer.stdout, type=list[Run])
    assert {run.problem for run in runs} == set(COMPUTED)
    assert {type(run.choice) for run in runs} == {TritonGEMMConfig, PersistentTMAConfig}
    assert {run.choice.even_k for run in runs} == {True, False}
    for run in runs:
        assert max(run.errors) < ERRORS[run.problem.a.dtype], run
    assert [run for run in runs if not run.same] == []


FAMILIES = [
    (MMShape.of("mm", 1000, 520, 264, layout="NT"), {"M": 2008, "N": 4096}),
    (MMShape.of("mm", 1000, 520, 264, layout="TN"), {"M": 64, "N": 64}),
    (MMShape.of("addmm", 1000, 520, 264), {"M": 72, "N": 65544}),
    (MMShape.of("bmm", 200, 96, 72, B=5, layout="NT"), {"M": 8000, "B": 2}),
    (MMShape.of("baddbmm", 200, 96, 72, B=5), {"N": 104, "B": 300}),
    (MMShape.of("mm", 36, 77, 64), {"M": 44, "N": 1001}),
]


@pytest.mark.parametrize(("problem", "others"), FAMILIES, ids=str)
def test_a_family_is_one_kernel_for_problems_that_differ_in_m_n_and_batch(planner, problem, others):
    relative = sized(problem, **others)
    for config in configs_of(problem, even_k=problem.K % 16 == 0):
        pattern = planner.pattern(problem, config, H200)
        assert pattern.family(problem, config) == pattern.family(relative, config)
        assert pattern.static(problem, config) != pattern.static(relative, config)
    assert family_sizes(problem) != family_sizes(relative)


@pytest.mark.parametrize(
    "stranger",
    [
        MMShape.of("bmm", 1000, 520, 272, B=4),
        MMShape.of("bmm", 1004, 520, 264, B=4),
        MMShape.of("bmm", 1000, 517, 264, B=4),
        MMShape.of("bmm", 1000, 520, 264, B=1),
        MMShape.of("bmm", 16, 520, 264, B=4),
        MMShape.of("bmm", 1000, 520, 264, B=4, layout="NT"),
        MMShape.of("bmm", 1000, 520, 264, B=4, dtype="float16"),
        MMShape.of("baddbmm", 1000, 520, 264, B=4),
        MMShape.of("bmm", 1, 520, 264, B=4),
    ],
    ids=str,
)
def test_what_differs_in_units_k_layout_type_or_op_is_another_kernel(planner, stranger):
    problem = MMShape.of("bmm", 1000, 520, 264, B=4)
    config = TritonGEMMConfig("triton::bmm", 32, 64, 16, 3, 4)
    sources = {planner.pattern(each, config, H200).family(each, config) for each in (problem, stranger)}
    as_another = 2 if stranger.M != 16 or SHORT_BMM_IS_ANOTHER_KERNEL else 1
    assert len(sources) == as_another


def test_another_config_is_another_kernel(planner):
    problem = MMShape.of("mm", 1024, 1024, 256)
    changes = [{}, {"block_m": 64}, {"block_n": 16}, {"block_k": 32}, {"num_stages": 2}, {"num_warps": 8}]
    changes += [{"group_m": 4}, {"acc_type": "tl.float16"}, {"use_fast_accum": True}]
    for form in ("static", "family"):
        sources = set()
        for change in changes:
            config = msgspec.structs.replace(CONFIG, **change)
            sources.add(getattr(planner.pattern(problem, config, H200), form)(problem, config))
        assert len(sources) == len(changes)


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(M=sizes, N=sizes, K=sizes, B=st.integers(1, 4096))
def test_a_family_kernel_is_given_exactly_the_sizes(M, N, K, B):
    problem = MMShape.of("bmm", M, N, K, B=B)
    units = SizeUnits.of(problem)
    m_units, n_units, *batch = family_sizes(problem)
    assert (m_units * units.m, n_units * units.n) == (M, N)
    assert batch == ([] if B == 1 else [B])
    for size, unit in ((M, units.m), (N, units.n)):
        assert unit == math.gcd(size, MAX_UNIT)


def test_a_family_kernel_takes_its_sizes_as_arguments_and_knows_none(planner):
    problem = MMShape.of("baddbmm", 1013 * 8, 1019 * 8, 264, B=37, bias="matrix")
    config = TritonGEMMConfig("triton::bmm", 32, 64, 16, 3, 4)
    pattern = planner.pattern(problem, config, H200)
    family, static = pattern.family(problem, config), pattern.static(problem, config)
    m, n, k = problem.M, problem.N, problem.K
    for literal in (m, n, m * n, m * k, k * n):
        assert str(literal) in static.text
        assert str(literal) not in family.text
    assert family.signature == (*static.signature, ("m_units", "i32"), ("n_units", "i32"), ("batch", "i32"))
    assert family.aligned == static.aligned == tuple(range(4))
    assert f"K = {k}" in family.text


def test_a_problem_is_resized_with_its_layout_bias_and_types_kept():
    problem = MMShape.of("addmm", 32, 64, 128, layout="TN", bias="matrix", dtype="float32", allow_tf32=True)
    assert resized(problem, M=8, N=16, K=24, B=1) == MMShape.of(
        "addmm", 8, 16, 24, layout="TN", bias="matrix", dtype="float32", allow_tf32=True
    )


def test_operands_without_a_contiguous_dimension_have_no_pattern():
    spread = msgspec.structs.replace(MMShape.of("mm", 32, 64, 128), a=Operand("bfloat16", (256, 2)))
    with pytest.raises(InvalidRecordError, match="only dense operands"):
        resized(spread, M=8, N=16, K=24, B=1)


def test_braces_in_a_kernel_stay_as_they_are():
    text = '@triton.jit\ndef odd(x):\n    GROUP_M : tl.constexpr = 8\n    y = "{M}" + "{}"\n    M = 16208\n'
    problem = MMShape.of("mm", 64, 32, 16)
    pattern = KernelPattern.learn(text, (), (), sized(problem, M=16 * 1013, N=16 * 1019, K=3328))
    filled = pattern.static(problem, CONFIG)
    assert filled.text == text.replace("16208", "64")
    with pytest.raises(InvalidRecordError, match="without a function header"):
        _ = replace(filled, text="no kernel").entry


def sized(problem: MMShape, **sizes: int) -> MMShape:
    return resized(problem, **{name: sizes.get(name, getattr(problem, name)) for name in "MNKB"})


def configs_of(problem: MMShape, *, even_k: bool) -> list[TritonGEMMConfig | PersistentTMAConfig]:
    if problem.op in ("bmm", "baddbmm"):
        return [TritonGEMMConfig("triton::bmm", 64, 32, 16, 3, 4, even_k=even_k)]
    tiled = TritonGEMMConfig("triton::mm", 32, 64, 16, 3, 4, even_k=even_k)
    if problem.N % 8:
        return [tiled]
    rows = {"a_row_major": problem.layout[0] == "N", "b_row_major": problem.layout[1] == "N"}
    return [tiled, PersistentTMAConfig("triton::mm_persistent_tma", 64, 64, 16, 3, 4, **rows, num_sms=132)]
