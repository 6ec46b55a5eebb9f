"""Solutions as CSV: one row per entry, an empty cell for what may be any.

`problem_type` and `choice_type` say that the row holds the full record, as a dataset in CSV does; where one is empty,
the cells are those of a pattern. `solution` is the name of the whole, the same in every row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from diode.errors import InvalidRecordError
from diode.storage.cells import Cells, KindCells, RecordCells, at_column
from diode.storage.csv_records import CHOICE_COLUMNS, CHOICES, GEMM
from diode.storage.csv_table import table_rows, write_table
from diode.storage.flaws import Flaw
from diode.types.measurement import Microseconds
from diode.types.problem import Name
from diode.types.solution import ChoicePattern, ProblemPattern, Solution, SolutionEntry


class _Other(msgspec.Struct, forbid_unknown_fields=True):
    """The facts of a row that are neither of the problem nor of the choice."""

    solution: Name | None = None
    time_us: Microseconds | None = None


_PROBLEM: Final = KindCells("problem_type", {"": RecordCells(ProblemPattern), "gemm": GEMM})
_CHOICE: Final = KindCells(
    "choice_type",
    {"": RecordCells(ChoicePattern, columns={"allow_tf32": CHOICE_COLUMNS["allow_tf32"]}), **CHOICES},
)
_OTHER: Final = RecordCells(_Other)
_COLUMNS: Final = (*_PROBLEM.columns, *_CHOICE.columns, *_OTHER.columns)


def write_solution_csv(solution: Solution, path: Path) -> None:
    rows = (
        _PROBLEM.cells(entry.problem) + _CHOICE.cells(entry.choice) + _OTHER.cells(_Other(solution.name, entry.time_us))
        for entry in solution.entries
    )
    write_table(path, _COLUMNS, rows)


def solution_from_csv(data: bytes, name: str) -> Solution:
    """`name` is that of a solution that has none of its own."""
    entries: list[SolutionEntry] = []
    names: set[str] = set()
    for place, cells in table_rows(data, _COLUMNS):
        entry, own_name = _entry(cells, place)
        entries.append(entry)
        names.add(own_name or name)
        if len(names) > 1:
            raise Flaw(at_column(place, "solution"), f"is {own_name!r}, not the same as in the rows before")
    if not entries:
        raise Flaw("", "holds no entry, only the names of columns")
    return Solution(names.pop(), tuple(entries))


def _entry(cells: Cells, place: str) -> tuple[SolutionEntry, str]:
    problem, choice = _PROBLEM.record(cells, place), _CHOICE.record(cells, place)
    other = _OTHER.record(cells, place)
    try:
        return SolutionEntry(problem, choice, other.time_us), other.solution or ""
    except InvalidRecordError as error:
        raise Flaw(place, str(error)) from error
