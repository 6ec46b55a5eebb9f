"""The set-up as a program: what it refuses before it builds anything, and when it leaves an environment alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINGERPRINT = "import setup_venv; print(setup_venv.fingerprint())"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the set-up reads, without an environment."""
    for folder in ("scripts", "requirements"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # the interpreter below .venv: the set-up's own when it builds one; and no index, so that nothing can be fetched
    base = str(sys._base_executable)  # type: ignore[attr-defined]
    command = [base, str(project / "scripts" / "setup_venv.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PIP_NO_INDEX": "1", **environment}
    )


def complete(project: Path, torch: str, venv: str = ".venv") -> Path:
    """Makes the project look as a finished set-up leaves it."""
    binaries = project / venv / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    base = str(sys._base_executable)  # type: ignore[attr-defined]
    answer = subprocess.run(
        [base, "-c", FINGERPRINT], capture_output=True, text=True, check=True, cwd=project / "scripts"
    )
    stamp = project / venv / "diode-setup.json"
    stamp.write_text(json.dumps({"fingerprint": answer.stdout.strip(), "asked": "", "torch": torch}))
    return stamp


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--torch", "2.4.0"), {}, "TORCH=2.4.0: diode needs torch 2.10 or later"),
        (("--torch", "nowhere.whl"), {}, "TORCH=nowhere.whl: there is no such file"),
        ((), {"CXX": "no-such-compiler"}, "no C++ compiler no-such-compiler"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_built(
    project: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    answer = run(project, *arguments, **environment)
    assert answer.returncode == 1
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("asked", ["", "2.13.0", "2.13.0+cpu"])
def test_an_environment_that_is_up_to_date_is_left_alone(project: Path, asked: str) -> None:
    complete(project, torch="2.13.0+cpu")
    answer = run(project, "--torch", asked)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_an_environment_in_another_folder_is_told_apart_from_the_usual_one(project: Path) -> None:
    complete(project, torch="2.13.0+cpu", venv=".venv-torch-2.13.0")
    elsewhere = run(project, "--torch", "2.13.0", "--venv", ".venv-torch-2.13.0")
    assert (elsewhere.returncode, elsewhere.stdout, elsewhere.stderr) == (0, "", "")
    usual = run(project, "--torch", "2.13.0", CXX="no-such-compiler")
    assert usual.returncode == 1
    assert not (project / ".venv").exists()


def test_another_torch_is_not_up_to_date(project: Path) -> None:
    stamp = complete(project, torch="2.13.0+cpu")
    answer = run(project, "--torch", "2.4.0")
    assert answer.returncode == 1
    assert stamp.exists()


@pytest.mark.parametrize("changed", ["requirements/constraints.txt", "pyproject.toml", "scripts/torch_choice.py"])
def test_a_change_of_what_it_is_built_from_makes_it_stale(project: Path, changed: str) -> None:
    complete(project, torch="2.13.0+cpu")
    with (project / changed).open("a") as file:
        file.write("# another line\n")
    answer = run(project, CXX="no-such-compiler")
    assert answer.returncode == 1
    assert "no-such-compiler" in answer.stderr


def test_a_build_that_fails_says_what_failed_and_is_not_taken_for_complete(project: Path) -> None:
    nothing = project / "no-wheels"
    nothing.mkdir()
    answer = run(project, PIP_FIND_LINKS=str(nothing))
    assert answer.returncode == 1
    assert "creating .venv with Python" in answer.stdout
    assert "pip install" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (project / ".venv" / "diode-setup.json").exists()
