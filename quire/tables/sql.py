"""SQL over topics and archives, through DuckDB in this process.

A query is first parsed and not run. Its tables that are topics or archives are registered under their names in the
query, so that DuckDB finds them. Nothing is kept: each query has a database of its own, in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from quire.spark.pipelines.reader import read_archive
from quire.tables.dataset import TopicDataset
from quire.tables.errors import QueryError
from quire.tables.names import tables_of
from quire.tables.topic_rows import TopicRows

BATCH_ROWS = 10_000
"""Rows of one record batch of the result."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    # The variables of this program are no tables.
    "python_enable_replacements": "false",
    # A query does not load programs from the network.
    "autoinstall_known_extensions": "false",
}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows of a query, which goes on as they are taken."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    """Errors of topics are raised as they are, others as QueryError."""


@contextmanager
def run_query(text: str, open_topic: Callable[[str], TopicRows]) -> Iterator[QueryResult]:
    """Run one query, while the context is open.

    Args:
        text: a SELECT; WITH, FROM, VALUES, DESCRIBE and SUMMARIZE are allowed too.
        open_topic: gives the rows of a topic by its full name.

    Raises:
        QueryError: the query is wrong. Errors of topics and archives are raised as they are.
    """
    with duckdb.connect(config=_CONFIG) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        topics: list[TopicDataset] = []
        for table in tables_of(_tree(connection, text)):
            if table.kind == "archive":
                connection.register(table.name, read_archive(table.target).dataset())
            elif not _is_known(connection, table.name):
                topics.append(TopicDataset(open_topic(table.target)))
                connection.register(table.name, topics[-1])
        with _errors(topics):
            reader = connection.sql(text).to_arrow_reader(BATCH_ROWS)
        yield QueryResult(reader.schema, _batches(reader, topics))


def _batches(reader: pa.RecordBatchReader, topics: list[TopicDataset]) -> Iterator[pa.RecordBatch]:
    with _errors(topics):
        yield from reader


@contextmanager
def _errors(topics: list[TopicDataset]) -> Iterator[None]:
    """Raise the error of a topic for what DuckDB or Arrow makes of it, and others as QueryError."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _of_topics(topics) or QueryError(one_line(str(error))) from None


def _of_topics(topics: list[TopicDataset]) -> BaseException | None:
    return next((topic.error for topic in topics if topic.error is not None), None)


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    """Return the syntax tree of a query. Raises QueryError: it is malformed, or no single SELECT."""
    (row,) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree: dict[str, Any] = json.loads(row[0])
    if tree.get("error"):
        message = str(tree.get("error_message", ""))
        if "Only SELECT" in message:
            message = "only queries are run: begin with SELECT, WITH, FROM, DESCRIBE or SUMMARIZE"
        raise QueryError(one_line(message))
    if len(tree.get("statements", ())) != 1:
        raise QueryError(f"give one query, and not {len(tree.get('statements', ()))}")
    return tree


def _is_known(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Return whether DuckDB has a table of this name itself, such as duckdb_settings."""
    quoted = name.replace('"', '""')
    try:
        connection.execute(f'SELECT 1 FROM "{quoted}" LIMIT 0').fetchall()
    except duckdb.Error:
        return False
    return True


def one_line(text: str) -> str:
    """Return an error of DuckDB in one line, without the picture of the query.

    >>> one_line("Binder Error: no x\\n\\nLINE 1: select x\\n               ^")
    'Binder Error: no x'
    """
    return " ".join(text.partition("\n\nLINE ")[0].partition("\nLINE ")[0].split())
