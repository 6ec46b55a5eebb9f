"""requirements/constraints.txt pins all that the project asks for, on each Python that it supports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
CHOSEN_FOR_THE_MACHINE = {"torch"}


def wanted() -> list[Requirement]:
    """The requirements of pyproject.toml; Python 3.10 has no TOML reader, and its lists of strings are Python's."""
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(
        r"^(?:requires|dependencies|gpu|gbdt|report|tensorboard|baselines|dev) = (\[.*?\])$",
        text,
        re.MULTILINE | re.DOTALL,
    )
    assert len(lists) == 8
    return [Requirement(line) for found in lists for line in ast.literal_eval(found)]


def pins(python: str) -> list[Requirement]:
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    read = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [pin for pin in read if pin.marker is None or pin.marker.evaluate({"python_version": python})]


@pytest.mark.parametrize("python", PYTHONS)
def test_each_package_has_one_exact_version(python: str) -> None:
    names = [canonicalize_name(pin.name) for pin in pins(python)]
    assert len(names) == len(set(names))
    assert [str(pin) for pin in pins(python) if not re.fullmatch(r"==[\w.]+", str(pin.specifier))] == []


@pytest.mark.parametrize("python", PYTHONS)
def test_what_the_project_asks_for_is_pinned_within_its_bounds(python: str) -> None:
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins(python)}
    for requirement in wanted():
        if requirement.name not in CHOSEN_FOR_THE_MACHINE:
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement
