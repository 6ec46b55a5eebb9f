"""What other packages announce is found and used; what is broken in one is told, and keeps no other from being used."""

from __future__ import annotations

import logging
import sys
from importlib import invalidate_caches
from pathlib import Path

import pytest
from tests.integration.choices.models import write_model

import diode
from diode.integration import autoload

INTEGRATION = """
from diode.integration import BaseIntegration

class Theirs(BaseIntegration):
    name = "{name}"
    needs_model = False
    engaged = []

    def probe(self):
        return "nothing"

    def find_models(self):
        return []

    def engage(self, models):
        self.engaged.append(self.name)

    def disengage(self):
        self.engaged.clear()

    def why_no_model(self):
        return "it needs none"
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package as pip leaves it: its module, and what it announces."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def installed(name: str, group: str, announced: str, module: str = "") -> Path:
        monkeypatch.delitem(sys.modules, name, raising=False)
        invalidate_caches()
        (site / f"{name}.py").write_text(module)
        described = site / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text(f"[{group}]\n{announced}\n")
        return site

    return installed


def models_of(folder: Path, name: str, **described) -> str:
    """The source of a package of models, with one in it."""
    folder = folder / name
    folder.mkdir()
    write_model(folder / "model.safetensors", name=name, **described)
    return f"FOLDER = {str(folder)!r}\n"


def test_an_integration_of_a_package_is_run_after_diode_s_own(install, model):
    install("theirs", "diode.integrations", "theirs = theirs:Theirs", INTEGRATION.format(name="theirs"))
    status = diode.enable()
    assert list(status) == ["matmul", "theirs"]
    assert status["matmul"]
    assert status["theirs"]
    assert diode.disable()["theirs"].state == "off"


@pytest.mark.parametrize(
    ("announced", "module", "message"),
    [
        ("broken = nowhere_to_be_found:Theirs", "", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("broken = broken:Theirs", "raise RuntimeError('not today')", "RuntimeError: not today"),
        ("broken = broken:missing", "", "AttributeError: module 'broken' has no attribute 'missing'"),
        ("broken = broken:make", "def make(): return 42", "42 is no integration: derive it from BaseIntegration"),
        (
            "broken = broken:Theirs",
            INTEGRATION.format(name="matmul"),
            "calls itself 'matmul', and its entry point 'broken': both must be the same",
        ),
    ],
)
def test_a_broken_one_is_told_and_the_others_go_on(announced, module, message, install, model):
    install("broken", "diode.integrations", announced, module)
    install("theirs", "diode.integrations", "theirs = theirs:Theirs", INTEGRATION.format(name="theirs"))
    status = diode.enable()
    assert status["broken"].state == "failed"
    assert message in status["broken"].message
    assert status["matmul"].path
    assert status["theirs"]
    assert diode.enable() == status


def test_one_that_takes_another_s_name_is_told_and_not_used(install, model):
    install("greedy", "diode.integrations", "matmul = greedy:Theirs", INTEGRATION.format(name="matmul"))
    status = diode.enable()
    assert status["matmul"].models == ("made-up 1",)
    assert status["matmul (greedy)"].state == "failed"
    assert "there is another integration of the name 'matmul'" in status["matmul (greedy)"].message
    assert diode.enable() == status


def test_models_of_packages_are_found(install, tmp_path):
    install("first", "diode.models", "first = first:FOLDER", models_of(tmp_path, "first"))
    second = models_of(tmp_path, "second", version="2") + "def folder():\n    return FOLDER\n"
    install("second", "diode.models", "second = second:folder", second)
    assert set(diode.enable()["matmul"].models) == {"first 1", "second 2"}


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("FOLDER = '/nowhere/to/be/found'", "/nowhere/to/be/found: no such file or folder"),
        ("FOLDER = 42", "TypeError"),
    ],
)
def test_a_broken_package_of_models_is_told_and_the_others_are_used(module, message, install, tmp_path, caplog):
    install("broken", "diode.models", "broken = broken:FOLDER", module)
    install("sound", "diode.models", "sound = sound:FOLDER", models_of(tmp_path, "sound"))
    with caplog.at_level(logging.WARNING, logger="diode"):
        autoload.integrate_quietly()
    status = diode.get_integration_status()["matmul"]
    assert status.models == ("sound 1",)
    assert [message in problem for problem in status.problems] == [True]
    assert message in str(status)
    (warned,) = caplog.records
    assert message in warned.getMessage()
    assert warned.exc_info is None


def test_a_damaged_model_is_told_and_the_others_are_used(model):
    write_model(model.parent / "damaged.safetensors").with_suffix(".json").write_text("{")
    status = diode.enable()["matmul"]
    assert status.models == ("made-up 1",)
    assert len(status.problems) == 1
    assert "damaged.json" in status.problems[0]
