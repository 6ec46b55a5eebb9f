"""JSON and msgpack documents: what they hold, and the record and field that an error names."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from diode.storage import read_dataset, write_dataset
from diode.types import Dataset
from diode.types.dataset import COLUMN_TYPES


def document(sample: Dataset, tmp_path: Path, encoding: str) -> dict:
    path = tmp_path / f"whole.{encoding}"
    write_dataset(sample, path)
    decode = msgspec.json.decode if encoding == "json" else msgspec.msgpack.decode
    content = decode(path.read_bytes())
    path.unlink()
    return content


WRONG = [
    # where, what is put there, what the error says
    (("format",), "other", "format: is 'other', not 'diode-dataset': this is no dataset of diode"),
    (("format",), 7, "format: Expected `str`, got `int`"),
    (("version",), 2, "version: 2 is newer than 1, the newest that this diode reads: update torch-diode"),
    (("version",), 0, "version: is 0, not a positive number"),
    (("version",), "1", "version: Expected `int`, got `str`"),
    (("version",), None, "version: Expected `int`, got "),
    (("checksum",), "sha256:0", "checksum: does not fit the measurements"),
    (("checksum",), 5, "checksum: Expected `str`, got `int`"),
    (("surprise",), 1, "Object contains unknown field `surprise`"),
    (("problems",), None, "problems: Expected `array`, got "),
    (("problems", 0, "M"), -1, "problems[0].M: Expected `int` >= 0"),
    (("problems", 0, "M"), 2**48, "problems[0].M: Expected `int` <= 281474976710655"),
    (("problems", 0, "M"), "64", "problems[0].M: Expected `int`, got `str`"),
    (("problems", 0, "a", "strides"), [1], "problems[0]: addmm 256x512x1024: operand a has 1 strides, not the 2"),
    (("problems", 0, "B"), 2, "problems[0]: addmm 256x512x1024: B is 2, but this op has no batch"),
    (("problems", 0, "b", "dtype"), "Float 16", "problems[0].b.dtype: Expected `str` matching regex"),
    (("problems", 1, "surprise"), 1, "problems[1]: Object contains unknown field `surprise`"),
    (("problems", 2, "type"), "conv", "problems[2].type: Invalid value 'conv'"),
    (("choices", 0, "type"), "to_come", "choices[0].type: Invalid value 'to_come'"),
    (("choices", 0, "block_m"), 0, "choices[0].block_m: Expected `int` >= 1"),
    (("choices", 0, "num_stages"), 65, "choices[0].num_stages: Expected `int` <= 64"),
    (("choices", 4, "fields"), [["a"]], "choices[4].fields[0]: Expected `array` of length 2"),
    (("choices", 4, "fields"), [["a", [1]]], "choices[4].fields[0][1]: Expected "),
    (("environments", 0, "hardware", "capability"), [9], "environments[0].hardware.capability: Expected `array`"),
    (("methods", 0, "overhead_us"), -1.0, "methods[0].overhead_us: Expected `float` >= 0.0"),
    (("failures", 0, "reason"), "mood", "failures[0].reason: Invalid enum value 'mood'"),
    (("columns", "surprise"), [], "columns: Object contains unknown field `surprise`"),
]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(("where", "wrong", "message"), WRONG)
def test_the_error_names_record_and_field(
    encoding: str, where, wrong, message, sample: Dataset, tmp_path: Path, refused
) -> None:
    content = document(sample, tmp_path, encoding)
    holder = content
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] = wrong
    encode = msgspec.json.encode if encoding == "json" else msgspec.msgpack.encode
    assert refused(f"wrong.{encoding}", encode(content)).startswith(message)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("field", ["format", "version", "problems", "choices", "environments", "methods", "columns"])
def test_a_missing_field_is_named(encoding: str, field: str, sample: Dataset, tmp_path: Path, refused) -> None:
    content = document(sample, tmp_path, encoding)
    del content[field]
    encode = msgspec.json.encode if encoding == "json" else msgspec.msgpack.encode
    message = refused(f"missing.{encoding}", encode(content))
    assert field in message


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("column", COLUMN_TYPES)
def test_a_missing_column_is_named(encoding: str, column: str, sample: Dataset, tmp_path: Path, refused) -> None:
    content = document(sample, tmp_path, encoding)
    del content["columns"][column]
    encode = msgspec.json.encode if encoding == "json" else msgspec.msgpack.encode
    message = refused(f"missing.{encoding}", encode(content))
    assert message == f"columns: Object missing required field `{column}`"


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_newer_version_is_told_before_its_new_fields(encoding: str, refused) -> None:
    newer = {"format": "diode-dataset", "version": 7, "rows": [], "columns": "elsewhere"}
    encode = msgspec.json.encode if encoding == "json" else msgspec.msgpack.encode
    message = refused(f"newer.{encoding}", encode(newer))
    assert message == "version: 7 is newer than 1, the newest that this diode reads: update torch-diode"


NOT_A_NUMBER, INFINITE = float("nan"), float("inf")
WRONG_COLUMNS = [
    # column, its value in the first row of the sample (a time), what the error says
    ("problem_id", 3, "columns.problem_id[0]: 3 is no row of the 3 in problems"),
    ("choice_id", 6, "columns.choice_id[0]: 6 is no row of the 6 in choices"),
    ("environment_id", 2**31 - 1, "columns.environment_id[0]: 2147483647 is no row of the 2 in environments"),
    ("method_id", 2, "columns.method_id[0]: 2 is no row of the 2 in methods"),
    ("failure_id", 2, "columns.failure_id[0]: 2 is no row of the 2 in failures"),
    ("failure_id", 0, "columns.time_us[0]: 12.5 stands in a row that is a failure"),
    ("time_us", -12.5, "columns.time_us[0]: -12.5 is out of range"),
    ("time_us", 0.0, "columns.time_us[0]: 0.0 is out of range"),
    ("min_us", -1.0, "columns.min_us[0]: -1.0 is out of range"),
    ("spread", -0.5, "columns.spread[0]: -0.5 is out of range"),
]


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(("column", "wrong", "message"), WRONG_COLUMNS)
def test_a_number_that_cannot_be_names_column_and_row(
    encoding: str, column, wrong, message, sample: Dataset, tmp_path: Path, refused
) -> None:
    content = document(sample, tmp_path, encoding)
    columns = content["columns"]
    if encoding == "json":
        columns[column][0] = wrong
        assert refused("wrong.json", msgspec.json.encode(content)) == message
    else:
        block = struct.pack("<d" if isinstance(wrong, float) else "<i", wrong)
        columns[column] = block + columns[column][len(block) :]
        assert refused("wrong.msgpack", msgspec.msgpack.encode(content)) == message


@pytest.mark.parametrize(
    ("column", "wrong", "message"),
    [
        ("problem_id", -1, "columns.problem_id[0]: Expected `int` >= 0"),
        ("problem_id", None, "columns.problem_id[0]: Expected `int`, got `null`"),
        ("choice_id", 2**31, "columns.choice_id[0]: Expected `int` <= 2147483647"),
        ("choice_id", 10**30, "columns.choice_id[0]: Expected `int` <= 2147483647"),
        ("choice_id", True, "columns.choice_id[0]: Expected `int`, got `bool`"),
        ("method_id", 0.5, "columns.method_id[0]: Expected `int`, got `float`"),
        ("time_us", "12.5", "columns.time_us[0]: Expected `float | null`, got `str`"),
        ("time_us", None, "columns.time_us[0]: nan stands in a row that has no failure either"),
        ("repeats", 0, "columns.repeats[0]: Expected `int` >= 1"),
        ("clock_mhz", -1, "columns.clock_mhz[0]: Expected `int` >= 1"),
    ],
)
def test_json_names_what_its_types_rule_out(column, wrong, message, sample: Dataset, tmp_path: Path, refused) -> None:
    content = document(sample, tmp_path, "json")
    content["columns"][column][0] = wrong
    assert refused("wrong.json", msgspec.json.encode(content)) == message


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"0x10", b"01", b"1.", b"+1"])
def test_json_holds_no_number_that_json_does_not_know(word: bytes, sample: Dataset, tmp_path: Path, refused) -> None:
    content = msgspec.json.encode(document(sample, tmp_path, "json"))
    assert content.count(b"[12.5,") == 1
    assert refused("wrong.json", content.replace(b"[12.5,", b"[" + word + b","))


@pytest.mark.parametrize(
    ("column", "wrong", "message"),
    [
        ("problem_id", struct.pack("<i", -1), "columns.problem_id[0]: -1 is no row of the 3 in problems"),
        ("failure_id", struct.pack("<i", -2), "columns.failure_id[0]: -2 is no row of the 2 in failures"),
        ("time_us", struct.pack("<d", INFINITE), "columns.time_us[0]: inf is not finite"),
        ("time_us", struct.pack("<d", -INFINITE), "columns.time_us[0]: -inf is not finite"),
        ("time_us", struct.pack("<d", NOT_A_NUMBER), "columns.time_us[0]: nan stands in a row that has no failure"),
        ("spread", struct.pack("<d", INFINITE), "columns.spread[0]: inf is not finite"),
        ("repeats", struct.pack("<i", 0), "columns.repeats[0]: 0 is out of range"),
        ("clock_mhz", struct.pack("<i", -7), "columns.clock_mhz[0]: -7 is out of range"),
    ],
)
def test_msgpack_names_numbers_that_cannot_be(column, wrong, message, sample: Dataset, tmp_path: Path, refused) -> None:
    content = document(sample, tmp_path, "msgpack")
    content["columns"][column] = wrong + content["columns"][column][len(wrong) :]
    assert refused("wrong.msgpack", msgspec.msgpack.encode(content)).startswith(message)


@pytest.mark.parametrize("wrong", [NOT_A_NUMBER, INFINITE, -INFINITE])
def test_msgpack_records_hold_finite_numbers(wrong: float, sample: Dataset, tmp_path: Path, refused) -> None:
    for table, number, field in (
        ("methods", 0, "overhead_us"),
        ("environments", 0, "hardware"),
        ("choices", 4, "fields"),
    ):
        content = document(sample, tmp_path, "msgpack")
        record = content[table][number]
        if field == "overhead_us":
            record[field] = wrong
        elif field == "hardware":
            record[field]["memory_bandwidth_gbs"] = wrong
        else:
            record[field] = [["rate", wrong]]
        content["checksum"] = ""
        assert refused("wrong.msgpack", msgspec.msgpack.encode(content)).startswith(f"{table}[{number}].{field}")


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_columns_of_unequal_length_are_refused(encoding: str, sample: Dataset, tmp_path: Path, refused) -> None:
    encode = msgspec.json.encode if encoding == "json" else msgspec.msgpack.encode
    for column in COLUMN_TYPES:
        content = document(sample, tmp_path, encoding)
        content["columns"][column] += content["columns"][column]
        assert "rows" in refused(f"long.{encoding}", encode(content))
        content["columns"][column] = content["columns"][column][:0]
        assert "rows" in refused(f"short.{encoding}", encode(content))


def test_half_an_entry_is_refused(sample: Dataset, tmp_path: Path, refused) -> None:
    content = document(sample, tmp_path, "msgpack")
    content["columns"]["time_us"] += b"\0"
    message = refused("half.msgpack", msgspec.msgpack.encode(content))
    assert message == "columns.time_us: has 57 bytes, which is no number of float64 entries"


def test_a_document_written_by_hand_needs_no_checksum_and_no_order(tmp_path: Path) -> None:
    operand = {"dtype": "float16", "strides": [8, 1]}
    problem = {"type": "gemm", "op": "mm", "B": 1, "M": 8, "N": 8, "K": 8, "a": operand, "b": operand, "out": operand}
    aten = {"type": "aten", "kernel": "mm"}
    content = {
        "format": "diode-dataset",
        "version": 1,
        "problems": [problem],
        "choices": [{"type": "decompose_k", "k_split": 4}, aten, aten, {"type": "aten", "kernel": "not used"}],
        "environments": [{"hardware": {"name": "gpu", "device_type": "cuda"}}],
        "methods": [{"timer": "by hand", "statistic": "min"}],
        "failures": [{"reason": "crash"}],
        "columns": {
            "problem_id": [0, 0, 0],
            "choice_id": [2, 1, 0],
            "environment_id": [0, 0, 0],
            "method_id": [0, 0, 0],
            "failure_id": [None, None, 0],
            "time_us": [5, 4.5, None],
            "min_us": [None, 4.0, None],
            "spread": [0, None, None],
            "repeats": [None, 10, None],
            "clock_mhz": [1980, None, None],
        },
    }
    (tmp_path / "hand.json").write_bytes(msgspec.json.encode(content))
    rows = list(read_dataset(tmp_path / "hand.json"))
    assert [str(row.choice) for row in rows] == ["aten mm", "aten mm", "decompose_k split=4"]
    assert [row.time_us for row in rows] == [5.0, 4.5, None]
    assert rows[2].failure is not None
    assert rows[2].failure.reason == "crash"
    assert msgspec.to_builtins(rows[0].timing) == {
        "time_us": 5.0, "min_us": None, "spread": 0.0, "repeats": None, "clock_mhz": 1980,
    }  # fmt: skip
    assert len(read_dataset(tmp_path / "hand.json").choices) == 2


def test_an_edit_by_hand_is_noticed_until_the_checksum_is_taken_out(sample: Dataset, tmp_path: Path, refused) -> None:
    content = document(sample, tmp_path, "json")
    content["columns"]["time_us"][0] = 12.6
    assert "checksum: does not fit the measurements" in refused("edited.json", msgspec.json.encode(content))
    del content["checksum"]
    (tmp_path / "edited.json").write_bytes(msgspec.json.encode(content))
    assert next(iter(read_dataset(tmp_path / "edited.json"))).time_us == 12.6


def test_a_shapeset_is_told_from_a_dataset(refused) -> None:
    content = msgspec.json.encode({"operations": {"mm": {"shapes": []}}})
    assert refused("shapes.json", content).startswith("this is a shapeset")
