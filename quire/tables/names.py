"""Names of tables in a query: topics, archives, and files that DuckDB reads itself. Pure.

orders, "acme/shop/orders", "persistent://acme/shop/orders"      topics
"archive:/data/orders"                                            folder of an archive (quire.spark.pipelines)
'old.parquet', "logs/*.csv", "https://host/x.parquet"             DuckDB's
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from quire.spark.topics import full_name
from quire.tables.errors import QueryError

ARCHIVE = "archive:"
_FILES = (".parquet", ".csv", ".csv.gz", ".tsv", ".json", ".jsonl", ".ndjson", ".json.gz", ".arrow", ".db", ".duckdb")
_OWN_SCHEMAS = ("", "main", "information_schema", "pg_catalog", "system", "temp", "memory")


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of a query that is not DuckDB's."""

    name: str
    """Name in the query, without quotes."""
    kind: Literal["topic", "archive"]
    target: str
    """Full name of the topic, or folder."""


def tables_of(tree: Mapping[str, Any]) -> list[TableName]:
    """Return the topics and archives that a query reads, each once.

    Args:
        tree: syntax tree of the query, as DuckDB's json_serialize_sql gives it.

    Raises:
        QueryError: a name is not a topic's, or two names differ in case only.
    """
    found: dict[str, TableName] = {}
    local = {name.lower() for name in _common_names(tree)}
    for node in _tables(tree):
        name = str(node["table_name"])
        space = [str(node[key]) for key in ("catalog_name", "schema_name") if node.get(key)]
        if any(each.lower() not in _OWN_SCHEMAS for each in space):
            whole = "/".join([*space, name])
            raise QueryError(f'{".".join([*space, name])}: write a topic of another namespace as one name, "{whole}"')
        if space or name.lower() in local or is_file(name):
            continue
        other = found.setdefault(name.lower(), _named(name))
        if other.name != name:
            raise QueryError(
                f"{other.name} and {name} differ in case only, which is one name in SQL: query one of them"
            )
    return list(found.values())


def is_file(name: str) -> bool:
    """Return whether DuckDB reads a file, or files, of this name.

    >>> is_file("old.parquet"), is_file("logs/*"), is_file("orders"), is_file("persistent://a/b/x.csv")
    (True, True, False, False)
    """
    if name.startswith((ARCHIVE, "persistent://", "non-persistent://")):
        return False
    return name.lower().endswith(_FILES) or "://" in name or "*" in name


def _named(name: str) -> TableName:
    if name.startswith(ARCHIVE):
        folder = name.removeprefix(ARCHIVE)
        if not folder:
            raise QueryError(f'{name}: give the folder of the archive, "archive:/data/orders"')
        return TableName(name, "archive", folder)
    try:
        return TableName(name, "topic", full_name(name))
    except ValueError as error:
        raise QueryError(f"{name} is not the name of a topic ({error}), an archive or a file") from None


def _tables(node: object) -> Iterator[Mapping[str, Any]]:
    for each in _walk(node):
        if each.get("type") == "BASE_TABLE" and "table_name" in each:
            yield each


def _common_names(node: object) -> Iterator[str]:
    """Yield the names that WITH defines."""
    for each in _walk(node):
        common = each.get("cte_map")
        if isinstance(common, Mapping):
            yield from (str(entry["key"]) for entry in common.get("map", ()) if "key" in entry)


def _walk(root: object) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a tree. It has no depth limit, as a query has none."""
    left: list[object] = [root]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            yield node
            left += reversed(list(node.values()))
        elif isinstance(node, Iterable) and not isinstance(node, str):
            left += reversed(list(node))
