"""Datasets as CSV, for spreadsheets and other programs: one row per measurement, one column per fact.

It holds all that a dataset does, and is read back exactly; but it is large, and carries no checksum.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from diode.errors import InvalidRecordError
from diode.storage.cells import Cells, KindCells, RecordCells, refuse_strays
from diode.storage.content import TIMING_COLUMNS, check_content, ready_to_write
from diode.storage.csv_records import CHOICES, GEMM, OTHER_PROBLEM
from diode.storage.csv_table import table_rows, write_table
from diode.storage.flaws import Flaw, naming_file
from diode.types.dataset import NO_INT, Dataset, DatasetBuilder
from diode.types.hardware import Hardware
from diode.types.measurement import Environment, Failure, Measurement, Timing, TimingMethod

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Record = TypeVar("Record")


class _TimingRow(Timing, frozen=True, forbid_unknown_fields=True):
    """A timing whose counts fit a dataset's columns."""

    repeats: Count | None = None
    clock_mhz: Count | None = None


_ENVIRONMENT: Final = RecordCells(Environment, nested={"hardware": RecordCells(Hardware, columns={"name": "hardware"})})
_METHOD: Final = RecordCells(TimingMethod, columns={"kernel": "compiled_as"})
_PROBLEM: Final = KindCells("problem_type", {"gemm": GEMM, "other": OTHER_PROBLEM})
_CHOICE: Final = KindCells("choice_type", CHOICES)
_TIMING: Final = RecordCells(_TimingRow)
_FAILURE: Final = RecordCells(Failure, columns={"reason": "failure"})
_GROUPS: Final = (_ENVIRONMENT, _METHOD, _PROBLEM, _CHOICE, _TIMING, _FAILURE)
_COLUMNS: Final = tuple(column for group in _GROUPS for column in group.columns)


def write_csv(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    dataset = ready_to_write(dataset)
    columns = dataset.columns
    tables = (
        (list(map(_ENVIRONMENT.cells, dataset.environments)), columns.environment_id),
        (list(map(_METHOD.cells, dataset.methods)), columns.method_id),
        (list(map(_PROBLEM.cells, dataset.problems)), columns.problem_id),
        (list(map(_CHOICE.cells, dataset.choices)), columns.choice_id),
    )
    failures = [*map(_FAILURE.cells, dataset.failures), [""] * len(_FAILURE.columns)]
    timings = zip(*(getattr(columns, name).tolist() for name in TIMING_COLUMNS), strict=True)
    rows = (
        [cell for (table, ids) in tables for cell in table[ids[row]]]
        + ["" if value == NO_INT or value != value else repr(value) for value in timing]
        + failures[columns.failure_id[row]]
        for row, timing in enumerate(timings)
    )
    write_table(Path(path), _COLUMNS, rows)


def read_csv(path: str | os.PathLike[str]) -> Dataset:
    path = Path(path)
    with naming_file(path):
        return _dataset(path.read_bytes())


class _Known(Generic[Record]):
    """Reads equal cells once: a dataset has few distinct records."""

    def __init__(self, columns: tuple[str, ...], read: Callable[[Cells, str], Record]) -> None:
        self._cells_of = itemgetter(*columns)
        self._read = read
        self._known: dict[Any, Record] = {}

    def record(self, cells: Cells, place: str) -> Record:
        key = self._cells_of(cells)
        if key not in self._known:
            self._known[key] = self._read(cells, place)
        return self._known[key]


def _dataset(data: bytes) -> Dataset:
    environments = _Known(_ENVIRONMENT.columns, _ENVIRONMENT.record)
    methods = _Known(_METHOD.columns, _METHOD.record)
    problems = _Known(_PROBLEM.columns, _PROBLEM.record)
    choices = _Known(_CHOICE.columns, _CHOICE.record)
    failures = _Known(_FAILURE.columns, _failure)
    builder = DatasetBuilder()
    for place, cells in table_rows(data, _COLUMNS):
        timed = any(map(cells.get, _TIMING.columns))
        try:
            measurement = Measurement(
                problem=problems.record(cells, place),
                choice=choices.record(cells, place),
                environment=environments.record(cells, place),
                method=methods.record(cells, place),
                timing=_TIMING.record(cells, place) if timed else None,
                failure=failures.record(cells, place),
            )
        except InvalidRecordError as error:
            raise Flaw(place, str(error)) from error
        builder.add(measurement)
    return check_content(builder.build(), "")


def _failure(cells: Cells, place: str) -> Failure | None:
    if cells.get("failure"):
        return _FAILURE.record(cells, place)
    refuse_strays(cells, _FAILURE.columns, place, "must be empty where there is no failure")
    return None
