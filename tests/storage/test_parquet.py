from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diode.errors import FileFormatError
from diode.storage import read_dataset, write_dataset
from diode.types import Dataset

RECORDS = ["problem", "choice", "environment", "method", "failure"]
HEADER = {"diode.format": "diode-dataset", "diode.version": "1"}


@pytest.fixture
def table(sample: Dataset, tmp_path: Path) -> pa.Table:
    """The sample as a table of plain strings and numbers, without a checksum, as another program would write it."""
    path = tmp_path / "sample.parquet"
    write_dataset(sample, path)
    read = pq.read_table(path)
    path.unlink()
    for name in RECORDS:
        place = read.schema.get_field_index(name)
        read = read.set_column(place, name, read.column(name).cast(pa.string()))
    return read.replace_schema_metadata(HEADER)


def parquet_bytes(table: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def with_value(table: pa.Table, name: str, row: int, value: object) -> pa.Table:
    values = table.column(name).to_pylist()
    values[row] = value
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array(values, type=table.schema.field(name).type))


def test_a_row_is_a_measurement_that_other_programs_can_read(sample: Dataset, tmp_path: Path) -> None:
    write_dataset(sample, tmp_path / "a.parquet")
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert len(rows) == len(sample)
    for row, measurement in zip(rows, sample, strict=True):
        assert row["problem"] == msgspec.json.encode(measurement.problem).decode()
        assert msgspec.json.decode(row["choice"])["type"] == measurement.choice.__struct_config__.tag
        assert row["time_us"] == measurement.time_us
        assert (row["failure"] is None) == (measurement.failure is None)
    metadata = pq.read_metadata(tmp_path / "a.parquet").metadata
    assert (metadata[b"diode.format"], metadata[b"diode.version"]) == (b"diode-dataset", b"1")


@pytest.mark.parametrize(
    "options",
    [{}, {"use_dictionary": False}, {"compression": "none"}, {"row_group_size": 2}],
)
def test_what_another_program_writes_is_read(options, sample: Dataset, table: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_bytes(parquet_bytes(table, **options))
    assert list(read_dataset(tmp_path / "other.parquet")) == list(sample)


def test_columns_in_another_order_and_large_strings_are_read(sample: Dataset, table: pa.Table, tmp_path: Path) -> None:
    turned = table.select(table.column_names[::-1])
    for name in RECORDS:
        place = turned.schema.get_field_index(name)
        turned = turned.set_column(place, name, turned.column(name).cast(pa.large_string()))
    (tmp_path / "turned.parquet").write_bytes(parquet_bytes(turned))
    assert list(read_dataset(tmp_path / "turned.parquet")) == list(sample)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({}, "metadata diode.format: is not 'diode-dataset': this is no dataset of diode"),
        ({"diode.format": "other", "diode.version": "1"}, "metadata diode.format: is not"),
        ({"diode.format": "diode-dataset"}, "metadata diode.version: is b'', not a positive number"),
        ({**HEADER, "diode.version": "-1"}, "metadata diode.version: is b'-1', not a positive number"),
        ({**HEADER, "diode.version": "0"}, "version: is 0, not a positive number"),
        ({**HEADER, "diode.version": "9" * 5000}, "metadata diode.version: is b'999"),
        ({**HEADER, "diode.version": "2"}, "version: 2 is newer than 1, the newest that this diode reads: update"),
        ({**HEADER, "diode.checksum": "sha256:0"}, "checksum: does not fit the measurements"),
        ({**HEADER, "diode.checksum": b"\xff"}, "checksum: does not fit the measurements"),
    ],
)
def test_a_wrong_header_is_named(header, message, table: pa.Table, refused) -> None:
    assert refused("header.parquet", parquet_bytes(table.replace_schema_metadata(header))).startswith(message)


def test_a_newer_version_is_told_before_its_new_columns(refused) -> None:
    newer = pa.table({"rows": [1]}).replace_schema_metadata({**HEADER, "diode.version": "3"})
    assert refused("newer.parquet", parquet_bytes(newer)).startswith("version: 3 is newer than 1")


def test_a_missing_column_is_named(table: pa.Table, refused) -> None:
    for name in table.column_names:
        assert refused("missing.parquet", parquet_bytes(table.drop_columns([name]))) == f"column {name}: is missing"


