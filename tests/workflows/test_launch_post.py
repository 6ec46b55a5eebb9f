"""The tutorial in six steps, as a user types it: collect, train, validation set, validate, solution, comparison."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import ONE_THREAD, Done

from diode.model.card import read_card
from diode.storage import fastest, read_dataset
from diode.types import CppTemplateConfig, MMShape

WORKFLOWS = Path(__file__).parents[2] / "workflows"
ON_THIS_CPU = "--device cpu --dtypes float32 --layouts NT --ops mm --max-gflop 0.001"
"""What makes the tutorial's problems small, and such that a CPU has choices for them."""

COLLECT = f"""
python matmul_toolkit.py \\
    --format msgpack --seed 42 collect \\
    --output tutorial_dataset.msgpack \\
    --num-shapes 2 \\
    --search-space EXHAUSTIVE \\
    --search-mode max-autotune \\
    --log-normal {ON_THIS_CPU}
"""
TRAIN = """
python matmul_toolkit.py \\
    --seed 42 train \\
    --data-dir . \\
    --model tutorial_model.pt \\
    --model-type deep \\
    --batch-size 32 \\
    --num-epochs 3 \\
    --learning-rate 0.001 \\
    --file-extensions msgpack
"""
CREATE_VALIDATION = f"""
python matmul_toolkit.py \\
    --format msgpack --seed 43 create-validation \\
    --output tutorial_validation.msgpack \\
    --num-shapes 1 \\
    --search-space EXHAUSTIVE \\
    --search-mode max-autotune \\
    --log-normal {ON_THIS_CPU}
"""
VALIDATE = """
python matmul_toolkit.py \\
    --seed 42 validate-model \\
    --model tutorial_model.pt \\
    --dataset tutorial_validation.msgpack \\
    --batch-size 32 \\
    --top-n-worst 5
"""
COMPARE = """
python matmul_toolkit.py \\
    --seed 42 validate-max-autotune \\
    --model tutorial_model.pt \\
    --dataset tutorial_validation.msgpack \\
    --max-autotune-solution tutorial_max_autotune.json \\
    --batch-size 32
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


def typed(folder: Path, step: str) -> Done:
    """A step in a shell, with this interpreter and the toolkit of this checkout."""
    step = step.replace("python matmul_toolkit.py", f"{sys.executable} {WORKFLOWS / 'matmul_toolkit.py'}")
    environment = {**os.environ, **ONE_THREAD}
    run = subprocess.run(["bash", "-c", step], cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    return Done(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="module")
def collected(folder: Path) -> Done:
    return typed(folder, COLLECT)


@pytest.fixture(scope="module")
def trained(folder: Path, collected: Done) -> Done:
    return typed(folder, TRAIN)


@pytest.fixture(scope="module")
def validation_set(folder: Path, trained: Done) -> Done:
    return typed(folder, CREATE_VALIDATION)


@pytest.fixture(scope="module")
def compared(folder: Path, validation_set: Done) -> Done:
    """The solution is echoed into a file as the tutorial does, with what the validation set has for fastest."""
    configs = []
    for row in fastest(read_dataset(folder / "tutorial_validation.msgpack")):
        assert isinstance(row.problem, MMShape)
        tiles = [
            choice.fields
            for choice in (row.choice, *read_dataset(folder / "tutorial_validation.msgpack").choices)
            if isinstance(choice, CppTemplateConfig)
        ]
        blocks = {name: value for name, value in tiles[0] if name.startswith("block_")}
        configs.append({"M": row.problem.M, "N": row.problem.N, "K": row.problem.K, **blocks})
    solution = json.dumps({"name": "tutorial_max_autotune", "configs": configs})
    return typed(folder, f"echo '{solution}' > tutorial_max_autotune.json\n{COMPARE}")


def test_step_one_measures_as_many_problems_as_were_asked_for(folder: Path, collected: Done) -> None:
    dataset = read_dataset(folder / "tutorial_dataset.msgpack")
    assert len(dataset.problems) == 2
    assert {problem.op for problem in dataset.problems} == {"mm"}
    assert re.search(r"fastest +slowest", collected.out)
    assert f"tutorial_dataset.msgpack: {len(dataset)} measurements" in collected.out


def test_step_two_trains_on_what_lies_in_the_folder(folder: Path, trained: Done) -> None:
    card = read_card(folder / "tutorial_model.json")
    assert [source.name for source in card.data] == ["tutorial_dataset.msgpack"]
    settings = {"batch_size": 32, "epochs": 3, "learning_rate": 0.001}
    assert settings.items() <= card.settings.items()
    assert "tutorial_model.pt: diode-matmul 1" in trained.out


def test_step_three_measures_other_problems(folder: Path, validation_set: Done) -> None:
    training, validation = (read_dataset(folder / f"tutorial_{name}.msgpack") for name in ("dataset", "validation"))
    assert len(validation.problems) == 1
    assert not set(training.problems) & set(validation.problems)


def test_step_four_says_how_far_off_the_model_is(folder: Path, validation_set: Done) -> None:
    done = typed(folder, VALIDATE)
    measured = len(read_dataset(folder / "tutorial_validation.msgpack"))
    assert re.search(r"MSE \(log\) +RMSE \(log\) +RMSE factor", done.out)
    assert len(re.findall(r"(?:us|ms|s) +\S+x *$", done.out, re.MULTILINE)) == min(5, measured)


def test_steps_five_and_six_compare_with_a_solution_that_was_echoed(folder: Path, compared: Done) -> None:
    assert re.search(r"against tutorial_max_autotune +problems +choices +efficiency", compared.out)
    assert re.search(r"^ solution +1 +1 +[\d.]+% *$", compared.out, re.MULTILINE)
    assert "figures by op: model_performance_analysis_by_op.json" in compared.out
    written = json.loads((folder / "model_performance_analysis_by_op.json").read_text())
    assert (written["solution"]["name"], written["solution"]["problems"]) == ("tutorial_max_autotune", 1)


def test_training_may_be_repeated_on_the_folder_that_now_holds_more(folder: Path, compared: Done) -> None:
    """The folder has a model's card, a solution and an analysis in it now; without --file-extensions they are seen."""
    done = typed(folder, TRAIN.replace("--file-extensions msgpack", "").replace("tutorial_model", "again"))
    assert "training deep on " in done.err
    sources = [source.name for source in read_card(folder / "again.json").data]
    assert sources == ["tutorial_dataset.msgpack", "tutorial_validation.msgpack"]
