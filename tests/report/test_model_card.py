"""The model card of a package of models: what it says of the model, of how good it is, and of where it is weak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.choices.models import write_model

from diode.model import ModelRegistry
from diode.model.card import TrainingData

DATA = (TrainingData("h200_train.parquet", "ab" * 32, 123456, 789),)


def figures(efficiency: float, p95: float = 0.02, **more: Any) -> dict[str, Any]:
    by_k = {"1": efficiency, "3": efficiency + 0.5, "8": efficiency + 0.75}
    regret = {"1": 2 * p95, "3": p95, "8": p95 / 2}
    return {"efficiency": by_k, "regret_p95": regret, "regret_worst": regret, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    models.mkdir()
    write_model(models / "small.safetensors", data=DATA, torch=("2.13.0",), triton=("3.9.0",), commit="0123abc")
    return models


@pytest.fixture
def result(folder: Path) -> dict[str, Any]:
    """As benchmarks/ranking.py writes it; it says more than is read."""
    registry = ModelRegistry()
    registry.add(folder)
    worst = {
        "problem": "mm 8192x16x512",
        "regime": "skinny",
        "chosen": "triton::mm 64x64x64",
        "chosen_us": 15.0,
        "oracle": "aten::mm",
        "oracle_us": 10.0,
        "oracle_place": 7,
    }
    return {
        "gpu": "NVIDIA H200",
        "torch": "2.13.0",
        "triton": "3.9.0",
        "commit": "4567def",
        "taken": "2026-11-19",
        "command": "python benchmarks/ranking.py",
        "seed": 42,
        "model": {"name": "made-up 1", "type": "base", "sha256": registry.pointers[0].card.weights_sha256},
        "test_problems": 150,
        "choices": 240000,
        "noise_floor": {"p50": 0.001, "p95": 0.031, "problems": 150},
        **figures(97.0),
        "by_regime": {"large": figures(98.5, 0.01, problems=50), "skinny": figures(91.25, 0.09, problems=20)},
        "baselines": {"Inductor DEFAULT": figures(80.0), "gbdt": figures(97.5), "oracle": figures(100.0)},
        "worst": [worst],
    }


def describe(folder: Path, *results: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    words: list[str] = []
    for number, result in enumerate(results):
        path = folder.parent / f"ranking_{number}.json"
        path.write_bytes(msgspec.json.encode(result))
        words += ["--ranking", str(path)]
    command = [sys.executable, "-m", "diode.cli", "describe-models", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def card_of(folder: Path, *results: dict[str, Any]) -> str:
    done = describe(folder, *results)
    assert done.returncode == 0, done.stderr
    return (folder / "MODEL_CARD.md").read_text()


def section(page: str, title: str) -> list[str]:
    return page.partition(f"### {title}\n")[2].partition("\n#")[0].strip().splitlines()


def test_it_says_what_the_model_is_and_what_it_was_trained_on(folder: Path) -> None:
    page = card_of(folder)
    assert "## made-up 1" in page
    trained = section(page, "Trained on")
    assert "- NVIDIA H200, capability 9.0, 132 SMs" in trained
    assert {"- torch 2.13.0", "- triton 3.9.0", "- commit 0123abc"} <= set(trained)
    assert "| `h200_train.parquet` | 789 | 123 456 | `abababababab` |" in trained


def test_it_says_how_good_the_model_is_by_regime_and_beside_baselines(folder: Path, result: dict[str, Any]) -> None:
    lines = section(card_of(folder, result), "How good")
    assert "150 problems" in lines[0]
    assert "NVIDIA H200, torch 2.13.0, triton 3.9.0, commit 4567def, 2026-11-19" in lines[0]
    assert "| skinny | 20 | 91.25% | 91.75% | 92.00% | 18.0% | 9.00% | 9.00% |  |" in lines
    assert "| all | 150 | 97.00% | 97.50% | 97.75% | 4.00% | 2.00% | 2.00% | 3.10% |" in lines
    assert "| Inductor DEFAULT | 80.00% | 80.50% | 80.75% |" in lines


def test_it_says_where_the_model_is_weak(folder: Path, result: dict[str, Any]) -> None:
    lines = section(card_of(folder, result), "Known weak spots")
    assert lines[0].startswith("- skinny: 91.25% with one choice, 91.75% with three")
    assert lines[1] == "- gbdt is better with one choice: 97.50%"
    assert not [line for line in lines if "large:" in line or "oracle is" in line]
    assert "| `mm 8192x16x512` | skinny | `triton::mm 64x64x64` | 15 µs | `aten::mm` | 10 µs |" in lines


def test_a_model_that_was_not_judged_is_said_not_to_be(folder: Path, result: dict[str, Any]) -> None:
    write_model(folder / "unjudged.safetensors", library=3.0, name="unjudged")
    page = card_of(folder, result)
    judged, unjudged = page.split("## unjudged 1")
    assert "Not judged yet" in unjudged
    assert "Not judged yet" not in judged


def test_the_manifest_is_written_with_it(folder: Path) -> None:
    card_of(folder)
    registry = ModelRegistry()
    registry.add(folder)
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    assert [(entry["file"], entry["weights_sha256"]) for entry in manifest["models"]] == [
        ("small.safetensors", registry.pointers[0].card.weights_sha256)
    ]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"model": {"name": "other 2", "sha256": "0" * 64}}, "judges other 2 with the weights 000000000000, and no"),
        ({"efficiency": {"1": 99.0}}, "not all figures are given for 1, 3, 8 choices"),
        ({"test_problems": 0}, "test_problems"),
    ],
)
def test_figures_that_cannot_be_the_model_s_are_refused(
    damage: dict[str, Any], message: str, folder: Path, result: dict[str, Any]
) -> None:
    done = describe(folder, result | damage)
    assert done.returncode == 1
    assert message in done.stderr
    assert "ranking_0.json" in done.stderr
    assert {path.name for path in folder.iterdir()} == {"small.json", "small.safetensors"}


@pytest.mark.parametrize(
    ("what", "message"),
    [("nowhere", "no such folder"), ("empty", "holds no model"), ("damaged", "is not the file that")],
)
def test_what_is_no_folder_of_models_is_refused(what: str, message: str, folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    if what == "damaged":
        (folder / "small.safetensors").write_bytes(b"{}")
    place = folder if what == "damaged" else folder.parent / what
    done = describe(place)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (place / "manifest.json").exists()
