"""The usage example, run as a program: with a model, and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.by_torch import library_kernels
from tests.integration.choices.models import write_model


@pytest.fixture
def run(tmp_path: Path):
    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DIODE_")}
        command = [sys.executable, "-m", "diode.integration.usage_example", "--device", "cpu", *words]
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=clean | caches)

    return ran


def test_with_a_model_all_steps_are_shown(run, tmp_path):
    done = run("--model", str(write_model(tmp_path / "all.safetensors")))
    assert done.returncode == 0, done.stderr
    # Of two library kernels for a linear layer, torch is left to choose on a device that the model does not know.
    falls_back = len(library_kernels("addmm")) > 1
    assert ("fallback_hardware_mismatch" in done.stderr) is falls_back
    assert falls_back or not done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("set up: matmul: registered (by ")
    assert "made-up 1" in lines[0]
    assert [line for line in lines if line.endswith("equal to eager")] == [
        f"{name}: compiled, and equal to eager" for name in ("mm", "addmm", "bmm", "bmm by hand")
    ]
    of_the_process, by_hand = (line for line in lines if line.startswith("statistics: total_calls "))
    assert int(of_the_process.split()[2].rstrip(",")) >= 3
    assert by_hand == "statistics: total_calls 1"


def test_without_a_model_it_says_what_is_missing_and_goes_on(run):
    done = run()
    assert done.returncode == 0, done.stderr
    assert "no model is at hand: install torch-diode, set DIODE_MODEL_PATH, or give model_path" in done.stdout
    assert done.stdout.count("equal to eager") == 4


@pytest.mark.gpu
def test_on_a_gpu_the_model_chooses(tmp_path):
    model = write_model(tmp_path / "all.safetensors", library=5.0)
    command = [sys.executable, "-m", "diode.integration.usage_example", "--model", str(model)]
    used = {**os.environ, "DIODE_ON_MISMATCH": "use", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=used)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model_selections") == 2
