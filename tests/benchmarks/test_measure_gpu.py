"""The script for a borrowed GPU: which programs each part starts, with what words, and which files it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import compile as benchmark

ROOT = Path(__file__).parents[2]
STAND_IN = """#!/usr/bin/env bash
if [[ $1 == -c ]]; then exec "{python}" "$@"; fi
printf '%s\\n' "$DIODE_CACHE" "$(ls -A "$DIODE_CACHE" | tr '\\n' ' ')" "$@" > "$TOLD"
exit "${{CODE:-0}}"
"""
"""In the place of the interpreter: it tells what it was started with."""


@dataclass
class Part:
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def run(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        stand_in = self.folder / "python"
        stand_in.write_text(STAND_IN.format(python=sys.executable))
        stand_in.chmod(0o755)
        plain = {name: value for name, value in os.environ.items() if name not in ("DIODE_CACHE", "OPS", "ANY_OP")}
        told = {"PYTHON": str(stand_in), "TOLD": str(self.folder / "told"), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            ["bash", "benchmarks/measure_gpu.sh", *map(str, words)],
            cwd=ROOT,
            env=plain | told | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def started(self, part: str, *words: object, **environment: str) -> list[str]:
        """What the part's program was started with, behind the folder of kernels and what is in it."""
        done = self.run(part, self.out, *words, **environment)
        assert done.returncode == 0, done.stderr
        return (self.folder / "told").read_text().splitlines()


@pytest.fixture
def part(tmp_path: Path) -> Part:
    return Part(tmp_path)


def test_training_begins_with_no_kernel_and_leaves_no_cache(part: Part) -> None:
    cache, kernels, program, *words = part.started("training", DIODE_CACHE=str(part.folder), OPS="mm,bmm")
    assert (kernels, program) == ("", "benchmarks/collection.py")
    assert cache != str(part.folder)
    assert not Path(cache).exists()
    assert words[words.index("--ops") + 1] == "mm,bmm"
    assert part.folder.exists()


def test_a_sweep_goes_on_where_training_ended_under_a_name_of_its_own(part: Part) -> None:
    words = part.started("sweep", OPS="mm")
    assert words[words.index("--output") + 1] == str(part.out / "h200_train_sweep.parquet")
    assert words[words.index("--ops") + 1] == "mm"
    assert "--without" not in words
    (part.out / "h200_train.parquet").touch()
    words = part.started("sweep")
    assert words[words.index("--without") + 1] == str(part.out / "h200_train.parquet")


def test_kernels_are_unpacked_without_a_program_for_it_beside_what_is_there(part: Part) -> None:
    (part.folder / "kernels").mkdir()
    (part.folder / "kernels" / "a.kernel").touch()
    archive = part.folder / "kernels.tar.xz"
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(part.folder / "kernels", "kernels")
    cache, there, *_ = part.started("sweep", archive)
    assert (Path(cache).parent, there.strip()) == (part.folder, "kernels")
    assert (Path(cache) / "kernels" / "a.kernel").exists()
    own = part.folder / "own"
    assert part.started("truth", archive, DIODE_CACHE=str(own))[0] == str(own)
    assert (own / "kernels" / "a.kernel").exists()


def test_what_was_begun_is_gone_on_with(part: Part) -> None:
    for name, output in (("compile", "compile_h200.json"), ("exhaustive", "compile_h200.json")):
        (part.out / output).unlink(missing_ok=True)
        _, _, _, *words = part.started(name)
        assert not benchmark.parsed(words).resume
        (part.out / output).touch()
        _, _, _, *words = part.started(name, ANY_OP="1", OPS="mm")
        found = benchmark.parsed(words)
        assert (found.resume, found.any_op, found.ops) == (True, True, "mm")
        assert found.parts == {"compile": ["problems", "models"], "exhaustive": ["exhaustive"]}[name]
        assert found.seconds < 540
    assert "--resume" not in part.started("checks")
    (part.out / "gpu_tests_h200.json").touch()
    assert "--resume" in part.started("checks")


def test_a_collection_that_is_complete_is_left_alone(part: Part) -> None:
    part.out.mkdir()
    (part.out / "h200_test.parquet").touch()
    assert "h200_test.parquet is complete" in part.run("truth", part.out).stdout
    assert not (part.folder / "told").exists()
    (part.out / "h200_test.parquet.journal").touch()
    assert "--confirm" in part.started("truth")


def test_a_part_that_nobody_knows_is_refused_and_one_that_fails_is_told(part: Part) -> None:
    refused = part.run("everything", part.out)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("Usage: measure_gpu.sh PART OUT")
    assert not part.out.exists()
    for name in ("timing", "checks"):
        assert part.run(name, part.out, CODE="3").returncode != 0
