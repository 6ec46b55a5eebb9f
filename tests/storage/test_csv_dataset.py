"""Datasets as CSV: what a spreadsheet shows of them, that they are read back exactly, and what is refused."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode.errors import FileAccessError, InvalidRecordError
from diode.storage.csv_dataset import read_csv, write_csv
from diode.types import (
    AtenChoice,
    Dataset,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    OtherChoice,
    Timing,
    TimingMethod,
)


def rows_of(dataset: Dataset, folder: Path) -> list[dict[str, str]]:
    path = folder / "a.csv"
    write_csv(dataset, path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def picked(row: dict[str, str], names: str) -> list[str]:
    return [row[name] for name in names.split()]


def table(*rows: dict[str, str]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def exact(dataset: Dataset) -> list[bytes]:
    return [msgspec.json.encode(measurement) for measurement in dataset]


ROW = {
    "hardware": "gpu", "device_type": "cuda", "timer": "by hand", "statistic": "min",
    "problem_type": "gemm", "op": "mm", "B": "1", "M": "8", "N": "16", "K": "24",
    "dtype": "float16", "a_strides": "[24, 1]", "b_dtype": "float16", "b_strides": "[16, 1]",
    "out_dtype": "float16", "out_strides": "[16, 1]", "layout": "NN",
    "choice_type": "aten", "kernel": "mm", "time_us": "12.5",
}  # fmt: skip


def test_a_row_tells_problem_choice_and_time(sample: Dataset, tmp_path: Path) -> None:
    rows = rows_of(sample, tmp_path)
    assert len(rows) == len(sample)
    first, tma = rows[0], rows[1]
    assert picked(first, "problem_type op B M N K dtype b_dtype out_dtype bias_dtype layout allow_tf32") == [
        "gemm", "addmm", "1", "256", "512", "1024", "float16", "float16", "float16", "float16", "NT", "false",
    ]  # fmt: skip
    assert picked(first, "a_strides b_strides out_strides bias_strides") == ["[1024,1]", "[1,1024]", "[512,1]", "[0,1]"]
    assert picked(first, "choice_type template block_m block_n block_k num_stages num_warps even_k k_split") == [
        "triton_gemm", "triton::mm", "64", "128", "32", "3", "4", "true", "",
    ]  # fmt: skip
    assert picked(first, "time_us min_us spread repeats clock_mhz failure message") == [
        "12.5", "12.25", "0.01", "30", "1980", "", "",
    ]  # fmt: skip
    assert picked(first, "hardware torch triton driver taken timer statistic compiled_as round") == [
        "NVIDIA H200", "2.11.0", "3.6.0", "", "2026-11-18", "diode-sweep", "median", "static", "2",
    ]  # fmt: skip
    assert picked(tma, "choice_type num_sms time_us min_us spread repeats clock_mhz") == [
        "persistent_tma", "132", "9.75", "", "", "", "",
    ]  # fmt: skip


def test_every_kind_of_choice_has_its_columns(sample: Dataset, tmp_path: Path) -> None:
    rows = rows_of(sample, tmp_path)
    assert [picked(row, "choice_type template kernel backend choice_name k_split") for row in rows[2:6]] == [
        ["aten", "", "addmm", "", "", ""],
        ["decompose_k", "", "", "", "", "8"],
        ["other", "", "", "cutlass", "cutlass_3x_sm90", ""],
        ["cpp_template", "CppMicroGemmFP32Vec", "", "", "", ""],
    ]
    assert rows[5]["extra"] == '[["block_n",32],["vnni",false]]'


def test_failures_and_other_problems_leave_cells_empty(sample: Dataset, tmp_path: Path) -> None:
    rows = rows_of(sample, tmp_path)
    assert picked(rows[3], "time_us failure message") == ["", "shared_memory", "262144 > 232448"]
    assert picked(rows[5], "problem_type op M layout a_strides output time_us failure") == [
        "other", "convolution", "", "", "", "", "", "unknown",
    ]  # fmt: skip


@given(dataset=st.from_type(Dataset))
def test_what_is_read_is_exactly_what_was_written(dataset: Dataset) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_csv(dataset, Path(folder) / "a.csv")
        read = read_csv(Path(folder) / "a.csv")
        write_csv(read, Path(folder) / "b.csv")
        assert (Path(folder) / "a.csv").read_bytes() == (Path(folder) / "b.csv").read_bytes()
    assert exact(read) == exact(dataset)


def test_every_kind_survives(sample: Dataset, tmp_path: Path) -> None:
    write_csv(sample, tmp_path / "a.csv")
    assert exact(read_csv(tmp_path / "a.csv")) == exact(sample)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.csv"]


@pytest.mark.parametrize(
    "text", ['a, "b"\r\nc\n;é\r', '"', '""', '"a"', "\0", " ", "null", "[1]", "12", "\ufeff", "=1+1"]
)
def test_text_of_every_kind_survives(text: str, tmp_path: Path) -> None:
    environment = Environment(Hardware(text, "cuda"), command=text)
    rows = [
        Measurement(
            MMShape.of("mm", 8, 8, 8),
            OtherChoice(text, text, ((text, text),)),
            environment,
            TimingMethod(text, "min"),
            failure=Failure("crash", text),
        )
    ]
    write_csv(Dataset.of(rows), tmp_path / "a.csv")
    assert exact(read_csv(tmp_path / "a.csv")) == exact(Dataset.of(rows))


def test_words_of_a_backend_keep_their_types(tmp_path: Path) -> None:
    words = ("text", "", True, 1, 1.0, False, 0, 0.0, None, 2**64 - 1, -(2**63), 1e300, "1")
    circumstances = (Environment(Hardware("gpu", "cuda")), TimingMethod("t", "min"), Timing(1.0))
    choices = [OtherChoice("a backend", "a name", (("is", word),)) for word in words]
    dataset = Dataset.of(Measurement(MMShape.of("mm", 8, 8, 8), choice, *circumstances) for choice in choices)
    write_csv(dataset, tmp_path / "a.csv")
    read = [row.choice.fields[0][1] for row in read_csv(tmp_path / "a.csv")]  # type: ignore[union-attr]
    assert list(map(repr, read)) == list(map(repr, words))


def test_no_measurements_are_a_line_of_names(tmp_path: Path) -> None:
    assert rows_of(Dataset.of([]), tmp_path) == []
    assert (tmp_path / "a.csv").read_text().startswith("hardware,device_type,")
    assert len(read_csv(tmp_path / "a.csv")) == 0


def test_a_table_written_by_hand_needs_only_the_columns_that_say_something(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + table(ROW, {**ROW, "allow_tf32": "TRUE", "time_us": "", "failure": "crash"}) + b"\r\n"
    (tmp_path / "a.csv").write_bytes(content)
    timed, failed = read_csv(tmp_path / "a.csv")
    problem = MMShape.of("mm", 8, 16, 24, dtype="float16")
    where = (Environment(Hardware("gpu", "cuda")), TimingMethod("by hand", "min"))
    assert timed == Measurement(problem, AtenChoice("mm"), *where, Timing(12.5))
    tf32 = msgspec.structs.replace(problem, allow_tf32=True)
    assert failed == Measurement(tf32, AtenChoice("mm"), *where, None, Failure("crash"))


WRONG = [
    ({"surprise": ""}, "line 1, column 'surprise': is unknown"),
    ({"M": ""}, "line 3, column M: is empty"),
    ({"M": "-1"}, "line 3, column M: Expected `int` >= 0"),
    ({"M": "eight"}, "line 3, column M: is 'eight', which is no JSON value"),
    ({"M": "8.5"}, "line 3, column M: Expected `int`, got `float`"),
    ({"M": "8,9"}, "line 3, column M: is '8,9', which is no JSON value"),
    ({"M": "null"}, "line 3, column M: Expected `int`, got `null`"),
    ({"dtype": "Half!"}, "line 3, column dtype: Expected `str` matching regex"),
    ({"a_strides": "24 1"}, "line 3, column a_strides: is '24 1', which is no JSON value"),
    ({"a_strides": "[24, true]"}, "line 3, column a_strides[1]: Expected `int`, got `bool`"),
    ({"a_strides": "[24]"}, "line 3: mm 8x16x24: operand a has 1 strides, not the 2 of this op"),
    ({"B": "2"}, "line 3: mm 8x16x24: B is 2, but this op has no batch"),
    ({"layout": "NT"}, "line 3, column layout: is 'NT', but the other columns make it 'NN'"),
    ({"allow_tf32": "1"}, "line 3, column allow_tf32: Expected `bool`, got `int`"),
    ({"bias_dtype": "float16"}, "line 3, column bias_strides: is empty"),
    ({"problem_type": ""}, "line 3, column problem_type: is '', none of 'gemm', 'other'"),
    ({"problem_type": "other", "inputs": "[]"}, "line 3, column B: must be empty where problem_type is 'other'"),
    ({"inputs": "[]"}, "line 3, column inputs: must be empty where problem_type is 'gemm'"),
    ({"choice_type": "to_come"}, "line 3, column choice_type: is 'to_come', none of 'triton_gemm', "),
    ({"k_split": "8"}, "line 3, column k_split: must be empty where choice_type is 'aten'"),
    ({"choice_type": "decompose_k", "kernel": ""}, "line 3, column k_split: is empty"),
    ({"device_type": ""}, "line 3, column device_type: is empty"),
    ({"capability": "9.0"}, "line 3, column capability: Expected `array | null`, got `float`"),
    ({"statistic": "mean"}, "line 3, column statistic: Invalid enum value 'mean'"),
    ({"timer": '"'}, "line 3, column timer: is '\"', which is no JSON value"),
    ({"timer": '"a"b'}, "line 3, column timer: is '\"a\"b', which is no JSON value"),
    ({"round": "0"}, "line 3, column round: Expected `int` >= 1"),
    ({"time_us": ""}, "line 3: mm 8x16x24 float16 NN, aten mm: needs either a timing or a failure, and not both"),
    ({"failure": "crash"}, "line 3: mm 8x16x24 float16 NN, aten mm: needs either a timing or a failure, and not both"),
    ({"time_us": "", "min_us": "1"}, "line 3, column time_us: is empty"),
    ({"time_us": "0"}, "line 3, column time_us: Expected `float` > 0.0"),
    ({"time_us": "nan"}, "line 3, column time_us: is 'nan', which is no JSON value"),
    ({"time_us": "1e999"}, "line 3, column time_us: "),
    ({"repeats": "2147483648"}, "line 3, column repeats: Expected `int` <= 2147483647"),
    ({"message": "why"}, "line 3, column message: must be empty where there is no failure"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_the_error_names_line_and_column(changes: dict[str, str], message: str, refused) -> None:
    assert refused("wrong.csv", table(ROW, {**ROW, **changes}), read_csv).startswith(message)


def test_a_key_that_stands_twice_inside_a_cell_is_refused(refused) -> None:
    row = {name: ROW[name] for name in ("hardware", "device_type", "timer", "statistic", "choice_type", "kernel")}
    inputs = '[{"sizes":[1],"strides":[1],"strides":[2],"dtype":"int8"}]'
    content = table({**row, "problem_type": "other", "op": "conv", "inputs": inputs, "time_us": "1"})
    assert refused("twice.csv", content, read_csv) == "line 2, column inputs[0]: has the key 'strides' twice"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not end with a line break"),
        (b"op,M", "does not end with a line break"),
        (b"\n", "line 1: names no columns"),
        (b"op,M,op\n", "line 1, column 'op': stands there twice"),
        (b"op,\n", "line 1, column '': is unknown"),
        (b"op;M\n", "line 1, column 'op;M': is unknown"),
        (b"op,M\nmm\n", "line 2: has 1 cells, not the 2 that line 1 names"),
        (b"op,M\nmm,8,9\n", "line 2: has 3 cells, not the 2 that line 1 names"),
        (b'op,M\n"mm,8\n', "line 2: is no CSV: unexpected end of data"),
        (b'op,M\n"mm"x,8\n', "line 2: is no CSV: "),
        (b"op,M\n" + b"x" * 200_000 + b",8\n", "line 2: is no CSV: field larger than field limit"),
        (b"op,M\n\xff,8\n", "text that is not UTF-8"),
        (b"PAR1\0\0\n", "line 1"),
        (b'{"format": "diode-dataset"}\n', "line 1"),
    ],
)
def test_what_is_no_such_table_is_refused(content: bytes, message: str, refused) -> None:
    assert refused("wrong.csv", content, read_csv).startswith(message)


def test_a_file_that_was_cut_inside_a_line_is_refused(sample: Dataset, tmp_path: Path, refused) -> None:
    write_csv(sample, tmp_path / "a.csv")
    content = (tmp_path / "a.csv").read_bytes()
    (tmp_path / "a.csv").unlink()
    for length in range(len(content)):
        if not content[:length].endswith(b"\n"):
            assert refused("cut.csv", content[:length], read_csv), length


def test_no_message_carries_a_files_control_characters(refused) -> None:
    message = refused("hostile.csv", table({**ROW, "problem_type": "\x1b[2J\nall is well"}), read_csv)
    assert message.isprintable()
    assert r"\x1b[2J\nall is well" in message
    assert refused("hostile.csv", table({**ROW, "\x1b[2J": ""}), read_csv).isprintable()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"timing": Timing(-1.0)}, r"columns.time_us\[0\]: -1.0 is out of range"),
        ({"choice": OtherChoice("", "n")}, r"choices\[0\]: backend: Expected `str` of length >= 1"),
        ({"choice": OtherChoice("b", "n", (("x", "y" * 2**17),))}, "extra has 131082 characters"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(change: dict, place: str, sample: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    path.write_bytes(b"what was there before")
    wrong = msgspec.structs.replace(next(iter(sample)), **change)
    with pytest.raises(InvalidRecordError, match=f"not written, since it could not be read again: {place}"):
        write_csv(Dataset.of([wrong]), path)
    assert path.read_bytes() == b"what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_or_read_is_named(sample: Dataset, tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"a\.csv: cannot be written: No such file"):
        write_csv(sample, tmp_path / "missing" / "a.csv")
    with pytest.raises(FileAccessError, match=r"a\.csv: cannot be read: No such file"):
        read_csv(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())
