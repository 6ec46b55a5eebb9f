"""`diode dataset stats`, `merge` and `convert`, as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.running import diode_here, in_terminal, refusal

from diode.storage import fastest, read_dataset, statistics, write_dataset


def test_statistics_name_hardware_ops_and_the_fastest_choices_with_units(mixed: Path) -> None:
    done = diode_here(mixed, "dataset", "stats", ".", "--fastest", 3)
    assert (done.code, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()]
    by_op = {(row[1], row[2]): row for row in rows if row[:1] == ["NVIDIA"]}
    assert sorted(by_op) == [("H100", "addmm"), ("H200", "addmm"), ("H200", "mm")]
    times = [text for text in done.out.splitlines() if re.search(r"[\d.]+ (us|ms|s)\s*$", text)]
    assert len(times) == 4 + 3
    assert "and 60 more; --fastest 63 shows all" in done.out
    best = fastest(read_dataset(mixed / "a.parquet"))
    assert str(next(iter(best)).choice) in done.out
    assert "--fastest" not in diode_here(mixed, "dataset", "stats", ".", "--fastest", 0).out


def test_statistics_are_json_where_asked_for(mixed: Path) -> None:
    done = diode_here(mixed, "dataset", "stats", "a.parquet", "c.msgpack", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert [(group["hardware"], group["op"]) for group in found["groups"]] == [
        ("NVIDIA H100", "addmm"),
        ("NVIDIA H200", "addmm"),
    ]
    alone = statistics(read_dataset(mixed / "a.parquet")).totals
    assert found["totals"]["successes"] == 2 * alone.successes
    assert found["totals"]["failures"] == 2 * alone.failures


def test_a_terminal_and_a_pipe_get_the_same_words(mixed: Path) -> None:
    words = ("dataset", "stats", "a.parquet", "--fastest", 1)
    shown = in_terminal(mixed, *words)
    assert shown.code == 0
    assert shown.out.split() == diode_here(mixed, *words).out.split()


def test_merging_keeps_the_better_timed_of_two(mixed: Path, tmp_path: Path) -> None:
    parts = [mixed / "a.parquet", mixed / "b.json", mixed / "a.parquet"]
    done = diode_here(tmp_path, "dataset", "merge", *parts, "--output", "all.msgpack")
    one, other = (len(read_dataset(path)) for path in parts[:2])
    assert (done.code, done.err) == (0, "")
    assert done.out == f"all.msgpack: {one + other} measurements of {2 * one + other} in 3 data sets\n"
    merged = read_dataset(tmp_path / "all.msgpack")
    assert sorted(map(str, merged)) == sorted(map(str, [*read_dataset(parts[0]), *read_dataset(parts[1])]))


@pytest.mark.parametrize("suffix", ["json", "msgpack", "parquet"])
def test_converting_changes_nothing_but_the_format(suffix: str, mixed: Path, tmp_path: Path) -> None:
    done = diode_here(tmp_path, "dataset", "convert", mixed / "a.parquet", f"b.{suffix}")
    before = read_dataset(mixed / "a.parquet")
    assert (done.code, done.out, done.err) == (0, f"b.{suffix}: {len(before)} measurements\n", "")
    assert list(read_dataset(tmp_path / f"b.{suffix}")) == list(before)


def test_a_format_that_is_said_stands_for_a_suffix(mixed: Path, tmp_path: Path) -> None:
    done = diode_here(tmp_path, "--format", "msgpack", "dataset", "convert", mixed / "a.parquet", "plain")
    assert done.code == 0
    assert read_dataset(tmp_path / "plain", "msgpack").problems == read_dataset(mixed / "a.parquet").problems


def test_wrong_words_are_one_line_and_make_nothing(mixed: Path, tmp_path: Path) -> None:
    write_dataset(read_dataset(mixed / "b.json"), tmp_path / "b.json")
    (tmp_path / "torn.json").write_bytes((tmp_path / "b.json").read_bytes()[:-100])
    wrong: list[tuple[tuple[object, ...], int, str]] = [
        (("stats",), 2, "Missing argument"),
        (("stats", "b.json", "--fastest", -1), 2, "Invalid value for '--fastest'"),
        (("stats", "none.parquet"), 1, "none.parquet: cannot be read: No such file or directory"),
        (("stats", "torn.json"), 1, "torn.json: "),
        (("merge", "b.json"), 2, "Missing option '--output'"),
        (("merge", "b.json", "--output", "c.txt"), 2, "c.txt: 'txt' is no format of datasets"),
        (("merge", "b.json", "torn.json", "--output", "c.json"), 1, "torn.json: "),
        (("merge", "b.json", "--output", "missing/c.json"), 1, "missing/c.json: cannot be written"),
        (("convert", "b.json"), 2, "Missing argument"),
        (("convert", "b.json", "c"), 2, "c: has no suffix that tells the format"),
        (("convert", "torn.json", "c.parquet"), 1, "torn.json: "),
        (("split",), 2, "No such command 'split'"),
    ]
    for words, code, message in wrong:
        assert message in refusal(tmp_path, "dataset", *words, code=code)
    assert "c.json: the suffix contradicts the format parquet" in refusal(
        tmp_path, "--format", "parquet", "dataset", "convert", "b.json", "c.json", code=2
    )
