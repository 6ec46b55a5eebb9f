"""CSV as rows of named cells: the first line names the columns, in any order; one left out is empty throughout."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from diode.storage.atomic import replacing
from diode.storage.flaws import Flaw


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(rows)
        text.flush()
        text.detach()


def table_rows(data: bytes, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """For each row the line that it ends on, as errors name it, and its cell of every column."""
    if not data.endswith(b"\n"):
        raise Flaw("", "does not end with a line break: the file was cut, or is no table")
    try:
        # Spreadsheets put a byte order mark in front.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Flaw("", f"text that is not UTF-8: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    empty = dict.fromkeys(columns, "")
    try:
        names = next(reader)
        _check_names(names, columns)
        for row in reader:
            if not row:
                continue
            place = f"line {reader.line_num}"
            if len(row) != len(names):
                raise Flaw(place, f"has {len(row)} cells, not the {len(names)} that line 1 names")
            yield place, {**empty, **dict(zip(names, row, strict=True))}
    except csv.Error as error:
        raise Flaw(f"line {reader.line_num}", f"is no CSV: {error}") from error


def _check_names(names: Sequence[str], columns: Sequence[str]) -> None:
    if not names:
        raise Flaw("line 1", "names no columns")
    for name in names:
        if name not in columns:
            raise Flaw(f"line 1, column {name!r}", "is unknown")
        if names.count(name) > 1:
            raise Flaw(f"line 1, column {name!r}", "stands there twice")
