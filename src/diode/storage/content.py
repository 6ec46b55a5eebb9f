"""What every file of measurements must hold, however it is written: tables of strict records, columns that fit them."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.errors import InvalidRecordError
from diode.storage.flaws import Flaw, decoded
from diode.types.choice import Choice
from diode.types.dataset import COLUMN_TYPES, NO_INT, Columns, Dataset, DatasetBuilder
from diode.types.measurement import Environment, Failure, TimingMethod
from diode.types.problem import Problem

DATASET_FORMAT: Final = "diode-dataset"
DATASET_VERSION: Final = 1

TABLE_TYPES: Final[dict[str, Any]] = {
    "problems": Problem,
    "choices": Choice,
    "environments": Environment,
    "methods": TimingMethod,
    "failures": Failure,
}
ID_COLUMNS: Final = {
    "problems": "problem_id",
    "choices": "choice_id",
    "environments": "environment_id",
    "methods": "method_id",
    "failures": "failure_id",
}
TIMING_COLUMNS: Final = ("time_us", "min_us", "spread", "repeats", "clock_mhz")
REQUIRED_TABLES: Final = ("problems", "choices", "environments", "methods")


def ready_to_write(dataset: Dataset) -> Dataset:
    """The same measurements in the one form that is written; refuses what could not be read again.

    Records are built without checks, so this is where a wrong one is found: before it is in a file.
    """
    tables: dict[str, Any] = {}
    for name, record_type in TABLE_TYPES.items():
        records = enumerate(getattr(dataset, name))
        tables[name] = tuple(_as_read_again(record, record_type, f"{name}[{number}]") for number, record in records)
    dataset = Dataset(columns=dataset.columns, **tables)
    try:
        check_columns(dataset)
    except Flaw as flaw:
        raise InvalidRecordError(f"not written, since it could not be read again: {flaw}") from flaw
    return in_order_of_appearance(dataset)


def check_version(version: object) -> None:
    if type(version) is not int or version < 1:
        raise Flaw("version", f"is {version!r}, not a positive number")
    if version > DATASET_VERSION:
        newest = f"{DATASET_VERSION}, the newest that this diode reads"
        raise Flaw("version", f"{version} is newer than {newest}: update torch-diode")


def check_columns(dataset: Dataset) -> None:
    """Ids within their tables, numbers in their range, and for each row either a time or a failure."""
    columns = vars(dataset.columns)
    for name, dtype in COLUMN_TYPES.items():
        column = columns[name]
        if column.dtype != dtype:
            raise Flaw(f"columns.{name}", f"holds {column.dtype}, not {np.dtype(dtype)}")
        if column.shape != (len(dataset),):
            raise Flaw(f"columns.{name}", f"has the shape {column.shape}, but problem_id has {len(dataset)} rows")
    for table, name in ID_COLUMNS.items():
        rows = len(getattr(dataset, table))
        lowest = NO_INT if table == "failures" else 0
        _refuse(
            (columns[name] < lowest) | (columns[name] >= rows), name, columns, f"is no row of the {rows} in {table}"
        )
    failed = ~dataset.succeeded
    for name in ("time_us", "min_us", "spread"):
        column = columns[name]
        known = ~np.isnan(column)
        _refuse(known & ~np.isfinite(column), name, columns, "is not finite")
        _refuse(known & (column < 0 if name == "spread" else column <= 0), name, columns, "is out of range")
    for name in ("repeats", "clock_mhz"):
        _refuse((columns[name] < 1) & (columns[name] != NO_INT), name, columns, "is out of range")
    _refuse(~failed & np.isnan(columns["time_us"]), "time_us", columns, "stands in a row that has no failure either")
    for name in TIMING_COLUMNS:
        _refuse(failed & is_known(columns[name]), name, columns, "stands in a row that is a failure")


def is_known(column: NDArray[Any]) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = ~np.isnan(column) if column.dtype.kind == "f" else column != NO_INT
    return known


def in_order_of_appearance(dataset: Dataset) -> Dataset:
    """The same measurements, with tables of distinct rows that are all used, numbered as the measurements use them."""
    distinct = DatasetBuilder()
    distinct.extend(dataset)
    dataset = distinct.build()
    columns = vars(dataset.columns)
    tables: dict[str, Any] = {}
    for name, id_name in ID_COLUMNS.items():
        table, ids = getattr(dataset, name), columns[id_name]
        first_use = np.full(len(table) + 1, len(ids), dtype=np.intp)
        # With repeated indices the last assignment stays: going backwards, that is the first use.
        first_use[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
        first_use[NO_INT] = len(ids)
        used = np.flatnonzero(first_use < len(ids))
        in_order = used[np.argsort(first_use[used])]
        renumbered = np.full(len(table) + 1, NO_INT, dtype=np.int32)
        renumbered[in_order] = np.arange(len(in_order), dtype=np.int32)
        columns = {**columns, id_name: renumbered[ids]}
        tables[name] = tuple(table[number] for number in in_order)
    columns["time_us"], columns["min_us"], columns["spread"] = (
        np.where(np.isnan(columns[name]), np.nan, columns[name]) for name in ("time_us", "min_us", "spread")
    )
    return Dataset(columns=Columns(**columns), **tables)


def checksum(dataset: Dataset) -> str:
    """Equal for equal measurements in equal order, in whatever format; `dataset` is in order of appearance."""
    digest = hashlib.sha256()
    for name in TABLE_TYPES:
        digest.update(msgspec.json.encode(getattr(dataset, name)) + b"\n")
    for name, dtype in COLUMN_TYPES.items():
        column = getattr(dataset.columns, name)
        digest.update(np.ascontiguousarray(column, np.dtype(dtype).newbyteorder("<")).data)
    return f"sha256:{digest.hexdigest()}"


def check_content(dataset: Dataset, expected_checksum: str) -> Dataset:
    """The checked dataset in order of appearance; an empty `expected_checksum` is not compared."""
    check_columns(dataset)
    dataset = in_order_of_appearance(dataset)
    if expected_checksum and checksum(dataset) != expected_checksum:
        raise Flaw(
            "checksum",
            "does not fit the measurements: the file was damaged, or edited by hand "
            "(then remove its checksum); else fetch or write it again",
        )
    return dataset


def _as_read_again(record: Any, record_type: Any, place: str) -> Any:
    """An equal record as a reader will hold it, with 4800.0 where 4800 stood: the checksum is over what is read."""
    try:
        read_again = decoded(msgspec.json.encode(record), record_type)
        msgspec.msgpack.encode(read_again)
    except (Flaw, TypeError, ValueError, OverflowError) as cause:
        raise InvalidRecordError(f"not written, since it could not be read again: {place}: {cause}") from cause
    if read_again != record:
        raise InvalidRecordError(f"not written, since it could not be read again: {place}: {record}")
    return read_again


def _refuse(wrong: NDArray[np.bool_], name: str, columns: dict[str, NDArray[Any]], why: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise Flaw(f"columns.{name}[{row}]", f"{columns[name][row]} {why}")
