"""The program that runs the GPU's checks without pytest: every outcome is kept, also of a run that is cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.choices.models import write_model
from tests.integration.gpu import lab
from tests.integration.gpu.checks import CHECKS
from tests.integration.gpu.registry import Check

import gpu_checks
from diode.model.card import card_path, read_card
from diode.types import MMShape

ROOT = Path(__file__).parents[2]


def passing(folder: Path) -> None:
    (folder / "written").touch()


def failing(folder: Path) -> None:
    assert not list(folder.iterdir()), "another check's files are here"
    raise AssertionError("relative error 0.5\nin more words")


def slow(_: Path) -> None:
    time.sleep(0.2)


def checks(*functions) -> list[Check]:
    return [Check(function.__name__, "here", function) for function in functions]


def test_each_outcome_is_kept_with_its_reason_as_soon_as_it_is_there():
    written: list[dict[str, object]] = []
    outcomes = gpu_checks.run_checks(checks(passing, failing), 60.0, written.append)
    assert [(row["name"], row["outcome"]) for row in outcomes] == [("passing", "passed"), ("failing", "failed")]
    assert outcomes[1]["message"] == "AssertionError: relative error 0.5"
    assert any("in more words" in line for line in outcomes[1]["trace"])
    assert [(found["passed"], found["failed"], found["not run"]) for found in written] == [
        (1, 0, 1),
        (1, 1, 0),
        (1, 1, 0),
    ]


def test_when_time_is_over_the_rest_is_said_not_to_have_run():
    written: list[dict[str, object]] = []
    outcomes = gpu_checks.run_checks(checks(slow, passing), 0.1, written.append)
    assert [row["outcome"] for row in outcomes] == ["passed", "not run"]
    assert outcomes[0]["seconds"] >= 0.2
    assert written[-1]["not run"] == 1


def test_a_run_that_goes_on_keeps_what_has_passed_and_begins_with_what_was_not_run():
    begun: list[str] = []

    def repaired(_: Path) -> None:
        begun.append("repaired")

    def late(_: Path) -> None:
        begun.append("late")

    before = [{"name": "failing", "outcome": "passed"}, {"name": "repaired", "outcome": "failed", "message": "was"}]
    written: list[dict[str, object]] = []
    outcomes = gpu_checks.run_checks(checks(failing, repaired, late), 60.0, written.append, before)
    assert begun == ["late", "repaired"]
    assert [(row["name"], row["outcome"]) for row in outcomes] == [
        ("failing", "passed"),
        ("repaired", "passed"),
        ("late", "passed"),
    ]
    assert "message" not in outcomes[1]
    assert (written[0]["passed"], written[0]["failed"]) == (2, 1)


def test_outcomes_of_another_gpu_or_model_are_not_gone_on_with(tmp_path):
    head = dict.fromkeys(gpu_checks.SAME, "a")
    output = tmp_path / "out.json"
    assert gpu_checks.outcomes_before(output, head) == []
    rows = [{"name": "passing", "outcome": "passed"}]
    output.write_text(json.dumps({**head, "checks": rows}))
    assert gpu_checks.outcomes_before(output, head) == rows
    for name in gpu_checks.SAME:
        with pytest.raises(SystemExit, match=f"its {name} is a, here it is b"):
            gpu_checks.outcomes_before(output, head | {name: "b"})


def test_every_check_has_a_name_of_its_own_and_the_numbers_come_first():
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) > 40
    modules = list(dict.fromkeys(check.module.rpartition(".")[2] for check in CHECKS))
    assert modules == ["numerics", "contract", "networks", "exporting"]


def test_a_trained_model_is_checked_on_what_it_knows(tmp_path, monkeypatch):
    trained = write_model(tmp_path / "trained.safetensors", ops=("mm", "addmm"), precisions=("bfloat16",))
    monkeypatch.setenv("DIODE_TEST_MODEL", str(trained))
    problems = [MMShape.of(op, 16, 16, 16, B=2 if "b" in op[:2] else 1) for op in ("mm", "addmm", "bmm", "baddbmm")]
    problems.append(MMShape.of("mm", 16, 16, 16, dtype="float32"))
    assert lab.known_problems(lab.LEARNED, problems) == problems[:2]
    assert lab.known_problems("64x64 tiles", problems) == problems
    assert lab.known_problems(lab.LEARNED, problems[2:]) == problems[2:]
    assert lab.model_that_likes(lab.LEARNED, tmp_path / "a", "mm", "addmm") == trained
    for number, (ops, precision) in enumerate(((("mm", "bmm"), "bfloat16"), (("mm",), "float16"))):
        written = lab.model_that_likes(lab.LEARNED, tmp_path / str(number), *ops, precision=precision)
        assert set(ops) <= set(read_card(card_path(written)).ops)
        assert written != trained


ON_A_BORROWED_MACHINE = """
import sys
import compile, gpu_checks
print(len(gpu_checks.all_checks()), flush=True)
sys.argv = ["gpu_checks.py", "--output", "out.json"]
gpu_checks.main()
"""


def test_no_pytest_is_needed_and_a_missing_gpu_is_said(tmp_path):
    """On a borrowed machine there may be no pytest, and somebody else's `tests`."""
    other = tmp_path / "tests"
    other.mkdir()
    (other / "__init__.py").touch()
    (tmp_path / "pytest.py").write_text("raise ImportError('there is no pytest')")
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "benchmarks", ROOT / "src")))
    run = subprocess.run(
        [sys.executable, "-c", ON_A_BORROWED_MACHINE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == str(len(CHECKS))
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].startswith("no CUDA device can be used here")
    assert not (tmp_path / "out.json").exists()