def test_an_unknown_or_a_second_column_is_named(table: pa.Table, refused) -> None:
    unknown = table.append_column("surprise", pa.array([0] * len(table)))
    assert refused("unknown.parquet", parquet_bytes(unknown)) == "column surprise: is unknown"
    twice = table.append_column("time_us", table.column("time_us"))
    assert refused("twice.parquet", parquet_bytes(twice)) == "column time_us: stands there twice"


@pytest.mark.parametrize(
    ("name", "wrong_type", "message"),
    [
        ("time_us", pa.float32(), "column time_us: holds float, not double"),
        ("time_us", pa.string(), "column time_us: holds string, not double"),
        ("repeats", pa.int64(), "column repeats: holds int64, not int32"),
        ("problem", pa.binary(), "column problem: holds binary, not strings"),
    ],
)
def test_a_column_of_another_type_is_named(name, wrong_type, message, table: pa.Table, refused) -> None:
    place = table.schema.get_field_index(name)
    assert refused(
        "type.parquet", parquet_bytes(table.set_column(place, name, table.column(name).cast(wrong_type)))
    ).startswith(message)


def test_nested_columns_are_refused(table: pa.Table, refused) -> None:
    for name in table.column_names:
        nested = pa.array([{"inner": 1}] * len(table))
        place = table.schema.get_field_index(name)
        message = refused("nested.parquet", parquet_bytes(table.set_column(place, name, nested)))
        assert message.startswith(f"column {name}: holds struct")


@pytest.mark.parametrize(
    ("name", "row", "wrong", "message"),
    [
        ("problem", 2, None, "problem, row 2: is null"),
        ("method", 0, None, "method, row 0: is null"),
        ("choice", 1, "{", "choices[1]: Input data was truncated"),
        ("choice", 1, "", "choices[1]: Input data was truncated"),
        ("choice", 1, '{"type": "aten"}', "choices[1]: Object missing required field `kernel`"),
        ("choice", 1, '{"type": "aten", "kernel": 5}', "choices[1].kernel: Expected `str`, got `int`"),
        ("choice", 1, '{"type": "to_come"}', "choices[1].type: Invalid value 'to_come'"),
        ("choice", 1, '{"type": "aten", "kernel": "a", "kernel": "b"}', "choices[1]: has the key 'kernel' twice"),
        ("failure", 3, '{"reason": "mood"}', "failures[0].reason: Invalid enum value 'mood'"),
        ("failure", 3, None, "columns.time_us[3]: nan stands in a row that has no failure either"),
        ("failure", 0, '{"reason": "crash"}', "columns.time_us[0]: 12.5 stands in a row that is a failure"),
        ("time_us", 1, -9.75, "columns.time_us[1]: -9.75 is out of range"),
        ("time_us", 1, float("inf"), "columns.time_us[1]: inf is not finite"),
        ("time_us", 1, float("nan"), "columns.time_us[1]: is nan; what is not known is written as null"),
        ("repeats", 4, 0, "columns.repeats[4]: 0 is out of range"),
        ("repeats", 5, -1, "columns.repeats[5]: is -1; what is not known is written as null"),
        ("spread", 0, -1.0, "columns.spread[0]: -1.0 is out of range"),
    ],
)
def test_the_error_names_record_and_field(name, row, wrong, message, table: pa.Table, refused) -> None:
    assert refused("wrong.parquet", parquet_bytes(with_value(table, name, row, wrong))).startswith(message)


def test_deep_nesting_inside_a_record_is_refused(table: pa.Table, refused) -> None:
    deep = '{"type": "other", "backend": ' + "[" * 100_000
    assert refused("deep.parquet", parquet_bytes(with_value(table, "choice", 0, deep))).startswith("choices[0]")


def test_a_page_that_was_damaged_is_found_by_its_own_sum(sample: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_dataset(sample, path)
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(5)
    assert column.path_in_schema == "time_us"
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.parquet: is damaged or no Parquet file: "):
        read_dataset(path)


def test_many_rows_of_one_record_take_little_room(sample: Dataset, tmp_path: Path) -> None:
    """One record for each row, as plain JSON would hold it, takes a hundred times as much."""
    many = Dataset.of([next(iter(sample))] * 20_000)
    write_dataset(many, tmp_path / "many.parquet")
    assert (tmp_path / "many.parquet").stat().st_size < 100_000
    assert len(read_dataset(tmp_path / "many.parquet")) == 20_000
