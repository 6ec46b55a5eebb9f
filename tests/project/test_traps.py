"""The page of traps names tests that are there, one at least for each trap."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "traps.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| trap |")]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_that_is_named_exists(file: str) -> None:
    tree = ast.parse((TESTS / file).read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {name for of, name in NAMED if of == file} <= defined


def test_every_trap_has_an_answer_and_a_test() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        trap, answer, tests = (cell.strip() for cell in row.strip("|").split("|"))
        assert trap
        assert answer
        assert re.fullmatch(r"(`[\w/]+\.py::test_\w+`(, )?)+", tests), row


def test_every_test_of_a_trap_is_on_the_page() -> None:
    written = {
        (path.relative_to(TESTS).as_posix(), node.name)
        for path in (TESTS / "integration" / "traps").glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert sorted(written - set(NAMED)) == []
