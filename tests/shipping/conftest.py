"""Both distributions, built once from a copy of the project that has a small model, and installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.choices.models import write_model
from tests.shipping.environments import Installed, packages_without_diode

ROOT = Path(__file__).parents[2]
FILES = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", ".gitignore")
FOLDERS = ("src", "scripts", "trained_models")


@pytest.fixture(scope="session")
def copy_project(tmp_path_factory):
    """A function that copies what distributions are built from, without the models that are there."""

    def copied() -> Path:
        folder = tmp_path_factory.mktemp("project")
        ours = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.json", "MODEL_CARD.md")
        for name in FILES:
            shutil.copy(ROOT / name, folder / name)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=ours)
        return folder

    return copied


@pytest.fixture(scope="session")
def build():
    def built(project: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(project / "scripts" / "build_distributions.py")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return built


@pytest.fixture(scope="session")
def project(copy_project, build) -> Path:
    """With what must not be shipped lying about, too."""
    folder = copy_project()
    models = folder / "trained_models" / "diode_models"
    write_model(models / "small.safetensors")
    subprocess.run([sys.executable, "-m", "diode.cli", "describe-models", str(models)], check=True)
    (models / "notes.txt").write_text("not for everyone\n")
    (models / "small.checkpoint").write_bytes(b"half a training")
    (folder / "src" / "diode" / "__pycache__").mkdir()
    (folder / "src" / "diode" / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def wheels(project) -> Path:
    return project / "dist"


@pytest.fixture(scope="session")
def packages(tmp_path_factory) -> Path:
    return packages_without_diode(tmp_path_factory.mktemp("packages") / "linked")


@pytest.fixture(scope="session")
def with_models(tmp_path_factory, wheels, packages) -> Installed:
    """`pip install torch-diode`, which brings the library."""
    installed = Installed(tmp_path_factory.mktemp("environments") / "models", packages)
    installed.install("torch-diode", wheels=wheels)
    return installed


@pytest.fixture(scope="session")
def library_alone(tmp_path_factory, wheels, packages) -> Installed:
    installed = Installed(tmp_path_factory.mktemp("environments") / "library", packages)
    installed.install("torch-diode-lib", wheels=wheels)
    return installed
