"""Datasets as Parquet, the form for bulk.

One row per measurement. `problem`, `choice`, `environment`, `method` and `failure` are dictionary-encoded strings that
hold the JSON of the record; `time_us`, `min_us` and `spread` are doubles, `repeats` and `clock_mhz` are int32. Null
says «not known», and in `failure` that there was none. The file's metadata hold `diode.format`, `diode.version` and,
unless another program wrote the file, `diode.checksum`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from diode.storage.content import (
    DATASET_FORMAT,
    DATASET_VERSION,
    ID_COLUMNS,
    REQUIRED_TABLES,
    TABLE_TYPES,
    TIMING_COLUMNS,
    check_content,
    check_version,
    checksum,
    is_known,
    ready_to_write,
)
from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Flaw, decoded
from diode.types.dataset import COLUMN_TYPES, NO_INT, Columns, Dataset, Interned

MOST_ROWS: Final = 2**29
"""What a file may claim to hold: beyond this it is damaged or hostile, and reading it would exhaust the memory."""

_FORMAT_KEY: Final = b"diode.format"
_VERSION_KEY: Final = b"diode.version"
_CHECKSUM_KEY: Final = b"diode.checksum"
_RECORD_COLUMNS: Final = {name: id_name.removesuffix("_id") for name, id_name in ID_COLUMNS.items()}
_TIMING_TYPES: Final = {name: pa.from_numpy_dtype(COLUMN_TYPES[name]) for name in TIMING_COLUMNS}
# Whole dictionaries, of any size: with the default limit a large one falls back to a string in every row.
_DICTIONARY_BYTES: Final = 2**30


def write_parquet(dataset: Dataset, file: BinaryIO) -> None:
    dataset = ready_to_write(dataset)
    columns: dict[str, Any] = {}
    for table, name in _RECORD_COLUMNS.items():
        texts = [msgspec.json.encode(record).decode() for record in getattr(dataset, table)]
        ids = getattr(dataset.columns, ID_COLUMNS[table])
        columns[name] = pa.DictionaryArray.from_arrays(
            pa.array(ids, mask=ids == NO_INT), pa.array(texts, type=pa.string())
        )
    for name in TIMING_COLUMNS:
        column = getattr(dataset.columns, name)
        columns[name] = pa.array(column, mask=~is_known(column))
    metadata = {
        _FORMAT_KEY: DATASET_FORMAT,
        _VERSION_KEY: str(DATASET_VERSION),
        _CHECKSUM_KEY: checksum(dataset),
    }
    pq.write_table(
        pa.table(columns).replace_schema_metadata(metadata),
        file,
        compression="zstd",
        use_dictionary=[*_RECORD_COLUMNS.values(), "repeats", "clock_mhz"],
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        write_page_checksum=True,
    )


def read_parquet(path: Path) -> Dataset:
    try:
        with path.open("rb") as opened:
            # In two steps, since Arrow wants the columns that it is to read as dictionaries to be there.
            expected_checksum = _check_header(pq.ParquetFile(opened))
            dictionaries = list(_RECORD_COLUMNS.values())
            file = pq.ParquetFile(opened, read_dictionary=dictionaries, page_checksum_verification=True)
            table = file.read().unify_dictionaries()
        table.validate(full=True)
    except pa.ArrowException as error:
        raise Flaw("", f"is damaged or no Parquet file: {error}") from error
    except UnicodeDecodeError as error:
        raise Flaw("", f"text that is not UTF-8: {error}") from error
    except OSError as error:
        if error.errno is None:
            # Arrow's word for bytes that it cannot make sense of; what the system refuses carries a number.
            raise Flaw("", f"is damaged or no Parquet file: {error}") from error
        raise
    tables: dict[str, Any] = {}
    columns: dict[str, NDArray[Any]] = {}
    for name, column_name in _RECORD_COLUMNS.items():
        tables[name], columns[ID_COLUMNS[name]] = _records(table.column(column_name), name, column_name)
    for name in TIMING_COLUMNS:
        columns[name] = _numbers(table.column(name), name)
    return check_content(Dataset(columns=Columns(**columns), **tables), expected_checksum)


def _check_header(file: Any) -> str:
    """Looks at what the file says of itself before any row is read; returns the checksum, empty if there is none."""
    metadata = file.metadata.metadata or {}
    if metadata.get(_FORMAT_KEY) != DATASET_FORMAT.encode():
        raise Flaw("metadata diode.format", f"is not {DATASET_FORMAT!r}: this is no dataset of diode")
    version = metadata.get(_VERSION_KEY, b"")
    if not version.isdigit() or len(version) > 9:
        raise Flaw("metadata diode.version", f"is {version!r}, not a positive number")
    check_version(int(version))
    schema = file.schema_arrow
    expected = {*_RECORD_COLUMNS.values(), *_TIMING_TYPES}
    for name in schema.names:
        if name not in expected or schema.names.count(name) > 1:
            raise Flaw(f"column {name}", "is unknown" if name not in expected else "stands there twice")
    for name in sorted(expected):
        if name not in schema.names:
            raise Flaw(f"column {name}", "is missing")
        column_type = schema.field(name).type
        if name in _TIMING_TYPES and column_type != _TIMING_TYPES[name]:
            raise Flaw(f"column {name}", f"holds {column_type}, not {_TIMING_TYPES[name]}")
        if name not in _TIMING_TYPES and not _is_text(column_type):
            raise Flaw(f"column {name}", f"holds {column_type}, not strings")
    if file.metadata.num_rows > MOST_ROWS:
        raise Flaw("", f"claims {file.metadata.num_rows} rows, more than the {MOST_ROWS} that a file may hold")
    stored_checksum: bytes = metadata.get(_CHECKSUM_KEY, b"")
    return stored_checksum.decode(errors="replace")


def _is_text(column_type: Any) -> bool:
    value_type = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
    return bool(pa.types.is_string(value_type) or pa.types.is_large_string(value_type))


def _records(column: Any, name: str, column_name: str) -> tuple[tuple[Any, ...], NDArray[np.int32]]:
    """The distinct records of a column, each decoded once, and for every row the number of its record."""
    if column.null_count and name in REQUIRED_TABLES:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise Flaw(f"{column_name}, row {row}", "is null")
    encoded = column.combine_chunks()
    records: Interned[Any] = Interned()
    numbers = np.full(len(encoded.dictionary) + 1, NO_INT, dtype=np.int32)
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        if text is None:
            raise Flaw(f"{name}[{place}]", "is null")
        data = text.encode()
        record = decoded(data, TABLE_TYPES[name], place=f"{name}[{place}]")
        refuse_duplicate_keys(data, "json", f"{name}[{place}]")
        numbers[place] = records.number(record)
    ids = encoded.indices.fill_null(NO_INT).to_numpy(zero_copy_only=False)
    return tuple(records.rows), numbers[ids]


def _numbers(column: Any, name: str) -> NDArray[Any]:
    dtype = COLUMN_TYPES[name]
    unknown = np.nan if dtype is np.float64 else NO_INT
    numbers: NDArray[Any] = column.fill_null(unknown).to_numpy().astype(dtype, copy=False)
    strays = ~is_known(numbers)
    if strays.sum() != column.null_count:
        row = int(np.argmax(strays & column.is_valid().to_numpy()))
        raise Flaw(f"columns.{name}[{row}]", f"is {numbers[row]}; what is not known is written as null")
    return numbers
