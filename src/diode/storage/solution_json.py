"""Solutions as JSON: the form of diode, and two of others that are read.

Ours is `{"version": 1, "name": "...", "solution": [{"problem": {...}, "choice": {...}, "time_us": 12.5}]}`. A problem
or choice with a `type` is a full record as in a dataset; one without is a pattern, and what it leaves out may be any.

`{"name": "...", "configs": [{"M": 8, "N": 16, "K": 24, "block_m": 64, ...}]}` holds facts of problem and choice side by
side. `{"config": [...]}` is the public torch-diode's, whose configs are for any problem.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from diode.errors import InvalidRecordError
from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Flaw, decoded
from diode.storage.public_form import PublicConfig
from diode.types.choice import Choice
from diode.types.measurement import Microseconds
from diode.types.problem import MMShape, Name
from diode.types.solution import ChoicePattern, ProblemPattern, Solution, SolutionEntry

SOLUTION_VERSION: Final = 1

Objects = Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
_NOTHING: Final = msgspec.Raw(b"{}")


class _Header(msgspec.Struct):
    """What tells one form from another; the form's own strict record looks at the rest."""

    version: Annotated[int, msgspec.Meta(ge=1)] = SOLUTION_VERSION
    solution: msgspec.Raw = msgspec.Raw()
    configs: msgspec.Raw = msgspec.Raw()
    config: msgspec.Raw = msgspec.Raw()


class _OwnForm(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    name: Name
    solution: Objects


class _OwnEntry(msgspec.Struct, forbid_unknown_fields=True):
    problem: msgspec.Raw = _NOTHING
    choice: msgspec.Raw = _NOTHING
    time_us: Microseconds | UnsetType = UNSET


class _FlatForm(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    configs: Objects


class _FlatRest(msgspec.Struct, forbid_unknown_fields=True):
    """What a flat config may hold beside facts: the capitals follow from the problem, so they pick no choice."""

    time_us: Microseconds | UnsetType = UNSET
    name: str | UnsetType = UNSET
    grid: int | UnsetType | None = UNSET
    EVEN_K: bool | UnsetType = UNSET
    ALLOW_TF32: bool | UnsetType = UNSET
    USE_FAST_ACCUM: bool | UnsetType = UNSET
    ACC_TYPE: Name | UnsetType = UNSET


class _PublicForm(msgspec.Struct, forbid_unknown_fields=True):
    config: Annotated[list[PublicConfig], msgspec.Meta(min_length=1)]
    name: Name | UnsetType = UNSET
    version: Literal[1] = 1
    written_version: int | UnsetType = msgspec.field(name="_version", default=UNSET)


class _Typed(msgspec.Struct):
    type: msgspec.Raw = msgspec.Raw()


def solution_from_json(data: bytes, name: str) -> Solution:
    """`name` is that of a solution that has none of its own."""
    header: _Header = decoded(data, _Header)
    if header.version > SOLUTION_VERSION:
        newest = f"{SOLUTION_VERSION}, the newest that this diode reads"
        raise Flaw("version", f"{header.version} is newer than {newest}: update torch-diode")
    if header.solution:
        own: _OwnForm = decoded(data, _OwnForm)
        refuse_duplicate_keys(data, "json")
        return Solution(own.name, tuple(_own_entry(raw, f"solution[{n}]") for n, raw in enumerate(own.solution)))
    if header.configs:
        flat: _FlatForm = decoded(data, _FlatForm)
        refuse_duplicate_keys(data, "json")
        return Solution(flat.name, tuple(_flat_entry(raw, f"configs[{n}]") for n, raw in enumerate(flat.configs)))
    if header.config:
        public: _PublicForm = decoded(data, _PublicForm)
        refuse_duplicate_keys(data, "json")
        entries = tuple(SolutionEntry(choice=_tile(config)) for config in public.config)
        return Solution(name if public.name is UNSET else public.name, entries)
    raise Flaw("", "holds neither solution nor configs nor config: this is no solution file")


def solution_to_json(solution: Solution) -> bytes:
    """One line for each entry."""
    name = msgspec.json.encode(solution.name).decode()
    lines = ",\n".join(msgspec.json.encode(entry).decode() for entry in solution.entries)
    return f'{{"version": {SOLUTION_VERSION}, "name": {name}, "solution": [\n{lines}\n]}}\n'.encode()


def _own_entry(data: msgspec.Raw, place: str) -> SolutionEntry:
    form: _OwnEntry = decoded(data, _OwnEntry, place=place)
    problem = _full_or_pattern(form.problem, MMShape, ProblemPattern, f"{place}.problem")
    choice = _full_or_pattern(form.choice, Choice, ChoicePattern, f"{place}.choice")
    return _entry(problem, choice, form.time_us, place)


def _flat_entry(data: msgspec.Raw, place: str) -> SolutionEntry:
    fields: dict[str, msgspec.Raw] = decoded(data, dict[str, msgspec.Raw], place=place)
    of_problem = {name: fields.pop(name) for name in ProblemPattern.__struct_fields__ if name in fields}
    of_choice = {name: fields.pop(name) for name in ChoicePattern.__struct_fields__ if name in fields}
    rest: _FlatRest = decoded(msgspec.json.encode(fields), _FlatRest, place=place)
    problem = _pattern(of_problem, ProblemPattern, place)
    choice = _pattern(of_choice, ChoicePattern, place)
    return _entry(problem, choice, rest.time_us, place)


def _entry(problem: Any, choice: Any, time_us: float | UnsetType, place: str) -> SolutionEntry:
    try:
        return SolutionEntry(problem, choice, None if time_us is UNSET else time_us)
    except InvalidRecordError as error:
        raise Flaw(place, str(error)) from error


def _full_or_pattern(data: msgspec.Raw, full: Any, pattern: Any, place: str) -> Any:
    typed: _Typed = decoded(data, _Typed, place=place)
    if typed.type:
        return decoded(data, full, place=place)
    return _pattern(decoded(data, dict[str, msgspec.Raw], place=place), pattern, place)


def _pattern(fields: dict[str, msgspec.Raw], pattern: Any, place: str) -> Any:
    for name, value in fields.items():
        if bytes(value) == b"null":
            raise Flaw(f"{place}.{name}", "is null: leave it out where it may be any")
    return decoded(msgspec.json.encode(fields), pattern, place=place)


def _tile(config: PublicConfig) -> ChoicePattern:
    # EVEN_K and the like follow from the problem, yet the public package writes the same for all: they pick no choice.
    return ChoicePattern(
        kind="triton_gemm",
        block_m=config.block_m,
        block_n=config.block_n,
        block_k=config.block_k,
        num_stages=config.num_stages,
        num_warps=config.num_warps,
        group_m=config.group_m,
    )
