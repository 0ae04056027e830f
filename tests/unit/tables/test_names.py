"""Names in a query: topics, archives, files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from quire.tables.errors import QueryError
from quire.tables.names import tables_of

PUBLIC = "persistent://public/default/"


@pytest.fixture(scope="module")
def tree() -> Iterator[Callable[[str], Any]]:
    """Return the parser of queries."""
    with duckdb.connect() as connection:

        def parse(query: str) -> Any:
            (row,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
            return json.loads(row[0])

        yield parse


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("FROM orders", {"orders": f"{PUBLIC}orders"}),
        ('SELECT * FROM "acme/shop/orders" x', {"acme/shop/orders": "persistent://acme/shop/orders"}),
        ('FROM "persistent://a/b/x-partition-3"', {"persistent://a/b/x-partition-3": "persistent://a/b/x-partition-3"}),
        ('FROM "archive:/data/old"', {"archive:/data/old": "/data/old"}),
        ("FROM a JOIN b USING (k) WHERE x IN (SELECT y FROM c)", {each: f"{PUBLIC}{each}" for each in "abc"}),
        ("WITH o AS (FROM orders) FROM o, O", {"orders": f"{PUBLIC}orders"}),
        ("FROM 'x.parquet', 'logs/*', 'https://host/x.json'", {}),
        ("SELECT * FROM range(3), information_schema.tables", {}),
        ("DESCRIBE orders", {"orders": f"{PUBLIC}orders"}),
        ("VALUES (1)", {}),
    ],
)
def test_topics_and_archives_of_a_query(tree: Callable[[str], Any], query: str, expected: dict[str, str]) -> None:
    found = tables_of(tree(query))
    assert {each.name: each.target for each in found} == expected
    assert all((each.kind == "archive") == each.name.startswith("archive:") for each in found)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("FROM acme.shop.orders", 'acme.shop.orders: write a topic .* as one name, "acme/shop/orders"'),
        ("FROM Orders, orders", "Orders and orders differ in case only"),
        ('FROM "archive:"', "give the folder"),
        ('FROM "non-persistent://a/b/c"', "is not persistent"),
        ('FROM "a/b"', "is not the name of a topic"),
    ],
)
def test_other_names_are_refused(tree: Callable[[str], Any], query: str, text: str) -> None:
    with pytest.raises(QueryError, match=text):
        tables_of(tree(query))
