"""The shell workflows and the toolkit, run on this CPU with sizes that take a moment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import ONE_THREAD, Done, diode_here

from diode.model.card import read_card
from diode.storage import read_dataset, read_solution

WORKFLOWS = Path(__file__).parents[2] / "workflows"
SMALL = "--device cpu --dtypes float32 --layouts NT --ops mm --max-gflop 0.001 --seed 5"
ANALYSIS = "model_performance_analysis_by_op.json"


def run(folder: Path, script: str, *words: object) -> Done:
    command = [WORKFLOWS / script, *words]
    if script.endswith(".py"):
        command = [sys.executable, *command]
    else:
        command += ["--python", sys.executable] if words and "--help" not in words else []
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ONE_THREAD},
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("workflow")
    sizes = "--train-shapes 2 --validation-shapes 1 --epochs 2 --data-dir some/data --format msgpack"
    return folder / "some/data", run(folder, "matmul_workflow.sh", *SMALL.split(), *sizes.split())


def test_the_workflow_goes_from_collection_to_comparison(whole: tuple[Path, Done]) -> None:
    data, done = whole
    assert done.code == 0, done.err
    assert re.findall(r"^==> (\d)/5 ", done.out, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    training, validation = (read_dataset(data / f"seed_{name}.msgpack") for name in ("5_training", "6_validation"))
    assert (len(training.problems), len(validation.problems)) == (2, 1)
    assert not set(training.problems) & set(validation.problems)
    assert read_card(data / "matmul_model.json").settings["epochs"] == 2
    assert read_solution(data / "seed_6_max_autotune.json").name == "max-autotune"
    analysis = json.loads((data / ANALYSIS).read_text())
    assert analysis["solution"]["solution_efficiency"] == pytest.approx(100.0)
    assert "against max-autotune" in done.out


def test_the_second_workflow_compares_a_model_with_data_that_are_there(
    whole: tuple[Path, Done], tmp_path: Path
) -> None:
    data, _ = whole
    words = ("--model", data / "matmul_model.safetensors", "--dataset", data / "seed_6_validation.msgpack")
    done = run(tmp_path, "matmul_max_autotune_validation.sh", *words, "--data-dir", "out", "--seed", 5)
    assert done.code == 0, done.err
    assert re.findall(r"^==> (\d)/3 ", done.out, re.MULTILINE) == ["1", "2", "3"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {ANALYSIS, "max_autotune_solution.json"}
    written = json.loads((tmp_path / "out" / ANALYSIS).read_text())
    assert written["rankings"] == json.loads((data / ANALYSIS).read_text())["rankings"]


def test_wrong_words_stop_a_workflow_before_it_does_anything(tmp_path: Path) -> None:
    for script, words, message in (
        ("matmul_workflow.sh", ("--shapes", 3), "--shapes: is no option"),
        ("matmul_workflow.sh", ("--train-shapes", "many"), "--train-shapes many: must be a whole number"),
        ("matmul_workflow.sh", ("--device", "tpu"), "--device tpu: use cpu, cuda, or cuda:0,1"),
        ("matmul_workflow.sh", ("--model", "m.onnx"), "--model m.onnx: name it .safetensors or .pt"),
        ("matmul_max_autotune_validation.sh", ("--seed", 1), "--model FILE: which model is to be compared?"),
        ("matmul_max_autotune_validation.sh", ("--model", "none.pt"), "--model none.pt: is not there"),
    ):
        done = run(tmp_path, script, *words)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"error: {message}")
        assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", ["matmul_workflow.sh", "matmul_max_autotune_validation.sh"])
def test_help_names_every_option_that_is_heard(script: str, tmp_path: Path) -> None:
    done = run(tmp_path, script, "--help")
    assert done.code == 0
    heard = re.search(r"case \$option in(.*?)\)\n", (WORKFLOWS / script).read_text(), re.DOTALL)
    assert heard is not None
    assert set(re.findall(r"--[a-z-]+", heard[1])) | {"--help"} == set(re.findall(r"--[a-z-]+", done.out))


def test_the_toolkit_is_the_command_by_another_name(h200: Path, tmp_path: Path) -> None:
    words = ("--seed", 3, "dataset", "stats", h200 / "validation.msgpack", "--json")
    toolkit, command = run(tmp_path, "matmul_toolkit.py", *words), diode_here(tmp_path, *words)
    assert (toolkit.code, toolkit.out, toolkit.err) == (command.code, command.out, command.err)
    toolkit = run(tmp_path, "matmul_toolkit.py", "train", "--model", "m.pt")
    command = diode_here(tmp_path, "train", "--model", "m.pt")
    assert (toolkit.code, toolkit.out, toolkit.err) == (command.code, command.out, command.err)
    assert toolkit.code == 2


def test_the_toolkit_runs_where_diode_is_not_installed(tmp_path: Path) -> None:
    """As from a checkout whose interpreter has torch and the rest, but not diode."""
    hidden = "import sys, importlib.abc, runpy\n" + (
        "sys.path = [p for p in sys.path if not p.endswith('/src')]\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', repr(f)).lower()]\n"
        f"sys.argv = ['matmul_toolkit.py', '--version']\nrunpy.run_path({str(WORKFLOWS / 'matmul_toolkit.py')!r}, "
        "run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", hidden], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"diode \d+\.\d+\.\d+\S*\n", done.stdout)
