"""What to run for which problem, as decided beforehand: by a measurement, a table, or by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from diode.errors import InvalidRecordError
from diode.types.choice import Choice, CppTemplateConfig, Positive
from diode.types.dtypes import DType
from diode.types.measurement import Microseconds
from diode.types.problem import MMShape, Name, Problem, Size

Letters = Annotated[str, msgspec.Meta(pattern=r"^[NTS]{2}\Z")]
ChoiceKind = Literal["triton_gemm", "persistent_tma", "decompose_k", "aten", "cpp_template", "other"]


class ProblemPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Some facts of a GEMM; one that is None may be any. `dtype` is A's element type, `layout` as `MMShape` has it."""

    op: Name | None = None
    B: Size | None = None
    M: Size | None = None
    N: Size | None = None
    K: Size | None = None
    dtype: DType | None = None
    b_dtype: DType | None = None
    out_dtype: DType | None = None
    layout: Letters | None = None
    allow_tf32: bool | None = None

    def matches(self, problem: Problem) -> bool:
        """Never true of what is no GEMM."""
        if not isinstance(problem, MMShape):
            return False
        facts = {
            **{name: getattr(problem, name) for name in ("op", "B", "M", "N", "K", "layout", "allow_tf32")},
            "dtype": problem.a.dtype,
            "b_dtype": problem.b.dtype,
            "out_dtype": problem.out.dtype,
        }
        return all(facts[name] == wanted for name, wanted in _given(self).items())


class ChoicePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Some facts of a choice; a fact that is None may be any. A choice that has no such fact does not match.

    What a CPU template says of itself, its blocks, are facts too.
    """

    kind: ChoiceKind | None = None
    template: Name | None = None
    block_m: Positive | None = None
    block_n: Positive | None = None
    block_k: Positive | None = None
    num_stages: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    num_warps: Positive | None = None
    group_m: Positive | None = None
    even_k: bool | None = None
    allow_tf32: bool | None = None
    use_fast_accum: bool | None = None
    acc_type: Name | None = None
    num_sms: Positive | None = None
    k_split: Positive | None = None
    kernel: Name | None = None
    backend: Name | None = None

    def matches(self, choice: Choice) -> bool:
        described = choice.fields if isinstance(choice, CppTemplateConfig) else ()
        facts = {**dict(described), "kind": choice.__struct_config__.tag, **msgspec.structs.asdict(choice)}
        return all(facts.get(name) == wanted for name, wanted in _given(self).items())


class SolutionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of the problems that match, the choices that match are allowed. A full record matches what equals it."""

    problem: MMShape | ProblemPattern = ProblemPattern()
    choice: Choice | ChoicePattern = ChoicePattern()
    time_us: Microseconds | None = None
    """How long the choice took, where the entry comes from a measurement."""

    def __post_init__(self) -> None:
        if self.problem == ProblemPattern() and self.choice == ChoicePattern():
            raise InvalidRecordError(
                "an entry that names neither a fact of the problem nor one of the choice says nothing"
            )

    def matches_problem(self, problem: Problem) -> bool:
        return self.problem.matches(problem) if isinstance(self.problem, ProblemPattern) else self.problem == problem

    def matches_choice(self, choice: Choice) -> bool:
        return self.choice.matches(choice) if isinstance(self.choice, ChoicePattern) else self.choice == choice


class Solution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which choices to take for which problems. Where several entries match a problem, each adds its choices."""

    name: Name
    entries: tuple[SolutionEntry, ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise InvalidRecordError(f"solution {self.name!r} has no entries: it needs one at least")

    def choices_for(self, problem: Problem, choices: Sequence[Choice]) -> list[int]:
        """The places in `choices` of those that are allowed for the problem, in their order."""
        entries = [entry for entry in self.entries if entry.matches_problem(problem)]
        return [place for place, choice in enumerate(choices) if any(entry.matches_choice(choice) for entry in entries)]


def _given(pattern: ProblemPattern | ChoicePattern) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(pattern).items() if value is not None}
