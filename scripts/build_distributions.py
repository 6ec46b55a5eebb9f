"""Builds both distributions, torch-diode-lib and torch-diode, each as sdist and wheel.

A wheel is built from its sdist, so that what is published can be built again from what is published.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from diode.errors import DiodeError, FileAccessError, FileFormatError
from diode.model.registry import MANIFEST_NAME, ModelRegistry
from diode.report.model_card import MODEL_CARD_NAME, described_digests

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (ROOT, ROOT / "trained_models")
MODELS = ROOT / "trained_models" / "diode_models"
AGAIN = f"run: diode describe-models {MODELS.relative_to(ROOT)}"


def check_models() -> None:
    """Refuses to build a package of models that says something else than it holds."""
    registry = ModelRegistry()
    registry.add(MODELS)
    if registry.problems:
        raise FileFormatError("; ".join(registry.problems.values()))
    if not registry.pointers:
        raise FileAccessError(f"{MODELS}: holds no model to ship; diode train writes one")
    manifest = MODELS / MANIFEST_NAME
    if not manifest.exists() or manifest.read_bytes() != registry.manifest(MODELS):
        raise FileFormatError(f"{manifest}: does not list the models that are there; {AGAIN}")
    card = MODELS / MODEL_CARD_NAME
    if described_digests(card) != {pointer.card.weights_sha256 for pointer in registry.pointers}:
        raise FileFormatError(f"{card}: does not describe the models that are there; {AGAIN} --ranking RESULT")
    for pointer in registry.pointers:
        _ = pointer.load().model


def hatchling(project: Path, target: str, folder: Path) -> Path:
    """The one file that is built of a project, into a folder that has no other."""
    folder.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FileFormatError(f"{project}: no {target} can be built of it: {done.stderr.strip()}")
    (built,) = folder.iterdir()
    return built


def build(project: Path, folder: Path) -> list[Path]:
    folder.mkdir()
    sdist = hatchling(project, "sdist", folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return [sdist, hatchling(folder / sdist.name.removesuffix(".tar.gz"), "wheel", folder / "wheel")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    folder: Path = parser.parse_args().output.resolve()
    try:
        check_models()
        with tempfile.TemporaryDirectory() as place:
            built = [
                file for number, project in enumerate(PROJECTS) for file in build(project, Path(place, str(number)))
            ]
            folder.mkdir(parents=True, exist_ok=True)
            for file in built:
                shutil.move(file, folder / file.name)
                print(f"{folder / file.name}: {(folder / file.name).stat().st_size / 1e6:.2f} MB", flush=True)
    except DiodeError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
