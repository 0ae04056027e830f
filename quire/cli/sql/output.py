"""Rows of a query on standard output: as a table, as JSON lines, or as comma-separated values.

Bytes are written as text if they are UTF-8 that can be printed. Others are written as \\x and hexadecimal digits, as
PostgreSQL has them, and so is a text that begins with \\x: one is never taken for the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol, TextIO

import pyarrow as pa

from quire.tables.errors import QueryError

CELL_MAX = 60
"""Columns of a terminal that one cell may have."""
SAMPLE_ROWS = 1000
"""Rows that decide the widths of a table's columns."""
_NULL = "NULL"


class RowWriter(Protocol):
    """Writer of a result."""

    def rows(self, batch: pa.RecordBatch) -> None: ...

    def end(self) -> None: ...


def writer_of(form: str, schema: pa.Schema, out: TextIO) -> RowWriter:
    """Return the writer of a result. `form`: table, json or csv. Raises QueryError."""
    if form == "json":
        return JsonLines(schema.names, out)
    if form == "csv":
        return CsvLines(schema.names, out)
    return TextTable(schema.names, out, cell_max=CELL_MAX if out.isatty() else None)


class JsonLines:
    """One object a line."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        """Raises QueryError: an object cannot have the name of a column twice."""
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise QueryError(f"two columns are named {twice}: give one of them another name with AS")
        self._names = names
        self._out = out

    def rows(self, batch: pa.RecordBatch) -> None:
        for values in _rows(batch):
            found = dict(zip(self._names, values, strict=True))
            self._out.write(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")

    def end(self) -> None:
        self._out.flush()


class CsvLines:
    """Values separated by commas, by RFC 4180 but with line feeds. A null is empty, an empty text is `""`."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self._out = out
        self._line(names)

    def rows(self, batch: pa.RecordBatch) -> None:
        for values in _rows(batch):
            self._line([None if value is None else text_of(value) for value in values])

    def _line(self, cells: Sequence[str | None]) -> None:
        # (csv of the library cannot tell a null from an empty text)
        self._out.write(",".join("" if cell is None else _quoted(cell) for cell in cells) + "\n")

    def end(self) -> None:
        self._out.flush()


class TextTable:
    """Aligned columns. The first rows decide the widths; on a terminal, long cells are cut."""

    def __init__(self, names: Sequence[str], out: TextIO, *, cell_max: int | None) -> None:
        self._names = [_printable(name) for name in names]
        self._out = out
        self._cell_max = cell_max
        self._first: list[list[str]] | None = []
        self._widths: list[int] = []
        self._count = 0

    def rows(self, batch: pa.RecordBatch) -> None:
        for values in _rows(batch):
            self._count += 1
            cells = [self._cell(value) for value in values]
            if self._first is None:
                self._line(cells)
                continue
            self._first.append(cells)
            if len(self._first) >= SAMPLE_ROWS:
                self._begin()

    def end(self) -> None:
        self._begin()
        self._out.write(f"({self._count} {'row' if self._count == 1 else 'rows'})\n")
        self._out.flush()

    def _begin(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._widths = [max(map(len, column)) for column in zip(self._names, *first, strict=True)]
            self._line(self._names)
            self._line(["-" * width for width in self._widths])
            for cells in first:
                self._line(cells)

    def _line(self, cells: Sequence[str]) -> None:
        padded = [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        self._out.write("  ".join(padded).rstrip() + "\n")

    def _cell(self, value: Any) -> str:
        text = _NULL if value is None else _printable(text_of(value))
        if self._cell_max is not None and len(text) > self._cell_max:
            return text[: self._cell_max - 1] + "…"
        return text


Convert = Callable[[Any], Any]


def converter(kind: pa.DataType) -> Convert:
    """Return the conversion of values of a type, which are not None, to values of JSON.

    >>> converter(pa.binary())(b"a"), converter(pa.map_(pa.string(), pa.int8()))([("k", 1)])
    ('a', {'k': 1})
    """
    if pa.types.is_map(kind):
        key, item = optional(kind.key_type), optional(kind.item_type)
        return lambda pairs: {_name(key(name)): item(value) for name, value in pairs}
    if pa.types.is_struct(kind):
        fields = {field.name: optional(field.type) for field in kind}
        return lambda found: {name: convert(found[name]) for name, convert in fields.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = optional(kind.value_type)
        return lambda values: [item(value) for value in values]
    return scalar


def optional(kind: pa.DataType) -> Convert:
    """Return the conversion of values of a type that may be None."""
    convert = converter(kind)
    return lambda value: None if value is None else convert(value)


def scalar(value: Any) -> Any:
    """Return a value without parts as one of JSON.

    >>> scalar(bytes([255])), scalar(Decimal("1.50")), scalar(Decimal(2)), scalar(math.nan)
    ('\\\\xff', '1.50', 2, 'nan')
    """
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return text_of_bytes(value)
    if isinstance(value, Decimal):
        return str(value) if value.as_tuple().exponent else int(value)
    if isinstance(value, datetime):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    return value.isoformat() if isinstance(value, date | time) else str(value)


def text_of(value: Any) -> str:
    """Return a value of JSON, which is not None, as the text of a cell."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_of_bytes(data: bytes) -> str:
    """Return bytes as text; see the module."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\\x"
    printed = text.isprintable() or all(each.isprintable() or each in "\t\n\r" for each in text)
    return f"\\x{data.hex()}" if text.startswith("\\x") or not printed else text


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, with values of JSON. Columns may have equal names, so a row is no mapping."""
    columns = [map(optional(column.type), column.to_pylist()) for column in batch.columns]
    yield from zip(*columns, strict=True)


def _name(key: Any) -> str:
    return "null" if key is None else text_of(key)


def _quoted(text: str) -> str:
    if text and not any(character in text for character in ',"\n\r'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _printable(text: str) -> str:
    """Return a text without characters that move the cursor of a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
