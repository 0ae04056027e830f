"""Rows on standard output: tables, JSON lines, comma-separated values."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from quire.cli.sql.output import CELL_MAX, SAMPLE_ROWS, TextTable, writer_of
from quire.tables.errors import QueryError


def written(form: str, *batches: pa.RecordBatch) -> str:
    out = io.StringIO()
    writer = writer_of(form, batches[0].schema, out)
    for batch in batches:
        writer.rows(batch)
    writer.end()
    return out.getvalue()


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_table_is_aligned_and_counts_its_rows() -> None:
    found = written("table", batch(name=["a", "long name"], n=[1, None]), batch(name=["b"], n=[22]))
    assert found == "name       n\n---------  ----\na          1\nlong name  NULL\nb          22\n(3 rows)\n"


def test_a_table_without_rows_has_its_names() -> None:
    assert written("table", batch(x=pa.array([], pa.int8()))) == "x\n-\n(0 rows)\n"


def test_a_table_is_written_before_its_last_row_is_there() -> None:
    out = io.StringIO()
    writer = TextTable(["x"], out, cell_max=None)
    writer.rows(batch(x=list(range(SAMPLE_ROWS))))
    assert out.getvalue().endswith(f"\n{SAMPLE_ROWS - 1}\n")


def test_a_long_cell_is_cut_on_a_terminal_only() -> None:
    out = io.StringIO()
    writer = TextTable(["x"], out, cell_max=CELL_MAX)
    writer.rows(batch(x=["y" * 100]))
    writer.end()
    assert out.getvalue().splitlines()[2] == "y" * (CELL_MAX - 1) + "…"
    assert "y" * 100 in written("table", batch(x=["y" * 100]))


def test_a_table_has_no_characters_that_move_the_cursor() -> None:
    assert written("table", batch(x=["a\x1b[2Jb\n"])).splitlines()[2] == "a\\x1b[2Jb\\n"


def test_json_has_a_value_of_each_type() -> None:
    found = batch(
        text=["ü"],
        data=pa.array([b"text"], pa.binary()),
        bytes=pa.array([b"\xff\x00"], pa.binary()),
        time=pa.array([datetime(2026, 1, 31, 12, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        whole=pa.array([Decimal(7)], pa.decimal128(38, 0)),
        part=pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        nan=[float("nan")],
        none=pa.nulls(1),
        map=pa.array([[("k", b"v")]], pa.map_(pa.string(), pa.binary())),
        empty=pa.array([[]], pa.map_(pa.string(), pa.string())),
        struct=[{"a": [1, None], "b": {"c": True}}],
    )
    assert json.loads(written("json", found)) == {
        "text": "ü",
        "data": "text",
        "bytes": "\\xff00",
        "time": "2026-01-31T12:00:00Z",
        "whole": 7,
        "part": "1.50",
        "nan": "nan",
        "none": None,
        "map": {"k": "v"},
        "empty": {},
        "struct": {"a": [1, None], "b": {"c": True}},
    }


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"plain", "plain"), (b"a\tb", "a\tb"), (b"\x08\x00", "\\x0800"), (b"\\x41", "\\x5c783431"), (b"\xe9", "\\xe9")],
)
def test_bytes_are_text_or_digits_and_never_ambiguous(data: bytes, text: str) -> None:
    assert json.loads(written("json", batch(x=pa.array([data], pa.binary())))) == {"x": text}


def test_csv_tells_a_null_from_an_empty_text_and_quotes() -> None:
    found = batch(a=["x", "", None, 'q"', "l\ne"], b=["1,2", None, "", "y", "z"])
    assert written("csv", found) == 'a,b\nx,"1,2"\n"",\n,""\n"q""",y\n"l\ne",z\n'


def test_columns_of_equal_names_are_both_in_a_table() -> None:
    found = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    assert written("csv", found) == "x,x\n1,2\n"
    with pytest.raises(QueryError, match="two columns are named x: give one of them another name"):
        written("json", found)
