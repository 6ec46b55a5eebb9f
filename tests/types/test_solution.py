from __future__ import annotations

import msgspec
import pytest

from diode.errors import InvalidRecordError
from diode.types import (
    AtenChoice,
    Choice,
    ChoicePattern,
    CppTemplateConfig,
    DecomposeKConfig,
    MMShape,
    Operand,
    OtherChoice,
    OtherProblem,
    PersistentTMAConfig,
    ProblemPattern,
    Solution,
    SolutionEntry,
    TritonGEMMConfig,
)

LINEAR = MMShape.of("addmm", 256, 512, 1024, dtype="float16", layout="NT", out_dtype="float32")
BATCHED = MMShape.of("bmm", 64, 96, 128, B=7, dtype="float32", allow_tf32=True)
CONVOLUTION = OtherProblem("addmm", ())
TILED = TritonGEMMConfig("triton::mm", 64, 128, 32, 3, 4, even_k=True)
TMA = PersistentTMAConfig("triton::mm_persistent_tma", 64, 128, 32, 4, 8, True, False, 132)
CHOICES: list[Choice] = [
    TILED,
    TMA,
    DecomposeKConfig(8),
    AtenChoice("mm"),
    AtenChoice("addmm"),
    CppTemplateConfig("triton::mm", (("block_m", 64), ("kind", "aten"))),
    OtherChoice("cutlass", "triton::mm", (("block_m", 64),)),
]


def places(choice: Choice | ChoicePattern, problem: MMShape | ProblemPattern = LINEAR) -> list[int]:
    return Solution("s", (SolutionEntry(problem, choice),)).choices_for(LINEAR, CHOICES)


@pytest.mark.parametrize(
    ("field", "of_linear", "another"),
    [
        ("op", "addmm", "mm"),
        ("B", 1, 7),
        ("M", 256, 512),
        ("N", 512, 256),
        ("K", 1024, 128),
        ("dtype", "float16", "float32"),
        ("b_dtype", "float16", "float32"),
        ("out_dtype", "float32", "float16"),
        ("layout", "NT", "NN"),
        ("allow_tf32", False, True),
    ],
)
def test_each_fact_of_a_problem_counts_only_where_it_is_given(field: str, of_linear, another) -> None:
    assert ProblemPattern(**{field: of_linear}).matches(LINEAR)
    assert not ProblemPattern(**{field: another}).matches(LINEAR)
    assert field in msgspec.structs.asdict(ProblemPattern())


def test_every_fact_given_must_hold() -> None:
    assert ProblemPattern(M=256, N=512, K=1024).matches(LINEAR)
    assert not ProblemPattern(M=256, N=512, K=1025).matches(LINEAR)
    assert ProblemPattern(allow_tf32=True, B=7, layout="NN").matches(BATCHED)


def test_the_pattern_of_any_gemm_matches_no_other_problem() -> None:
    assert ProblemPattern().matches(LINEAR)
    assert ProblemPattern().matches(BATCHED)
    assert not ProblemPattern().matches(CONVOLUTION)
    assert not ProblemPattern(op="addmm").matches(CONVOLUTION)


def test_strides_that_are_no_layout_are_found_by_their_letters() -> None:
    skewed = Operand("float16", (7, 3))
    problem = msgspec.structs.replace(LINEAR, a=skewed)
    assert ProblemPattern(layout="ST").matches(problem)
    assert not ProblemPattern(layout="NT").matches(problem)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (ChoicePattern(), [0, 1, 2, 3, 4, 5, 6]),
        (ChoicePattern(kind="triton_gemm"), [0]),
        (ChoicePattern(kind="aten"), [3, 4]),
        (ChoicePattern(kind="aten", kernel="addmm"), [4]),
        (ChoicePattern(kernel="mm"), [3]),
        (ChoicePattern(block_m=64, block_n=128, block_k=32), [0, 1]),
        (ChoicePattern(block_m=64, block_n=128, block_k=64), []),
        (ChoicePattern(block_m=64), [0, 1, 5]),
        (ChoicePattern(block_m=64, num_stages=3), [0]),
        (ChoicePattern(num_warps=8), [1]),
        (ChoicePattern(group_m=8), [0, 1]),
        (ChoicePattern(group_m=4), []),
        (ChoicePattern(even_k=True), [0]),
        (ChoicePattern(even_k=False), [1]),
        (ChoicePattern(allow_tf32=True), []),
        (ChoicePattern(use_fast_accum=False, acc_type="tl.float32"), [0, 1]),
        (ChoicePattern(num_sms=132), [1]),
        (ChoicePattern(k_split=8), [2]),
        (ChoicePattern(k_split=4), []),
        (ChoicePattern(template="triton::mm"), [0, 5]),
        (ChoicePattern(backend="cutlass"), [6]),
    ],
)
def test_a_pattern_of_choices_takes_those_that_have_what_it_names(pattern: ChoicePattern, expected: list[int]) -> None:
    assert places(pattern) == expected
    assert [place for place, choice in enumerate(CHOICES) if pattern.matches(choice)] == expected


def test_full_records_match_their_equals_alone() -> None:
    for place, choice in enumerate(CHOICES):
        assert places(choice) == [place]
    assert places(msgspec.structs.replace(TILED, extra=(("x", 1),))) == []
    assert places(TILED, msgspec.structs.replace(LINEAR, bias=None)) == []


def test_several_entries_add_up_in_the_order_of_the_choices() -> None:
    solution = Solution(
        "s",
        (
            SolutionEntry(ProblemPattern(op="addmm"), AtenChoice("addmm"), 3.5),
            SolutionEntry(ProblemPattern(op="bmm"), DecomposeKConfig(8)),
            SolutionEntry(LINEAR, TMA),
            SolutionEntry(choice=ChoicePattern(block_m=64)),
        ),
    )
    assert solution.choices_for(LINEAR, CHOICES) == [0, 1, 4, 5]
    assert solution.choices_for(LINEAR, CHOICES[::-1]) == [1, 2, 5, 6]
    assert solution.choices_for(BATCHED, CHOICES) == [0, 1, 2]
    assert solution.choices_for(CONVOLUTION, CHOICES) == []
    assert solution.choices_for(LINEAR, []) == []


def test_an_entry_of_one_half_leaves_the_other_open() -> None:
    assert places(ChoicePattern(), ProblemPattern(op="addmm")) == list(range(len(CHOICES)))
    assert SolutionEntry(choice=TILED).matches_problem(BATCHED)


def test_what_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="says nothing"):
        SolutionEntry()
    with pytest.raises(InvalidRecordError, match="'s' has no entries"):
        Solution("s", ())
