"""docs/architecture.md is true: the rooms it says stand do, and import only what it says they may."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "diode"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
OPEN_TO_ALL = {"errors", "settings"}
ROOMS = {
    name: (stands == "yes", may_import)
    for name, stands, may_import in re.findall(r"^\| `(\w+)` \| (yes|next) \|.*\| ([^|]*) \|$", PAGE, re.MULTILINE)
}
STANDING = [name for name, (stands, _) in ROOMS.items() if stands]


def imported_modules(source: Path, *, for_annotations: bool = True) -> set[str]:
    """Every module that a file imports, also inside functions; `from a import b` counts as a.b."""
    tree = ast.parse(source.read_text())
    if not for_annotations:
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node))]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} imports relatively"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_the_rooms_that_stand_are_the_packages_of_the_code() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert packages == set(STANDING)


@pytest.mark.parametrize("room", STANDING)
def test_a_room_imports_only_what_the_page_allows(room: str) -> None:
    allowed = set(re.findall(r"`(\w+)`", ROOMS[room][1])) | OPEN_TO_ALL | {room}
    if ROOMS[room][1] == "all":
        allowed |= set(ROOMS)
    for source in (PACKAGE / room).rglob("*.py"):
        rooms = {name.split(".")[1] for name in imported_modules(source) if name.startswith("diode.")}
        # `from diode import __version__` is the door's, not a room's
        assert rooms - {"__version__"} <= allowed, source


def test_only_integration_imports_inductor() -> None:
    for source in PACKAGE.rglob("*.py"):
        if source.relative_to(PACKAGE).parts[0] != "integration":
            names = imported_modules(source, for_annotations=False)
            assert not [name for name in names if name.startswith("torch._inductor")], source


def test_the_diagram_draws_the_rooms_of_the_table() -> None:
    diagram = PAGE.split("```mermaid")[1].split("```")[0]
    arrows = re.findall(r"^ +(\w+) (-->|-\.->) (\w+)$", diagram, re.MULTILINE)
    assert {name for source, _, target in arrows for name in (source, target)} == set(ROOMS)
    solid = {name for source, kind, target in arrows if kind == "-->" for name in (source, target)}
    assert solid == set(STANDING)
    for source, _, target in arrows:
        assert ROOMS[source][1] == "all" or f"`{target}`" in ROOMS[source][1], f"{source} --> {target}"
