"""Shapesets: lists of problems to be measured.

The file is `{"operations": {"addmm": {"shapes": [{"B": 1, "M": 256, ...}]}}}` in JSON, as the public torch-diode
writes it; `ShapeForm` tells the fields of a shape and which of them are ours. Ours also starts with
`"format": "diode-shapeset", "version": 1`; a file without them is taken as the public one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from diode.errors import InvalidRecordError
from diode.storage.atomic import write_atomically
from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Flaw, decoded, naming_file
from diode.storage.shape_form import ShapeForm, form_of, problem_of
from diode.types.problem import MMShape, Name

SHAPESET_FORMAT: Final = "diode-shapeset"
SHAPESET_VERSION: Final = 1


class _Header(msgspec.Struct):
    format: str = SHAPESET_FORMAT
    version: Annotated[int, msgspec.Meta(ge=1)] = SHAPESET_VERSION


class _Operation(msgspec.Struct, forbid_unknown_fields=True):
    shapes: list[ShapeForm]


class _Shapeset(msgspec.Struct, forbid_unknown_fields=True):
    operations: dict[Name, msgspec.Raw]
    format: Literal["diode-shapeset"] = "diode-shapeset"
    version: int = SHAPESET_VERSION


def read_shapeset(path: str | os.PathLike[str]) -> tuple[MMShape, ...]:
    """The problems of a shapeset, op after op, in the order of the file."""
    path = Path(path)
    with naming_file(path):
        return _problems(path.read_bytes())


def write_shapeset(problems: Iterable[MMShape], path: str | os.PathLike[str]) -> None:
    """Writes problems such that reading gives the same ones, gathered by op; one line for each."""
    lines_by_op: dict[str, list[str]] = {}
    for number, problem in enumerate(problems):
        lines_by_op.setdefault(problem.op, []).append(_line(problem, number))
    operations = ",\n".join(
        msgspec.json.encode(op).decode() + ': {"shapes": [\n' + ",\n".join(lines) + "\n]}"
        for op, lines in lines_by_op.items()
    )
    header = f'"format": "{SHAPESET_FORMAT}", "version": {SHAPESET_VERSION}'
    write_atomically(Path(path), f'{{{header}, "operations": {{\n{operations}\n}}}}\n'.encode())


def _problems(data: bytes) -> tuple[MMShape, ...]:
    header: _Header = decoded(data, _Header)
    if header.format != SHAPESET_FORMAT:
        raise Flaw("format", f"is {header.format!r}, not {SHAPESET_FORMAT!r}: this is no shapeset")
    if header.version > SHAPESET_VERSION:
        newest = f"{SHAPESET_VERSION}, the newest that this diode reads"
        raise Flaw("version", f"{header.version} is newer than {newest}: update torch-diode")
    shapeset: _Shapeset = decoded(data, _Shapeset)
    refuse_duplicate_keys(data, "json")
    problems: list[MMShape] = []
    for op, content in shapeset.operations.items():
        place = f"operations.{op}"
        operation: _Operation = decoded(content, _Operation, place=place)
        for number, form in enumerate(operation.shapes):
            problems.append(located_problem(op, form, f"{place}.shapes[{number}]"))
    return tuple(problems)


def located_problem(op: str, form: ShapeForm, place: str) -> MMShape:
    try:
        return problem_of(op, form)
    except Flaw as flaw:
        raise flaw.within(place) from flaw
    except InvalidRecordError as error:
        raise Flaw(place, str(error)) from error


def _line(problem: MMShape, number: int) -> str:
    place = f"problem {number} ({problem})"
    try:
        encoded = msgspec.json.encode(form_of(problem))
        op: str = decoded(msgspec.json.encode(problem.op), Name)
        read_again = problem_of(op, decoded(encoded, ShapeForm))
    except (Flaw, TypeError, ValueError) as cause:
        raise InvalidRecordError(f"not written, since it could not be read again: {place}: {cause}") from cause
    if read_again != problem:
        raise InvalidRecordError(f"not written, since it could not be read again: {place}")
    return encoded.decode()
