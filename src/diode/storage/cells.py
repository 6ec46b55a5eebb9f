"""Records as named cells of text, for tables that people look into and edit.

Text stands as it is, or as a JSON string where it starts with a quotation mark or holds what a table cannot; everything
else is JSON: `12`, `0.5`, `true`, `[512,1]`. An empty cell says what a missing field says elsewhere: the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.inspect import BoolType, LiteralType, NoneType, StrType, UnionType, type_info

from diode.errors import InvalidRecordError
from diode.storage.duplicate_keys import refuse_duplicate_keys
from diode.storage.flaws import Flaw, decoded

Record = TypeVar("Record", bound=msgspec.Struct)
Cells = Mapping[str, str]

LONGEST_CELL: Final = 2**17 - 1
"""More than this the csv module refuses to read."""


class RecordCells(Generic[Record]):
    """Where the fields of one kind of record stand: in a column of the field's name unless `columns` names another.

    A field of `nested` is a record with columns of its own; a `derived` column is read only to find contradictions.
    """

    def __init__(
        self,
        record_type: type[Record],
        *,
        columns: Mapping[str, str] | None = None,
        nested: Mapping[str, RecordCells[Any]] | None = None,
        derived: Mapping[str, Callable[[Record], str]] | None = None,
    ) -> None:
        self.record_type = record_type
        self._names = columns or {}
        self._nested = nested or {}
        self._derived = derived or {}
        self._fields = msgspec.structs.fields(record_type)
        self._decoders = {field.name: _decoder(field.type) for field in self._fields}
        own = [column for field in self._fields for column in self._columns_of(field.name)]
        self.columns: tuple[str, ...] = (*own, *self._derived)

    def cells(self, record: Record) -> list[str]:
        cells: list[str] = []
        for field in self._fields:
            value, inner = getattr(record, field.name), self._nested.get(field.name)
            if inner is None:
                cells.append(_cell(value, field.default, self._columns_of(field.name)[0]))
            else:
                cells += [""] * len(inner.columns) if value is None else inner.cells(value)
        return [*cells, *(derive(record) for derive in self._derived.values())]

    def record(self, cells: Cells, place: str) -> Record:
        values: dict[str, Any] = {}
        for field in self._fields:
            columns, inner = self._columns_of(field.name), self._nested.get(field.name)
            if inner is not None and (field.required or any(map(cells.get, columns))):
                values[field.name] = inner.record(cells, place)
            elif inner is None and (text := cells.get(columns[0])):
                values[field.name] = self._decoders[field.name](text, at_column(place, columns[0]))
            elif field.required:
                raise Flaw(at_column(place, columns[0]), "is empty")
        try:
            record = self.record_type(**values)
        except InvalidRecordError as error:
            raise Flaw(place, str(error)) from error
        self._refuse_contradictions(record, cells, place)
        return record

    def _refuse_contradictions(self, record: Record, cells: Cells, place: str) -> None:
        for column, derive in self._derived.items():
            if (text := cells.get(column)) and text != derive(record):
                raise Flaw(at_column(place, column), f"is {text!r}, but the other columns make it {derive(record)!r}")

    def _columns_of(self, field: str) -> tuple[str, ...]:
        inner = self._nested.get(field)
        return (self._names.get(field, field),) if inner is None else inner.columns


class KindCells:
    """Records of several kinds in one set of columns; the first column names the kind."""

    def __init__(self, kind_column: str, kinds: Mapping[str, RecordCells[Any]]) -> None:
        self._kind_column = kind_column
        self._kinds = kinds
        self._names = {kind.record_type: name for name, kind in kinds.items()}
        shared = dict.fromkeys(column for kind in kinds.values() for column in kind.columns)
        self.columns: tuple[str, ...] = (kind_column, *shared)

    def cells(self, record: msgspec.Struct) -> list[str]:
        name = self._names[type(record)]
        kind = self._kinds[name]
        cells = dict(zip(kind.columns, kind.cells(record), strict=True))
        return [name, *(cells.get(column, "") for column in self.columns[1:])]

    def record(self, cells: Cells, place: str) -> Any:
        name = cells.get(self._kind_column, "")
        kind = self._kinds.get(name)
        if kind is None:
            known = ", ".join(map(repr, self._kinds))
            raise Flaw(at_column(place, self._kind_column), f"is {name!r}, none of {known}")
        strays = (column for column in self.columns[1:] if column not in kind.columns)
        refuse_strays(cells, strays, place, f"must be empty where {self._kind_column} is {name!r}")
        return kind.record(cells, place)


def at_column(place: str, column: str) -> str:
    return f"{place}, column {column}"


def refuse_strays(cells: Cells, columns: Iterable[str], place: str, why: str) -> None:
    for column in columns:
        if cells.get(column):
            raise Flaw(at_column(place, column), why)


def _cell(value: Any, default: Any, column: str) -> str:
    if value is None or (value == default and value in ("", ())):
        return ""
    plain = isinstance(value, str) and value and value[0] != '"' and "\0" not in value
    text = value if plain else msgspec.json.encode(value).decode()
    if len(text) > LONGEST_CELL:
        raise InvalidRecordError(f"not written, since it could not be read again: {column} has {len(text)} characters")
    return str(text)


def _decoder(field_type: Any) -> Callable[[str, str], Any]:
    info = type_info(field_type)
    kinds = info.types if isinstance(info, UnionType) else (info,)
    is_text = all(isinstance(kind, (StrType, LiteralType, NoneType)) for kind in kinds)
    is_bool = all(isinstance(kind, (BoolType, NoneType)) for kind in kinds)

    def decode(text: str, place: str) -> Any:
        if is_text and text[0] != '"':
            text = msgspec.json.encode(text).decode()
        # Spreadsheets write TRUE.
        data = (text.lower() if is_bool else text).encode()
        try:
            decoded(data, msgspec.Raw)
        except Flaw as flaw:
            raise Flaw(place, f"is {text!r}, which is no JSON value") from flaw
        value = decoded(data, field_type, place=place)
        refuse_duplicate_keys(data, "json", place)
        return value

    return decode
