"""What the documents point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from diode.integration.statistics import MEANINGS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    inside = [link.partition("#")[0] for link in links if not link.startswith(("http:", "https:", "#"))]
    assert [link for link in inside if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_that_are_named_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", document.read_text())) | set(
        re.findall(r"^make ([a-z-]+)", document.read_text(), re.MULTILINE)
    )
    assert named <= targets


def test_every_count_of_the_statistics_is_explained() -> None:
    page = (ROOT / "docs" / "compiling.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", page, re.MULTILINE))
    assert {name: rows.get(name) for name in MEANINGS} == dict(MEANINGS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_nothing_is_left_to_be_filled_in(document: Path) -> None:
    assert "@@" not in document.read_text()
