"""What `make dist` builds: two distributions of one version that hold what they should and nothing else."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.integration.choices.models import write_model

import diode
from diode.model import ModelRegistry

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "trained_models" / "diode_models"
PACKAGE_OF_MODELS = {"__init__.py", "py.typed", "manifest.json", "MODEL_CARD.md", "small.json", "small.safetensors"}


def files_of(archive: Path) -> set[str]:
    if archive.suffix == ".whl":
        return set(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def metadata_of(wheel: Path):
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        return Parser().parsestr(opened.read(name).decode())


def described(wheel: Path, *more: str) -> set[str]:
    folder = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    return {f"{folder}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE", *more)}


@pytest.fixture
def library_wheel(wheels):
    return next(wheels.glob("torch_diode_lib-*.whl"))


@pytest.fixture
def models_wheel(wheels):
    return next(wheels.glob("torch_diode-*.whl"))


def test_two_wheels_and_two_sdists_are_built_and_nothing_else(wheels):
    version = diode.__version__
    assert {built.name for built in wheels.iterdir()} == {
        f"torch_diode_lib-{version}-py3-none-any.whl",
        f"torch_diode_lib-{version}.tar.gz",
        f"torch_diode-{version}-py3-none-any.whl",
        f"torch_diode-{version}.tar.gz",
    }


def test_the_library_s_wheel_holds_the_package_and_nothing_else(library_wheel):
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/diode"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    package = {name.removeprefix("src/") for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    assert "diode/py.typed" in package
    assert files_of(library_wheel) == package | described(library_wheel, "entry_points.txt")


def test_the_models_wheel_holds_models_and_nothing_else(models_wheel):
    package = {f"diode_models/{name}" for name in PACKAGE_OF_MODELS}
    assert files_of(models_wheel) == package | described(models_wheel, "entry_points.txt")


def test_the_sdists_hold_what_the_wheels_are_built_from(wheels):
    common = {"LICENSE", "README.md", "PKG-INFO", "pyproject.toml", ".gitignore"}
    library = files_of(next(wheels.glob("torch_diode_lib-*.tar.gz")))
    assert {name for name in library if not name.startswith("src/diode/")} == common | {"CHANGELOG.md"}
    package = {f"diode_models/{name}" for name in PACKAGE_OF_MODELS}
    assert files_of(next(wheels.glob("torch_diode-*.tar.gz"))) == common | {"matching_library.py"} | package


def test_the_version_is_written_in_one_place(copy_project, build):
    """Both distributions follow it, and what the models need follows it too."""
    project = copy_project()
    door = project / "src" / "diode" / "__init__.py"
    door.write_text(door.read_text().replace(f'"{diode.__version__}"', '"7.8.9"'))
    models = project / "trained_models" / "diode_models"
    write_model(models / "small.safetensors")
    registry = ModelRegistry()
    registry.add(models)
    registry.write_manifest(models)
    (models / "MODEL_CARD.md").write_text(f"`{registry.pointers[0].card.weights_sha256}`\n")
    done = build(project)
    assert done.returncode == 0, done.stderr
    found = {metadata["Name"]: metadata for metadata in map(metadata_of, (project / "dist").glob("*.whl"))}
    assert {name: metadata["Version"] for name, metadata in found.items()} == {
        "torch-diode": "7.8.9",
        "torch-diode-lib": "7.8.9",
    }
    (needed,) = map(Requirement, found["torch-diode"].get_all("Requires-Dist"))
    assert needed.name == "torch-diode-lib"
    assert [needed.specifier.contains(v) for v in ("7.8.8", "7.8.9", "7.8.10", "7.9.0")] == [False, True, True, False]


def test_the_version_of_this_tree_is_a_release_s(library_wheel):
    assert metadata_of(library_wheel)["Version"] == str(Version(diode.__version__))


def test_what_lies_in_the_package_of_models_is_what_its_manifest_lists():
    registry = ModelRegistry()
    registry.add(MODELS)
    assert registry.problems == {}
    expected = registry.manifest(MODELS) if registry.pointers else None
    manifest = MODELS / "manifest.json"
    assert (manifest.read_bytes() if manifest.exists() else None) == expected


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no model", "holds no model to ship"),
        ("no manifest", "manifest.json: does not list the models that are there; run: diode describe-models"),
        ("a model more", "manifest.json: does not list the models that are there"),
        ("no model card", "MODEL_CARD.md: does not describe the models that are there"),
        ("damaged", "small.safetensors: is not the file that small.json describes"),
    ],
)
def test_a_package_that_says_something_else_than_it_holds_is_not_built(what, message, copy_project, build):
    project = copy_project()
    models = project / "trained_models" / "diode_models"
    if what != "no model":
        path = write_model(models / "small.safetensors")
        registry = ModelRegistry()
        registry.add(models)
        if what != "no manifest":
            registry.write_manifest(models)
        if what != "no model card":
            (models / "MODEL_CARD.md").write_text(f"`{registry.pointers[0].card.weights_sha256}`\n")
        if what == "a model more":
            write_model(models / "another.safetensors", library=2.0)
        if what == "damaged":
            path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    done = build(project)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "dist").exists()
