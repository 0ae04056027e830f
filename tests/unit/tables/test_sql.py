"""Queries over topics and archives: what is read for them, and their errors. Covers sql and dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
import pyarrow.parquet
import pytest

from quire.spark.errors import SourceUnavailableError
from quire.spark.pipelines.errors import ManifestError
from quire.spark.pipelines.manifest import ArchivedFile, BatchRecord, writing
from quire.tables import sql
from quire.tables.errors import QueryError
from quire.tables.request import request_options
from quire.tables.sql import run_query
from quire.tables.topic_rows import TopicRows
from tests.support.small_cluster import SmallCluster
from tests.unit.spark.reading.via import Links
from tests.unit.tables.publishing import publish

Ask = Callable[..., list[dict[str, Any]]]


class Scans:
    """Queries, and the columns that each scan of a topic read."""

    def __init__(self, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster = cluster
        self.opened: list[str] = []
        self.columns: list[list[str]] = []
        self.options: dict[str, str] = {}
        original = TopicRows.reader

        def recorded(rows: TopicRows, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
            self.columns.append(list(columns or ()))
            return original(rows, columns)

        monkeypatch.setattr(TopicRows, "reader", recorded)

    def open(self, name: str) -> TopicRows:
        self.opened.append(name)
        where = {"service_url": self._cluster.url, "admin_url": self._cluster.web}
        return TopicRows(request_options(name, options=self.options, **where))

    def ask(self, query: str) -> list[dict[str, Any]]:
        with run_query(query, self.open) as result:
            rows = [row for batch in result.batches for row in batch.to_pylist()]
            assert all(list(row) == result.schema.names for row in rows)
        return rows


@pytest.fixture
def scans(cluster: SmallCluster, links: Links, monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(cluster, monkeypatch)


@pytest.fixture(scope="module")
def sold(client: pulsar.Client) -> str:
    producer = client.create_producer("sold", batching_enabled=False)
    for number in range(60):
        producer.send_async(b"%d" % number, None, partition_key=f"key{number % 3}", properties={"n": str(number)})
    producer.flush()
    producer.close()
    return "sold"


def test_only_the_columns_of_the_query_are_read(scans: Scans, sold: str) -> None:
    assert scans.ask("SELECT sum(__entry) AS s FROM sold")[0]["s"] == 3 * sum(range(20))
    assert scans.columns == [["__entry"]]
    assert scans.opened == ["persistent://public/default/sold"]


def test_a_count_reads_no_values(scans: Scans, sold: str) -> None:
    assert scans.ask("SELECT count(*) AS n FROM sold") == [{"n": 60}]
    assert "value" not in scans.columns[0]


def test_filters_drop_rows_also_by_columns_that_are_not_asked_for(scans: Scans, sold: str) -> None:
    query = "SELECT decode(value) v FROM sold WHERE __key = 'key1' AND __entry >= 18 AND __publishTime > '2020-01-01'"
    assert [row["v"] for row in scans.ask(f"{query} ORDER BY v")] == ["19", "58"]
    assert set(scans.columns[0]) == {"value", "__key", "__entry", "__publishTime"}
    properties = "SELECT count(*) n FROM sold WHERE __properties['n'] = '7' OR value IS NULL"
    assert scans.ask(properties) == [{"n": 1}]


def test_a_topic_that_is_joined_with_itself_has_one_end(scans: Scans, sold: str, client: pulsar.Client) -> None:
    query = "SELECT count(*) n FROM sold a JOIN sold b USING (value)"
    assert scans.ask(query) == [{"n": 60}]
    assert (len(scans.opened), len(scans.columns)) == (1, 2)


def test_a_limit_ends_the_read(scans: Scans, sold: str) -> None:
    assert len(scans.ask('SELECT value FROM "public/default/sold" LIMIT 2')) == 2


def test_topics_are_joined_with_archives_and_files(
    scans: Scans, client: pulsar.Client, sold: str, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    names = pa.table({"__key": pa.array([b"key0", b"key1"], pa.binary()), "name": ["zero", "one"]})
    with writing(archive) as manifest:
        path = "batch=0/dt=2026-01-31/part-0.parquet"
        (archive / path).parent.mkdir(parents=True)
        pyarrow.parquet.write_table(names, archive / path)
        pyarrow.parquet.write_table(names, archive / "batch=0/left-over.parquet")
        record = BatchRecord(batch=0, query="q", rows=2, files=(ArchivedFile(path, 2, 1),), positions={})
        manifest.append(record)
    query = f"""SELECT name, dt, count(*) n FROM sold JOIN "archive:{archive}" USING (__key) GROUP BY ALL ORDER BY 1"""
    assert [(row["name"], str(row["dt"]), row["n"]) for row in scans.ask(query)] == [
        ("one", "2026-01-31", 20),
        ("zero", "2026-01-31", 20),
    ]
    assert scans.ask(f"SELECT count(*) n FROM '{archive / path}'") == [{"n": 2}]
    with pytest.raises(ManifestError, match="nothing is archived"):
        scans.ask(f'FROM "archive:{tmp_path}"')


def test_tables_of_duckdb_are_no_topics(scans: Scans) -> None:
    assert scans.ask("SELECT count(*) n FROM sqlite_master") == [{"n": 0}]
    assert scans.opened == []


def test_variables_of_the_program_are_no_tables(
    scans: Scans, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "planted", pa.table({"v": ["a variable"]}), raising=False)
    publish(client, "planted", [b"a message"])
    assert scans.ask("SELECT decode(value) v FROM planted") == [{"v": "a message"}]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("selec", "^syntax error"),
        ("SELECT nope FROM sold", '^Binder Error: Referenced column "nope" not found'),
        ("SELECT 1; SELECT 2", "give one query, and not 2"),
        ("", "give one query, and not 0"),
        ("DROP TABLE x", "only queries are run: begin with SELECT"),
        ("COPY (SELECT 1) TO 'x.parquet'", "only queries are run"),
        ("SELECT cast(decode(value) AS DATE) FROM sold", "^Conversion Error"),
        ("FROM 'nofile.parquet'", "^IO Error: No files found"),
    ],
)
def test_a_wrong_query_is_an_error_of_one_line(scans: Scans, sold: str, query: str, text: str) -> None:
    with pytest.raises(QueryError, match=text) as caught:
        scans.ask(query)
    assert "\n" not in str(caught.value)


def test_an_error_of_a_topic_is_raised_as_it_is(
    scans: Scans, cluster: SmallCluster, links: Links, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, [b"x"] * 30)
    links.lost = cluster.bookies
    scans.options = {"readVia": "bookies", "operationTimeoutMs": "1500"}
    with pytest.raises(SourceUnavailableError, match=topic):
        scans.ask(f"SELECT count(*) FROM {topic}")
