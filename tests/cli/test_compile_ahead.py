"""`diode compile-ahead`: kernels for a GPU that is elsewhere, on a machine without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from diode.collection.kernels.store import read_kernel
from diode.storage import write_dataset
from diode.storage.shapesets import write_shapeset
from diode.types import AtenChoice, Dataset, Environment, Hardware, Measurement, MMShape, Timing, TimingMethod

TINY = MMShape.of("mm", 32, 24, 40, dtype="float16", layout="NT")


def compile_ahead(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    write_shapeset([TINY], folder / "shapes.json")
    command = [sys.executable, "-m", "diode.cli", "compile-ahead", "--shapeset", "shapes.json", *words]
    environment = {**os.environ, "DIODE_CACHE": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_what_a_collection_would_compile_lies_in_the_cache(tmp_path: Path) -> None:
    done = compile_ahead(tmp_path, "--choices", "3", "--processes", "1")
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr
    kernels = list((tmp_path / "cache" / "kernels").rglob("*.kernel"))
    assert f"1/1 problems, {len(kernels)}/{len(kernels)} kernels" in done.stdout
    assert len(kernels) == 3
    assert all(read_kernel(path).binary.startswith(b"\x7fELF") for path in kernels)


@pytest.mark.parametrize(
    ("hardware", "told"),
    [
        ("b9000", "--hardware b9000: is neither h200 nor the file of a data set"),
        ("cpu.json", "--hardware cpu.json: was measured on 0 kinds of GPU; name a data set of one"),
    ],
)
def test_a_gpu_that_nobody_knows_is_refused(tmp_path: Path, hardware: str, told: str) -> None:
    cpu = Environment(Hardware("cpu", "cpu"))
    measured = Measurement(TINY, AtenChoice("mm"), cpu, TimingMethod("diode-sweep", "median"), Timing(3.0))
    write_dataset(Dataset.of([measured]), tmp_path / "cpu.json")
    done = compile_ahead(tmp_path, "--hardware", hardware)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {told}\n")
    assert not (tmp_path / "cache").exists()
