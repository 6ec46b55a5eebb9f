"""The program that measures how fast the sweep measures: what it refuses, and what it says of nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.running import contents

import collection
from diode.storage import write_dataset, write_shapeset
from diode.types import AtenChoice, Dataset, Environment, Hardware, Measurement, MMShape, Timing, TimingMethod

PROGRAM = Path(collection.__file__)
PROBLEM = MMShape.of("mm", 8, 16, 32)


def ends_one_of_two(answers):
    answers.put(None)
    answers.put({"problem": "a", "seconds": 2.0, "timed": 30, "choices": 40})
    time.sleep(60)


def ends_none(answers):
    answers.put(None)
    time.sleep(60)


def never_starts(answers):
    time.sleep(60)


def test_the_rate_is_of_the_searches_that_ended():
    told = collection.inductor_rate(ends_one_of_two, limit_seconds=1.0)
    assert (told["inductor_exhaustive_per_second"], len(told["runs"])) == (15.0, 1)


@pytest.mark.parametrize("search", [ends_none, never_starts])
def test_where_no_search_ends_there_is_no_rate(search):
    told = collection.inductor_rate(search, limit_seconds=0.2, starting_seconds=0.2 if search is never_starts else 60.0)
    assert (told["inductor_exhaustive_per_second"], told["runs"]) == (None, [])


def test_problems_that_nobody_could_take_are_refused_before_the_gpu_is_touched(tmp_path):
    write_shapeset([PROBLEM], tmp_path / "shapes.json")
    cpu = Environment(Hardware("cpu", "cpu"))
    row = Measurement(PROBLEM, AtenChoice("mm"), cpu, TimingMethod("diode-sweep", "median"), Timing(3.0))
    write_dataset(Dataset.of([row]), tmp_path / "measured.json")
    before = contents(tmp_path)
    for more, message in (
        (("--ops", "mm,conv"), "--ops: 'conv' is not one of mm, addmm, bmm, baddbmm"),
        (("--without", "measured.json"), "shapes.json: all 1 problems that are asked for are measured in --without"),
    ):
        words = ("--shapeset", "shapes.json", "--data", "a.parquet", "--output", "a.json")
        run = subprocess.run(
            [sys.executable, PROGRAM, *words, *more], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (run.returncode, run.stdout, run.stderr) == (1, "", message + "\n")
        assert contents(tmp_path) == before
