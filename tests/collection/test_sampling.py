"""Samples of a problem's choices: drawn the same everywhere, of the size asked for, overlapping within a family."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diode.collection.planning import PlanRequest
from diode.collection.sampling import ChoiceList, ChoiceSample, least_us
from diode.integration.lowering import lowered
from diode.types import (
    AtenChoice,
    Choice,
    DecomposeKConfig,
    Hardware,
    MMShape,
    OtherChoice,
    PersistentTMAConfig,
    TritonGEMMConfig,
)
from diode.types.known_hardware import H200

LARGE = MMShape.of("mm", 2048, 4096, 1024, layout="NT")
SMALL = MMShape.of("mm", 48, 64, 1024, layout="NT")
LIBRARY = [AtenChoice("mm"), DecomposeKConfig(4), OtherChoice("cutlass", "a kernel")]


@pytest.fixture(scope="module")
def spaces():
    """What Inductor generates for each problem of a family."""
    found = {}
    for problem in (LARGE, SMALL):
        with lowered(problem, "EXHAUSTIVE", H200) as candidates:
            found[problem] = [candidate.choice for candidate in candidates]
    return found


def tiled_in(choices):
    return [choice for choice in choices if isinstance(choice, TritonGEMMConfig | PersistentTMAConfig)]


DRAWING = """
import sys
import msgspec
from diode.collection.sampling import ChoiceSample
from diode.types import Choice, MMShape
from diode.types.known_hardware import H200
problem, choices = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[MMShape, list[Choice]])
sys.stdout.buffer.write(msgspec.json.encode(ChoiceSample(40, seed=7).draw(problem, choices, H200)))
"""


def test_a_draw_is_the_same_in_every_process(spaces):
    here = ChoiceSample(40, seed=7).draw(LARGE, spaces[LARGE], H200)
    assert len(tiled_in(here)) == 40
    for hash_seed in ("0", "1234"):
        answer = subprocess.run(
            [sys.executable, "-c", DRAWING],
            input=msgspec.json.encode((LARGE, spaces[LARGE])),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        assert msgspec.json.decode(answer.stdout, type=list[Choice]) == here


def test_a_draw_does_not_depend_on_the_order_in_which_choices_come(spaces):
    sample = ChoiceSample(40)
    backwards = sample.draw(LARGE, spaces[LARGE][::-1], H200)
    assert backwards[::-1] == sample.draw(LARGE, spaces[LARGE], H200)


def test_another_seed_draws_others(spaces):
    draws = [set(ChoiceSample(40, seed=seed).draw(LARGE, spaces[LARGE], H200)) for seed in (1, 2)]
    assert len(draws[0] & draws[1]) < 30


@settings(derandomize=True, database=None, deadline=None, max_examples=25)
@given(count=st.integers(1, 3000), seed=st.integers(0, 2**40), even_share=st.floats(0, 1))
def test_as_many_are_drawn_as_asked_for_and_the_librarys_always_stay(spaces, count, seed, even_share):
    sample = ChoiceSample(count, seed, even_share)
    everything = [LIBRARY[0], *tiled_in(spaces[SMALL]), *LIBRARY[1:]]
    drawn = sample.draw(SMALL, everything, H200)
    assert len(tiled_in(drawn)) == min(count, len(tiled_in(everything)))
    assert [choice for choice in drawn if choice in LIBRARY] == LIBRARY
    assert drawn == [choice for choice in everything if choice in set(drawn)]


def test_a_larger_sample_of_one_kind_holds_a_smaller_one(spaces):
    for even_share in (0.0, 1.0):
        few, many = (
            set(ChoiceSample(count, even_share=even_share).draw(LARGE, spaces[LARGE], H200)) for count in (30, 90)
        )
        assert few < many


def test_the_preference_is_for_plausible_configs_and_the_even_share_for_all(spaces):
    def large_tiles(even_share):
        drawn = tiled_in(ChoiceSample(100, even_share=even_share).draw(LARGE, spaces[LARGE], H200))
        return sum(choice.block_m * choice.block_n >= 64 * 64 and choice.num_stages >= 3 for choice in drawn)

    assert large_tiles(0.0) > large_tiles(0.5) > large_tiles(1.0) > 0


def test_samples_of_a_family_overlap_though_their_spaces_differ(planner, spaces):
    """What is drawn for one problem is measured for the other, too, where that can have it."""

    def drawn(problem, *, shared):
        plan = planner.plan(PlanRequest(problem, H200, "EXHAUSTIVE", ChoiceSample(20, shared=shared)))
        return {*tiled_in(planned.choice for planned in plan.choices), *(choice for choice, _ in plan.failed)}

    alone, together = ({problem: drawn(problem, shared=shared) for problem in spaces} for shared in (False, True))
    for problem, choices in together.items():
        assert 20 <= len(choices) < len(tiled_in(spaces[problem])) / 4
        assert choices <= set(spaces[problem])
        assert len(alone[problem]) == 20
    common = together[LARGE] & set(spaces[SMALL])
    assert len(common) >= 20
    assert common == together[SMALL] & common
    assert len(together[LARGE] & alone[SMALL]) > len(alone[LARGE] & alone[SMALL])


def test_what_is_left_out_of_a_shared_sample_would_take_long(spaces):
    sample = ChoiceSample(10_000, shared=True)
    drawn = frozenset(tiled_in(spaces[LARGE]))
    everything = [*LIBRARY, *spaces[LARGE]]
    assert sample.pick(SMALL, everything, drawn, H200) == everything  # microseconds, whatever the tile
    huge = MMShape.of("mm", 32768, 32768, 1024, layout="NT")
    picked = sample.pick(huge, everything, drawn, H200)
    left_out = [choice for choice in everything if choice not in picked]
    assert left_out
    assert set(LIBRARY) <= set(picked)
    good = [choice for choice in left_out if choice.num_stages >= 3 and choice.block_m * choice.block_n >= 128 * 128]
    assert good == []
    hopeless = [c for c in tiled_in(everything) if c.num_stages == 1 and c.block_m * c.block_n <= 32 * 32]
    assert 0 < len(set(hopeless) & set(picked)) < len(hopeless) / 4  # a share of them stays, to learn from


def test_a_list_keeps_its_configs_with_what_the_problem_makes_of_them(spaces):
    listed = [TritonGEMMConfig("triton::mm", 64, 64, 32, 3, 4, even_k=False), AtenChoice("of no importance")]
    (kept, *others) = [
        choice for choice in ChoiceList.of(listed).draw(LARGE, spaces[LARGE], H200) if choice != AtenChoice("mm")
    ]
    assert others == []
    assert kept == msgspec.structs.replace(listed[0], even_k=True)


def test_a_list_tells_templates_apart_and_keeps_the_library(spaces):
    tiled = [choice for choice in tiled_in(spaces[LARGE]) if isinstance(choice, PersistentTMAConfig)][:3]
    everything = [*spaces[LARGE], *LIBRARY[1:]]
    drawn = ChoiceList.of(tiled).draw(LARGE, everything, H200)
    assert tiled_in(drawn) == tiled
    assert set(drawn) - set(tiled) == set(LIBRARY)
    assert tiled_in(ChoiceList.of([]).draw(LARGE, everything, H200)) == []
    assert ChoiceList.of(tiled) == ChoiceList.of(tiled[::-1])


def test_the_least_time_is_the_slower_of_arithmetic_and_traffic():
    square = MMShape.of("mm", 8192, 8192, 8192)
    assert least_us(square, H200) == pytest.approx(2 * 8192**3 / 989.4e6)
    row = MMShape.of("mm", 1, 8192, 8192)
    assert least_us(row, H200) == pytest.approx((8192 * 8192 + 2 * 8192) * 2 / 4814.304e3)
    assert least_us(square, Hardware("unknown", "cuda")) == 0.0
    as_tf32 = MMShape.of("mm", 8192, 8192, 8192, dtype="float32", allow_tf32=True)
    assert least_us(square, H200) < least_us(as_tf32, H200) < least_us(replace_tf32(as_tf32), H200)


def replace_tf32(problem):
    return msgspec.structs.replace(problem, allow_tf32=False)


def test_samples_are_equal_by_what_they_ask_for():
    assert ChoiceSample(3) == ChoiceSample(3, 42, 0.35)
    assert replace(ChoiceSample(3), shared=True) != ChoiceSample(3)
