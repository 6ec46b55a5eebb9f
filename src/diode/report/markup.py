"""Pieces of HTML. Text that comes in is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from diode.report.pictures import Picture


class Column(NamedTuple):
    title: str
    kind: str = "number"
    """`number`, `text`, `prose` for text that may break, or `code` for what is spelled as a machine wants it."""


@dataclass(frozen=True)
class Group:
    """Rows of a table below a heading of their own."""

    title: str
    rows: Sequence[Sequence[str]]


def table(caption: str, columns: Sequence[Column], groups: Sequence[Group], emphasised: str = "") -> str:
    """Scrolls inside its box. The first cell names its row; the row that `emphasised` names stands out."""
    head = "".join(f'<th scope="col" class="{kind}">{escape(title)}</th>' for title, kind in columns)
    body = "".join(_group(group, columns, emphasised) for group in groups)
    label = escape(caption, quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>{body}</table></div>\n"
    )


def rows(*lines: Sequence[str]) -> list[Group]:
    return [Group("", lines)]


def section(name: str, title: str, *parts: str) -> str:
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>\n{"".join(parts)}</section>\n'


def beside(left: str, right: str) -> str:
    """Two columns where there is room, one below the other where there is not."""
    return f'<div class="beside"><div>{left}</div><div>{right}</div></div>\n'


def chart(picture: Picture) -> str:
    caption = f"<figcaption><b>{escape(picture.title)}.</b> {escape(picture.description)}</figcaption>"
    return f'<figure class="chart" id="{picture.name}">{picture.inline()}{caption}</figure>\n'


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>\n' if kind else f"<p>{escape(text)}</p>\n"


def note(text: str) -> str:
    return f'<p class="note" role="note">{escape(text)}</p>\n'


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Figure, what it is, and one line more."""
    cells = "".join(
        f'<div class="tile"><dt>{escape(name)}</dt><dd><b>{escape(figure)}</b> <span>{escape(more)}</span></dd></div>'
        for figure, name, more in entries
    )
    return f'<dl class="tiles">{cells}</dl>\n'


def facts(entries: Iterable[tuple[str, str]]) -> str:
    """Names and what they stand for; those that stand for nothing are left out."""
    lines = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in entries if value)
    return f'<dl class="facts">{lines}</dl>\n'


def folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{content}</details>\n"


def _group(group: Group, columns: Sequence[Column], emphasised: str) -> str:
    lines = []
    if group.title:
        lines.append(f'<tr class="group"><th scope="rowgroup" colspan="{len(columns)}">{escape(group.title)}</th></tr>')
    for cells in group.rows:
        first, *others = zip(cells, columns, strict=True)
        kind = ' class="emphasised"' if cells[0] == emphasised else ""
        line = f'<th scope="row" class="{first[1].kind}">{escape(first[0])}</th>' + "".join(
            f'<td class="{column.kind}">{escape(cell)}</td>' for cell, column in others
        )
        lines.append(f"<tr{kind}>{line}</tr>")
    return f"<tbody>{''.join(lines)}</tbody>"
