"""docs/extending.md: the packages that it describes are built from its own text, installed, and do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tests.integration.choices.models import write_model
from tests.shipping.environments import Installed

import diode
from diode.cli.app import app
from diode.testing import ArtifactConformance, IntegrationConformance

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
MODELS, INTEGRATION = PAGE.split("\n## ")[1:]
STATUS = """
import json, diode
status = {name: [found.state, found.models] for name, found in diode.enable().items()}
from torch._inductor.select_algorithm import get_algorithm_selector_cache
engaged = len(get_algorithm_selector_cache().feedback_saver_fns)
diode.disable()
print(json.dumps([status, engaged, len(get_algorithm_selector_cache().feedback_saver_fns)]))
"""


def written_from(chapter: str, folder: Path) -> Path:
    """The files of a chapter: each follows a line with its name."""
    for name, content in re.findall(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    models = written_from(MODELS, tmp_path_factory.mktemp("b200"))
    write_model(models / "diode_models_b200" / "b200.safetensors", name="b200-matmul")
    return models, written_from(INTEGRATION, tmp_path_factory.mktemp("tally"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory, sources, wheels, packages) -> Installed:
    """Both packages, built as they are written and installed beside the library."""
    others = tmp_path_factory.mktemp("wheels")
    for source in sources:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(others)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
    for wheel in wheels.glob("torch_diode_lib-*.whl"):
        (others / wheel.name).symlink_to(wheel)
    installed = Installed(tmp_path_factory.mktemp("environments") / "extended", packages)
    installed.install("torch-diode-b200", "diode-tally", wheels=others)
    return installed


def test_models_and_integration_of_other_packages_are_engaged_and_undone(environment):
    status, engaged, undone = environment.answer(STATUS)
    assert status == {"matmul": ["registered", ["b200-matmul 1"]], "tally": ["registered", []]}
    assert (engaged, undone) == (1, 0)


def test_their_checks_pass(environment, sources):
    words = ["-q", "-p", "no:cacheprovider", *(str(source / "tests") for source in sources)]
    done = environment.run(f"import sys, pytest; sys.exit(pytest.main({words!r}))")
    checks = len(ArtifactConformance.checks()) + len(IntegrationConformance.checks())
    assert f"\n{checks} passed" in done.stdout, done.stdout


def test_the_page_names_this_version():
    assert set(re.findall(r"torch-diode-lib~=([\d.]+)", PAGE)) == {diode.__version__}


def test_the_commands_and_flags_that_the_page_names_exist():
    commands = typer.main.get_command(app).commands
    lines = re.findall(r"^diode (?:--seed \d+ )?([a-z-]+) (.*)", PAGE, re.MULTILINE)
    assert {name for name, _ in lines} >= {"collect", "train", "describe-models"}
    for name, words in lines:
        known = {flag for parameter in commands[name].params for flag in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= known
