"""Datasets as one JSON or msgpack document.

Both hold `{"format": "diode-dataset", "version": 1, "problems": [...], "choices": [...], "environments": [...],
"methods": [...], "failures": [...], "columns": {...}, "checksum": "sha256:..."}`. The tables hold distinct records; a
column holds one entry per measurement, and `*_id` are places in the tables, from 0. In JSON a column is a list, with
null for «not known» and for «no failure». In msgpack a column is a block of bytes, little-endian int32 or float64,
with -1 and NaN in place of null. The checksum may be absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from diode.storage.content import (
    DATASET_FORMAT,
    DATASET_VERSION,
    check_content,
    check_version,
    checksum,
    is_known,
    ready_to_write,
)
from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Encoding, Flaw, decoded
from diode.storage.public_form import read_public_form
from diode.types.choice import Choice
from diode.types.dataset import COLUMN_TYPES, NO_INT, Columns, Dataset
from diode.types.measurement import Environment, Failure, TimingMethod
from diode.types.problem import Problem

Ids = list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]
Counts = list[Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None]
Numbers = list[float | None]
ColumnForm = TypeVar("ColumnForm")


class _ListColumns(msgspec.Struct, forbid_unknown_fields=True):
    problem_id: Ids
    choice_id: Ids
    environment_id: Ids
    method_id: Ids
    failure_id: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None]
    time_us: Numbers
    min_us: Numbers
    spread: Numbers
    repeats: Counts
    clock_mhz: Counts


class _ByteColumns(msgspec.Struct, forbid_unknown_fields=True):
    problem_id: bytes
    choice_id: bytes
    environment_id: bytes
    method_id: bytes
    failure_id: bytes
    time_us: bytes
    min_us: bytes
    spread: bytes
    repeats: bytes
    clock_mhz: bytes


class _Document(msgspec.Struct, Generic[ColumnForm], forbid_unknown_fields=True):
    format: Literal["diode-dataset"]
    version: int
    problems: tuple[Problem, ...]
    choices: tuple[Choice, ...]
    environments: tuple[Environment, ...]
    methods: tuple[TimingMethod, ...]
    failures: tuple[Failure, ...]
    columns: ColumnForm
    checksum: str = ""


class _Header(msgspec.Struct):
    """What tells one kind of file from another; everything else in it is left to the kind's own strict record."""

    format: str = ""
    version: msgspec.Raw = msgspec.Raw()
    hardware: msgspec.Raw = msgspec.Raw()
    operations: msgspec.Raw = msgspec.Raw()


_OTHER_KINDS: Final = ("solution", "configs", "config", "operations", "rankings")
"""What solutions, shapesets and comparisons have and no dataset does."""


def is_of_another_kind(data: bytes) -> bool:
    """Whether JSON is whole, and says that it is something else: a model's card, a solution, a shapeset."""
    try:
        fields: dict[str, msgspec.Raw] = decoded(data, dict[str, msgspec.Raw])
        header: _Header = decoded(data, _Header)
    except Flaw:
        return False
    if header.format:
        return header.format != DATASET_FORMAT
    return not header.hardware and any(name in fields for name in _OTHER_KINDS)


def dataset_to_document(dataset: Dataset, encoding: Encoding) -> bytes:
    dataset = ready_to_write(dataset)
    to_form: Callable[[NDArray[Any]], object] = _list_column if encoding == "json" else _byte_column
    document = _Document(
        format=DATASET_FORMAT,
        version=DATASET_VERSION,
        problems=dataset.problems,
        choices=dataset.choices,
        environments=dataset.environments,
        methods=dataset.methods,
        failures=dataset.failures,
        columns={name: to_form(getattr(dataset.columns, name)) for name in COLUMN_TYPES},
        checksum=checksum(dataset),
    )
    return msgspec.json.encode(document) if encoding == "json" else msgspec.msgpack.encode(document)


def dataset_from_document(data: bytes, encoding: Encoding) -> Dataset:
    header: _Header = decoded(data, _Header, encoding)
    if not header.format and header.hardware:
        return read_public_form(data, encoding)
    if not header.format and header.operations:
        raise Flaw("", "this is a shapeset, which holds problems but no measurements: read it as a shapeset")
    if header.format != DATASET_FORMAT:
        raise Flaw("format", f"is {header.format!r}, not {DATASET_FORMAT!r}: this is no dataset of diode")
    # Before the strict record: a newer version may well have other fields.
    check_version(decoded(header.version, int, encoding, "version") if header.version else None)
    if encoding == "json":
        lists: _Document[_ListColumns] = decoded(data, _Document[_ListColumns], encoding)
        columns = {name: _from_list(getattr(lists.columns, name), name) for name in COLUMN_TYPES}
        dataset = _dataset(lists, columns)
        expected = lists.checksum
    else:
        blocks: _Document[_ByteColumns] = decoded(data, _Document[_ByteColumns], encoding)
        columns = {name: _from_bytes(getattr(blocks.columns, name), name) for name in COLUMN_TYPES}
        dataset = _dataset(blocks, columns)
        expected = blocks.checksum
    refuse_duplicate_keys(data, encoding)
    return check_content(dataset, expected)


def _dataset(document: _Document[ColumnForm], columns: dict[str, NDArray[np.generic]]) -> Dataset:
    return Dataset(
        problems=document.problems,
        choices=document.choices,
        environments=document.environments,
        methods=document.methods,
        failures=document.failures,
        columns=Columns(**columns),  # type: ignore[arg-type]  # the dtypes are those of COLUMN_TYPES
    )


def _list_column(column: NDArray[Any]) -> list[float | int | None]:
    values: list[float | int | None] = column.tolist()
    for row in np.flatnonzero(~is_known(column)).tolist():
        values[row] = None
    return values


def _from_list(values: list[float | int | None], name: str) -> NDArray[np.generic]:
    dtype = COLUMN_TYPES[name]
    if dtype is np.float64:
        return np.array(values, dtype)
    if name == "failure_id" or values.count(None):
        return np.array([NO_INT if value is None else value for value in values], dtype)
    return np.array(values, dtype)


def _byte_column(column: NDArray[Any]) -> bytes:
    return column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()


def _from_bytes(block: bytes, name: str) -> NDArray[np.generic]:
    dtype = np.dtype(COLUMN_TYPES[name])
    if len(block) % dtype.itemsize:
        raise Flaw(f"columns.{name}", f"has {len(block)} bytes, which is no number of {dtype} entries")
    return np.frombuffer(block, dtype.newbyteorder("<")).astype(dtype)
