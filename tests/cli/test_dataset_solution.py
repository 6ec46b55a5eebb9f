"""`diode dataset solution`, and `diode dataset convert` from CSV, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import diode_here, refusal

from diode.storage import read_dataset, read_solution, write_dataset
from diode.types import (
    AtenChoice,
    Dataset,
    DecomposeKConfig,
    Environment,
    Failure,
    Hardware,
    Measurement,
    MMShape,
    SolutionEntry,
    Timing,
    TimingMethod,
)

ENVIRONMENT = Environment(Hardware("gpu", "cuda"))
METHOD = TimingMethod("diode-sweep", "median")
SMALL, LARGE = MMShape.of("mm", 64, 64, 64), MMShape.of("addmm", 4096, 4096, 512, layout="NT")


def measured(problem: MMShape, choice: AtenChoice | DecomposeKConfig, time_us: float) -> Measurement:
    return Measurement(problem, choice, ENVIRONMENT, METHOD, Timing(time_us))


FIRST = [
    measured(SMALL, AtenChoice("mm"), 4.5),
    measured(SMALL, DecomposeKConfig(2), 3.5),
    Measurement(LARGE, DecomposeKConfig(4), ENVIRONMENT, METHOD, None, Failure("shared_memory", 'too, "much"\n')),
]
SECOND = [measured(LARGE, AtenChoice("addmm"), 170.0), measured(SMALL, DecomposeKConfig(4), 3.75)]
BEST = (SolutionEntry(SMALL, DecomposeKConfig(2), 3.5), SolutionEntry(LARGE, AtenChoice("addmm"), 170.0))


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    (tmp_path / "folder").mkdir()
    write_dataset(Dataset.of(FIRST), tmp_path / "a.parquet")
    write_dataset(Dataset.of(SECOND), tmp_path / "folder" / "b.json")
    return ["a.parquet", "folder"]


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_the_fastest_choice_of_each_problem_is_written(suffix: str, inputs: list[str], tmp_path: Path) -> None:
    done = diode_here(tmp_path, "dataset", "solution", *inputs, "--output", f"best{suffix}")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"best{suffix}: 2 choices of solution best\n"
    solution = read_solution(tmp_path / f"best{suffix}")
    assert (solution.name, solution.entries) == ("best", BEST)


def test_a_name_may_be_given_and_json_be_printed(inputs: list[str], tmp_path: Path) -> None:
    done = diode_here(tmp_path, "dataset", "solution", *inputs, "--output", "a.json", "--name", "[of] mine", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == {"output": "a.json", "name": "[of] mine", "entries": 2}
    assert read_solution(tmp_path / "a.json").name == "[of] mine"


def test_what_cannot_be_done_is_one_line_and_writes_nothing(inputs: list[str], tmp_path: Path) -> None:
    solution = ("dataset", "solution")
    assert refusal(tmp_path, *solution, *inputs, "--output", "a.parquet", code=2) == (
        "a.parquet: '.parquet' is no suffix of solutions; name it .json or .csv"
    )
    assert refusal(tmp_path, *solution, "missing.json", "--output", "a.json") == (
        "missing.json: cannot be read: No such file or directory"
    )
    assert refusal(tmp_path, *solution, *inputs, "--output", "missing/a.json") == (
        "missing/a.json: cannot be written: No such file or directory"
    )
    assert refusal(tmp_path, "--format", "parquet", *solution, *inputs, "--output", "a.json", code=2) == (
        "a.json: the suffix contradicts --format parquet: give one of them"
    )
    assert "name: Expected `str` of length >= 1" in refusal(
        tmp_path, *solution, *inputs, "--output", "a.json", "--name", ""
    )


def test_measurements_of_two_devices_or_of_none_make_no_solution(tmp_path: Path) -> None:
    there = Measurement(SMALL, AtenChoice("mm"), Environment(Hardware("other", "cuda")), METHOD, Timing(1.0))
    write_dataset(Dataset.of([*FIRST, there]), tmp_path / "two.json")
    write_dataset(Dataset.of(FIRST[2:]), tmp_path / "failed.json")
    for name, reason in (("two", "times of gpu, other"), ("failed", "no GEMM among 1 measurements has a time")):
        assert reason in refusal(tmp_path, "dataset", "solution", f"{name}.json", "--output", "a.csv", code=2)


def test_a_data_set_goes_to_csv_and_comes_back(inputs: list[str], tmp_path: Path) -> None:
    for source, target in (("a.parquet", "a.csv"), ("a.csv", "b.csv"), ("b.csv", "b.msgpack")):
        done = diode_here(tmp_path, "dataset", "convert", source, target)
        assert (done.code, done.out, done.err) == (0, f"{target}: 3 measurements\n", "")
    assert list(read_dataset(tmp_path / "b.msgpack")) == FIRST
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_csv_that_is_wrong_is_refused_by_line_and_column(inputs: list[str], tmp_path: Path) -> None:
    assert diode_here(tmp_path, "dataset", "convert", "a.parquet", "a.csv").code == 0
    content = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(content.replace(",4.5,", ",fast,"))
    message = refusal(tmp_path, "dataset", "convert", "a.csv", "b.parquet")
    assert message == "a.csv: line 2, column time_us: is 'fast', which is no JSON value"
    assert refusal(tmp_path, "dataset", "convert", "missing.csv", "b.parquet").startswith("missing.csv: cannot be read")
    assert "contradicts --format json" in refusal(
        tmp_path, "--format", "json", "dataset", "convert", "a.parquet", "b.csv", code=2
    )
