"""A dataset: measurements as columns of numbers beside tables of the distinct problems, choices and circumstances."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from diode.types.choice import Choice
from diode.types.measurement import Environment, Failure, Measurement, Timing, TimingMethod
from diode.types.problem import Problem

Row = TypeVar("Row", bound=Hashable)

NO_INT = -1
"""Stands in integer columns for «not known», as NaN does in float columns."""


class Interned(Generic[Row]):
    """A table of distinct rows, numbered in the order of their first appearance."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows: list[Row] = []
        self._numbers: dict[Row, int] = {}
        for row in rows:
            self.number(row)

    def number(self, row: Row) -> int:
        known = self._numbers.get(row)
        if known is None:
            known = self._numbers[row] = len(self.rows)
            self.rows.append(row)
        return known


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry per measurement; `*_id` are row numbers of the dataset's tables, `failure_id` is -1 for a success."""

    problem_id: NDArray[np.int32]
    choice_id: NDArray[np.int32]
    environment_id: NDArray[np.int32]
    method_id: NDArray[np.int32]
    failure_id: NDArray[np.int32]
    time_us: NDArray[np.float64]
    min_us: NDArray[np.float64]
    spread: NDArray[np.float64]
    repeats: NDArray[np.int32]
    clock_mhz: NDArray[np.int32]

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Columns:
        return Columns(**{name: column[rows] for name, column in vars(self).items()})


COLUMN_TYPES: dict[str, type[np.generic]] = {
    "problem_id": np.int32,
    "choice_id": np.int32,
    "environment_id": np.int32,
    "method_id": np.int32,
    "failure_id": np.int32,
    "time_us": np.float64,
    "min_us": np.float64,
    "spread": np.float64,
    "repeats": np.int32,
    "clock_mhz": np.int32,
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Measurements in columns. Iterating gives `Measurement` records; the columns are for whatever must be fast."""

    problems: tuple[Problem, ...]
    choices: tuple[Choice, ...]
    environments: tuple[Environment, ...]
    methods: tuple[TimingMethod, ...]
    failures: tuple[Failure, ...]
    columns: Columns

    @classmethod
    def of(cls, measurements: Iterable[Measurement]) -> Dataset:
        builder = DatasetBuilder()
        for measurement in measurements:
            builder.add(measurement)
        return builder.build()

    @classmethod
    def joined(cls, datasets: Iterable[Dataset]) -> Dataset:
        """All rows of one after the other; taken one by one, so that a generator need hold no two of them."""
        builder = DatasetBuilder()
        for dataset in datasets:
            builder.extend(dataset)
        return builder.build()

    def __len__(self) -> int:
        return len(self.columns.problem_id)

    def __iter__(self) -> Iterator[Measurement]:
        return (self.measurement(row) for row in range(len(self)))

    @property
    def succeeded(self) -> NDArray[np.bool_]:
        succeeded: NDArray[np.bool_] = self.columns.failure_id == NO_INT
        return succeeded

    def measurement(self, row: int) -> Measurement:
        columns = self.columns
        failure_id = int(columns.failure_id[row])
        timing = None
        if failure_id == NO_INT:
            timing = Timing(
                time_us=float(columns.time_us[row]),
                min_us=_known_float(columns.min_us[row]),
                spread=_known_float(columns.spread[row]),
                repeats=_known_int(columns.repeats[row]),
                clock_mhz=_known_int(columns.clock_mhz[row]),
            )
        return Measurement(
            problem=self.problems[columns.problem_id[row]],
            choice=self.choices[columns.choice_id[row]],
            environment=self.environments[columns.environment_id[row]],
            method=self.methods[columns.method_id[row]],
            timing=timing,
            failure=None if timing is not None else self.failures[failure_id],
        )

    def select(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Dataset:
        """The given rows, with tables that hold only what these rows use."""
        columns = vars(self.columns.take(rows))
        tables: dict[str, tuple[object, ...]] = {}
        for name, id_name in _TABLES.items():
            table: tuple[object, ...] = getattr(self, name)
            ids = columns[id_name]
            used = np.unique(ids[ids != NO_INT])
            renumbered = np.full(len(table) + 1, NO_INT, dtype=np.int32)
            renumbered[used] = np.arange(len(used), dtype=np.int32)
            columns = {**columns, id_name: renumbered[ids]}
            tables[name] = tuple(table[number] for number in used)
        return Dataset(columns=Columns(**columns), **tables)  # type: ignore[arg-type]  # tables keep their row types


_TABLES = {
    "problems": "problem_id",
    "choices": "choice_id",
    "environments": "environment_id",
    "methods": "method_id",
    "failures": "failure_id",
}


class DatasetBuilder:
    """Gathers measurements one by one, or whole datasets, into one dataset."""

    def __init__(self) -> None:
        self._problems: Interned[Problem] = Interned()
        self._choices: Interned[Choice] = Interned()
        self._environments: Interned[Environment] = Interned()
        self._methods: Interned[TimingMethod] = Interned()
        self._failures: Interned[Failure] = Interned()
        self._rows: list[tuple[int, int, int, int, int, float, float, float, int, int]] = []
        self._chunks: list[Columns] = []

    def add(self, measurement: Measurement) -> None:
        timing, failure = measurement.timing, measurement.failure
        self._rows.append(
            (
                self._problems.number(measurement.problem),
                self._choices.number(measurement.choice),
                self._environments.number(measurement.environment),
                self._methods.number(measurement.method),
                NO_INT if failure is None else self._failures.number(failure),
                np.nan if timing is None else timing.time_us,
                np.nan if timing is None or timing.min_us is None else timing.min_us,
                np.nan if timing is None or timing.spread is None else timing.spread,
                NO_INT if timing is None or timing.repeats is None else timing.repeats,
                NO_INT if timing is None or timing.clock_mhz is None else timing.clock_mhz,
            )
        )

    def extend(self, dataset: Dataset) -> None:
        """Appends all rows of a dataset, without making records of them."""
        self._close_chunk()
        columns = vars(dataset.columns)
        for name, id_name in _TABLES.items():
            interned: Interned[Hashable] = getattr(self, f"_{name}")
            numbers = [interned.number(row) for row in getattr(dataset, name)]
            columns = {**columns, id_name: np.array([*numbers, NO_INT], dtype=np.int32)[columns[id_name]]}
        self._chunks.append(Columns(**columns))

    def build(self) -> Dataset:
        self._close_chunk()
        columns = {
            name: np.concatenate([np.empty(0, dtype), *(getattr(chunk, name) for chunk in self._chunks)])
            for name, dtype in COLUMN_TYPES.items()
        }
        return Dataset(
            problems=tuple(self._problems.rows),
            choices=tuple(self._choices.rows),
            environments=tuple(self._environments.rows),
            methods=tuple(self._methods.rows),
            failures=tuple(self._failures.rows),
            columns=Columns(**columns),
        )

    def _close_chunk(self) -> None:
        if not self._rows:
            return
        columns = zip(COLUMN_TYPES.items(), zip(*self._rows, strict=True), strict=True)
        self._chunks.append(Columns(**{name: np.array(values, dtype) for (name, dtype), values in columns}))
        self._rows = []


def _known_float(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def _known_int(value: np.int32) -> int | None:
    return None if value == NO_INT else int(value)
