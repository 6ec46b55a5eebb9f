"""The commands that measure, on what Inductor really chooses from on this CPU."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from tests.cli.running import Done, diode_here, finished, in_terminal, refusal, start_diode

from diode.cli.listed_problems import listed_problems
from diode.collection.journal import journal_dataset
from diode.storage import read_dataset, write_dataset, write_shapeset
from diode.types import AtenChoice, Dataset, Environment, Hardware, Measurement, MMShape, Timing, TimingMethod

SMALL = ("--device", "cpu", "--dtypes", "float32", "--layouts", "NT", "--ops", "mm", "--max-gflop", 0.001)
"""Problems that a CPU has choices for, and that take it no time."""
FIVE = ("--seed", 5, "collect", "--output", "a.parquet", "--num-shapes", 5, *SMALL)


def rows_of(dataset: Dataset) -> dict[MMShape, list[Measurement]]:
    return {problem: [row for row in dataset if row.problem == problem] for problem in dataset.problems}


def signalled(folder: Path, number: signal.Signals, *, when_measured: int = 0) -> tuple[Done, list[int]]:
    """The collection of five problems, told to stop as a terminal does it; and the processes that it had."""
    journal = folder / "a.parquet.journal"
    size = journal.stat().st_size if journal.exists() else 0
    process = start_diode(folder, *FIVE)
    while not (journal.exists() and journal.stat().st_size > size and measured_in(journal) >= when_measured):
        assert process.poll() is None, finished(process)
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.killpg(process.pid, number) if number != signal.SIGKILL else process.kill()
    return finished(process), [int(child) for child in children.split()]


def measured_in(journal: Path) -> int:
    return len(journal_dataset(journal).problems)


def test_a_collection_that_is_stopped_in_every_way_loses_nothing_and_measures_nothing_twice(tmp_path: Path) -> None:
    output, journal = tmp_path / "a.parquet", tmp_path / "a.parquet.journal"

    killed, children = signalled(tmp_path, signal.SIGKILL, when_measured=1)
    assert killed.code == -signal.SIGKILL
    assert not output.exists()
    measured = rows_of(journal_dataset(journal))
    assert 1 <= len(measured) < 3  # so that each signal below leaves something
    assert children
    while any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.05)  # they end by themselves

    for number in (signal.SIGINT, signal.SIGTERM):
        stopped, _ = signalled(tmp_path, number)
        assert stopped.code == 130
        assert "error" not in stopped.err
        assert "Traceback" not in stopped.err
        before, measured = measured, rows_of(read_dataset(output))
        assert f"stopped with {5 - len(measured)} problems left: run the same command again to go on\n" in stopped.err
        assert before.items() <= measured.items()

    spent = diode_here(tmp_path, *FIVE, "--budget", "1s")
    assert spent.code == 0
    assert f"stopped with {5 - len(measured)} problems left: run the same command again to go on\n" in spent.err
    assert rows_of(read_dataset(output)) == measured

    done = diode_here(tmp_path, *FIVE)
    assert (done.code, journal.exists()) == (0, False)
    progress = r"\d/5 problems, \d+ measurements \(\d\.\d/s\), \S+ left, mm \S+ float32 NT: .* us, .* GFLOP/s, "
    assert re.search(progress, done.err)
    whole = read_dataset(output)
    assert len(whole.problems) == 5
    assert measured.items() <= rows_of(whole).items()
    assert len(whole) == len({(row.problem, row.choice) for row in whole})
    new = len(whole) - sum(map(len, measured.values()))
    assert f"a.parquet: {len(whole)} measurements, {new} of them new, in " in done.out
    assert "exists already; remove it or name another --output" in refusal(tmp_path, *FIVE, code=2)


def test_a_shapeset_is_measured_with_progress_and_a_summary_on_a_terminal(tmp_path: Path) -> None:
    asked = (MMShape.of("mm", 16, 24, 32, dtype="float32", layout="NT"), MMShape.of("mm", 8, 8, 8, dtype="float64"))
    write_shapeset(asked, tmp_path / "shapes.json")
    words = ("collect-shapeset", "--shapeset", "shapes.json", "--output", "b.json", "--device", "cpu")
    done = in_terminal(tmp_path, *words, "--choices", 3, "--search-space", "DEFAULT")
    assert done.code == 0
    assert "--search-space DEFAULT, --choices: without effect with --device cpu" in done.out
    assert re.search(r"0/2 problems, 0 measurements \(0\.0/s\), \d+s so far", done.out)
    assert re.search(r"not measured: mm 8x8x8 float64 \S+: Inductor's choices for float64 are not measured", done.out)
    dataset = read_dataset(tmp_path / "b.json")
    assert dataset.problems == asked[:1]
    assert len(dataset) >= 2
    assert all(row.environment.hardware.device_type == "cpu" for row in dataset)
    assert dataset.environments[0].command.startswith("diode collect-shapeset --shapeset shapes.json")
    assert re.search(r"^ *\S.* +mm +1 +\d+ +\d+ +0 +[\d.]+ (us|ms) +[\d.]+ (us|ms) *$", done.out, re.MULTILINE)
    assert re.search(r"^b.json: (\d+) measurements, \1 of them new, in \d+s \(\S+ a second\)$", done.out, re.MULTILINE)


SHAPES = tuple(MMShape.of(op, 8, 8, size, dtype="float32", layout="NT") for op in ("mm", "bmm") for size in (16, 24))


def measured_before(problem: MMShape, path: Path) -> None:
    cpu = Environment(Hardware("cpu", "cpu"))
    row = Measurement(problem, AtenChoice(problem.op), cpu, TimingMethod("diode-sweep", "median"), Timing(3.0))
    write_dataset(Dataset.of([row]), path)


def test_what_is_measured_or_of_other_ops_is_left_out(tmp_path: Path) -> None:
    write_shapeset(SHAPES, tmp_path / "shapes.json")
    measured_before(SHAPES[0], tmp_path / "a.parquet")
    words = ("collect-shapeset", "--shapeset", "shapes.json", "--device", "cpu", "--ops", "mm")
    done = diode_here(tmp_path, *words, "--output", "b.parquet", "--without", "a.parquet")
    assert done.code == 0, done.err
    assert read_dataset(tmp_path / "b.parquet").problems == SHAPES[1:2]
    assert "shapes.json: all 2 problems that are asked for are measured" in refusal(
        tmp_path, *words, "--output", "c.json", "--without", "a.parquet", "--without", "b.parquet", code=2
    )


def test_what_a_stopped_collection_has_written_is_no_reason_to_leave_it_out(tmp_path: Path) -> None:
    write_shapeset(SHAPES, tmp_path / "shapes.json")
    for name, problem in (("a.parquet", SHAPES[0]), ("b.parquet", SHAPES[1])):
        measured_before(problem, tmp_path / name)
    left = listed_problems(tmp_path / "shapes.json", without=[tmp_path], output=tmp_path / "b.parquet")
    assert left == SHAPES[1:]


def test_problems_are_refused_before_a_device_is_looked_for(tmp_path: Path) -> None:
    write_shapeset(SHAPES[:1], tmp_path / "shapes.json")
    words = ("--shapeset", "shapes.json")
    for command in (("collect-shapeset", "--output", "a.json", "--device", "cuda"), ("compile-ahead",)):
        for more, message in (
            (("--ops", "mm,conv"), "--ops: 'conv' is not one of mm, addmm, bmm, baddbmm"),
            (("--ops", "bmm"), "--ops bmm: shapes.json lists no problem of these ops"),
        ):
            assert message in refusal(tmp_path, *command, *words, *more, code=2)
        assert "none.json: cannot be read" in refusal(tmp_path, *command, *words, "--without", "none.json")


def test_what_nobody_can_measure_leaves_no_file_and_fails(tmp_path: Path) -> None:
    write_shapeset([MMShape.of("mm", 8, 8, 8, dtype="float64")], tmp_path / "shapes.json")
    words = ("collect-shapeset", "--shapeset", "shapes.json", "--output", "b.json", "--device", "cpu")
    done = diode_here(tmp_path, *words)
    assert (done.code, done.out) == (1, "")
    told, error = done.err.splitlines()
    assert told.startswith("not measured: mm 8x8x8 float64")
    assert error == "error: b.json: not written, since none of 1 problems was measured"
    assert [path.name for path in tmp_path.iterdir()] == ["shapes.json"]


@pytest.mark.parametrize("command", ["collect", "collect-shapeset", "create-validation"])
def test_wrong_words_are_one_line_and_make_nothing(command: str, tmp_path: Path) -> None:
    write_shapeset([MMShape.of("mm", 8, 8, 8)], tmp_path / "shapes.json")
    (tmp_path / "there.json").write_text("{}")
    words: tuple[object, ...] = (command, "--device", "cpu")
    if command == "collect-shapeset":
        words = (*words, "--shapeset", "shapes.json")
    output = ("--output", "a.json")
    wrong: list[tuple[tuple[object, ...], str]] = [
        ((), "Missing option '--output'"),
        (("--output", "a"), "a: has no suffix that tells the format; name it .json, .msgpack, .parquet"),
        (("--output", "a.csv"), "a.csv: 'csv' is no format of datasets"),
        (("--output", "there.json"), "there.json: exists already; remove it or name another --output"),
        ((*output, "--search-space", "ALL"), "'ALL' is not one of 'EXHAUSTIVE', 'DEFAULT'"),
        ((*output, "--search-mode", "default"), "'default' is not one of 'max-autotune'"),
        ((*output, "--budget", "soon"), "--budget 'soon': is no duration: write 90s, 10m or 1h30m"),
        ((*output, "--budget", "0s"), "--budget '0s': leaves no time at all"),
        ((*output, "--device", "tpu"), "--device tpu: use cpu, cuda, or cuda:0,1"),
        ((*output, "--share-choices"), "--share-choices goes with --choices"),
        ((*output, "--choices", 3, "--choices-from", "there.json"), "give one of them"),
        ((*output, "--kernels", "dynamic"), "'dynamic' is not one of 'family', 'static'"),
        ((*output, "--processes", 0), "Invalid value for '--processes'"),
    ]
    if command != "collect-shapeset":
        wrong += [
            ((*output, "--num-shapes", 0), "Invalid value for '--num-shapes'"),
            ((*output, "--log-normal", "--sampler", "uniform"), "--log-normal contradicts --sampler uniform"),
            ((*output, "--sampler", "gauss"), "'gauss' is not one of 'log-normal'"),
            ((*output, "--ops", "conv"), "'conv' is not one of mm, addmm, bmm, baddbmm"),
            ((*output, "--dtypes", "int8"), "'int8' is not one of bfloat16"),
            ((*output, "--layouts", "NX"), "'NX' is not one of NN, NT, TN, TT"),
            ((*output, "--sampler", "networks", "--ops", "mm"), "--sampler networks draws GEMMs as networks have them"),
        ]
    for more, message in wrong:
        assert message in refusal(tmp_path, *words, *more, code=2)
    assert "a.json: the suffix contradicts the format msgpack" in refusal(
        tmp_path, "--format", "msgpack", *words, *output, code=2
    )
    assert "missing/a.json: its folder does not exist; create it" in refusal(
        tmp_path, *words, "--output", "missing/a.json"
    )


def test_a_gpu_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    for device in ("cuda", "cuda:0,1"):
        message = refusal(tmp_path, "collect", "--output", "a.json", "--num-shapes", 1, "--device", device)
        assert message.startswith("no CUDA device can be used here: check the driver")
        assert message.endswith("with --device cpu")


def test_a_shapeset_that_is_none_is_told(tmp_path: Path) -> None:
    words = ("collect-shapeset", "--output", "a.json", "--device", "cpu", "--shapeset")
    assert "none.json: cannot be read: No such file or directory" in refusal(tmp_path, *words, "none.json")
    (tmp_path / "torn.json").write_text('{"operations": {"mm"')
    assert refusal(tmp_path, *words, "torn.json").startswith("torn.json: ")
    (tmp_path / "empty.json").write_text(json.dumps({"operations": {}}))
    assert "empty.json" in refusal(tmp_path, *words, "empty.json", code=2)


def test_what_the_system_refuses_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "a.parquet.journal").mkdir()
    assert refusal(tmp_path, *FIVE) == "a.parquet.journal: cannot be read or written: Is a directory"
