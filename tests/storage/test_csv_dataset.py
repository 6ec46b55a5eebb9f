from __future__ import annotations

import csv
from pathlib import Path

import pytest

from diode.errors import FileAccessError
from diode.storage.csv_export import write_csv
from diode.types import AtenChoice, Dataset, Environment, Failure, Hardware, Measurement, MMShape, TimingMethod


def rows_of(dataset: Dataset, folder: Path) -> list[dict[str, str]]:
    path = folder / "a.csv"
    write_csv(dataset, path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def picked(row: dict[str, str], names: str) -> list[str]:
    return [row[name] for name in names.split()]


def test_a_row_tells_problem_choice_and_time(sample: Dataset, tmp_path: Path) -> None:
    rows = rows_of(sample, tmp_path)
    assert len(rows) == len(sample)
    first, tma = rows[0], rows[1]
    assert picked(first, "op B M N K dtype out_dtype layout allow_tf32") == [
        "addmm", "1", "256", "512", "1024", "float16", "float16", "NT", "False",
    ]  # fmt: skip
    assert picked(first, "a_strides b_strides out_strides bias_strides") == ["1024 1", "1 1024", "512 1", "0 1"]
    assert picked(first, "kind choice block_m block_n block_k num_stages num_warps group_m even_k k_split num_sms") == [
        "triton_gemm", "triton::mm", "64", "128", "32", "3", "4", "8", "True", "", "",
    ]  # fmt: skip
    assert picked(first, "time_us min_us spread repeats clock_mhz failure message") == [
        "12.5", "12.25", "0.01", "30", "1980", "", "",
    ]  # fmt: skip
    assert picked(first, "hardware torch triton driver taken timer statistic kernel round") == [
        "NVIDIA H200", "2.11.0", "3.6.0", "", "2026-11-18", "diode-sweep", "median", "static", "2",
    ]  # fmt: skip
    assert picked(tma, "kind num_sms time_us min_us spread repeats clock_mhz") == [
        "persistent_tma", "132", "9.75", "", "", "", "",
    ]  # fmt: skip


def test_every_kind_of_choice_has_a_name(sample: Dataset, tmp_path: Path) -> None:
    rows = rows_of(sample, tmp_path)
    assert [(row["kind"], row["choice"]) for row in rows[2:]] == [
        ("aten", "addmm"),
        ("decompose_k", "decompose_k"),
        ("other", "cutlass_3x_sm90"),
        ("cpp_template", "CppMicroGemmFP32Vec"),
        ("cpp_template", "CppMicroGemmFP32Vec"),
    ]
    assert rows[3]["k_split"] == "8"


def test_failures_and_other_problems_leave_cells_empty(sample: Dataset, tmp_path: Path) -> None:
    rows = rows_of(sample, tmp_path)
    assert picked(rows[3], "time_us failure message") == ["", "shared_memory", "262144 > 232448"]
    assert picked(rows[5], "op M dtype layout a_strides time_us failure") == [
        "convolution", "", "float16", "", "", "", "unknown",
    ]  # fmt: skip


def test_commas_quotes_and_line_ends_in_text_survive(tmp_path: Path) -> None:
    text = 'a, "b"\r\nc\n;é'
    environment = Environment(Hardware(text, "cuda"))
    method = TimingMethod("t", "min")
    failure = Failure("crash", text)
    rows = [Measurement(MMShape.of("mm", 8, 8, 8), AtenChoice("mm"), environment, method, failure=failure)]
    (row,) = rows_of(Dataset.of(rows), tmp_path)
    assert (row["hardware"], row["message"]) == (text, text)


def test_no_measurements_are_a_line_of_names(tmp_path: Path) -> None:
    assert rows_of(Dataset.of([]), tmp_path) == []
    assert (tmp_path / "a.csv").read_text().startswith("hardware,torch,")


def test_a_file_that_cannot_be_written_is_named(sample: Dataset, tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"a\.csv: cannot be written: No such file"):
        write_csv(sample, tmp_path / "missing" / "a.csv")
    assert not list(tmp_path.iterdir())
