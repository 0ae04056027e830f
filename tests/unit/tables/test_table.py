"""`quire.table`: rows as the official client and the source's rooms read them, from bookies, by several threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pulsar
import pyarrow as pa
import pytest

from quire.spark.admin import TopicMissingError
from quire.spark.errors import (
    DataLossError,
    MissingDependencyError,
    SchemaError,
    SourceUnavailableError,
    UndecodableError,
)
from quire.spark.reading.scan import read_range
from quire.tables import topic_rows
from tests.support.small_cluster import SmallCluster
from tests.unit.spark.layouts import ask, fill
from tests.unit.spark.reading.via import Links, outcome
from tests.unit.tables.publishing import publish

Table = Callable[..., pa.RecordBatchReader]
PUBLIC = "persistent://public/default/"


def received(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(30_000) for _ in range(count)]
    reader.close()
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 60))])
def test_rows_are_those_of_the_source(
    cluster: SmallCluster,
    client: pulsar.Client,
    links: Links,
    table: Table,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches, compression, chunks, partitions; each topic in many small ranges."""
    monkeypatch.setattr(topic_rows, "RANGE_BYTES", 3000)
    layout = fill(cluster, client, seed)
    links.lost = cluster.bookies[: layout.failures_max]
    for each in layout.starts:
        more = {name: text for name, text in each.items() if name != "minPartitions"}
        expected = outcome(cluster.options, layout.topic, "broker", **more)
        reader = table(layout.topic, options=more, parallel=3)
        if isinstance(expected, str):  # a chunked message of which pieces are before the start
            with pytest.raises(DataLossError, match="lacks the pieces"):
                reader.read_all()
            continue
        found = reader.read_all()
        assert found.to_pylist() == [row for rows in expected for row in rows], more


def test_rows_are_those_of_the_official_client(
    cluster: SmallCluster, client: pulsar.Client, links: Links, table: Table, topic: str
) -> None:
    compressed = {"batching_enabled": True, "batching_max_messages": 7, "compression_type": pulsar.CompressionType.ZSTD}
    publish(client, topic, [b"plain %d" % number for number in range(70)])
    publish(client, topic, [b"packed %d" % number for number in range(30)], **compressed)
    publish(client, topic, [b"large" * 400_000], batching_enabled=False, chunking_enabled=True)
    expected = received(client, topic, 101)
    found = table(topic).read_all()
    assert found["value"].to_pylist() == [message.data() for message in expected]
    assert found["__messageId"].to_pylist() == [message.message_id().serialize() for message in expected]
    assert found["__publishTime"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist() == [
        message.publish_timestamp() for message in expected
    ]
    assert links.used


def test_entries_of_a_lost_bookie_are_read_from_the_others(
    cluster: SmallCluster, client: pulsar.Client, links: Links, table: Table, topic: str
) -> None:
    values = [b"%d" % number for number in range(70)]
    publish(client, topic, values)
    links.damaged = cluster.bookies[:1]
    found = table(topic, columns=["value"], options={"readVia": "bookies"}).read_all()
    assert found["value"].to_pylist() == values
    assert len(links.used) > 1


def test_without_any_copy_the_error_names_the_entry(
    cluster: SmallCluster, client: pulsar.Client, links: Links, table: Table, topic: str
) -> None:
    publish(client, topic, [b"x"] * 30)
    links.lost = cluster.bookies
    reader = table(topic, options={"readVia": "bookies", "operationTimeoutMs": 1500})
    with pytest.raises(SourceUnavailableError, match=topic):
        reader.read_all()


def test_ranges_are_read_by_several_threads_in_order(
    cluster: SmallCluster, client: pulsar.Client, table: Table, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(client, topic, [b"%06d" % number for number in range(200)])
    monkeypatch.setattr(topic_rows, "RANGE_BYTES", 2000)
    threads: set[str] = set()
    together = threading.Barrier(3)
    original = read_range

    def recorded(*arguments: Any) -> Any:
        first = threading.current_thread().name not in threads
        threads.add(threading.current_thread().name)
        if first:
            together.wait(60)
        yield from original(*arguments)

    monkeypatch.setattr(topic_rows, "read_range", recorded)
    found = table(topic, columns=["value"], parallel=3).read_all()
    assert found["value"].to_pylist() == [b"%06d" % number for number in range(200)]
    assert len(threads) == 3


def test_partitions_and_bounds(cluster: SmallCluster, client: pulsar.Client, table: Table, topic: str) -> None:
    ask(cluster, "PUT", f"persistent/public/default/{topic}/partitions", 2)
    for number in range(2):
        publish(client, f"{topic}-partition-{number}", [b"%d" % each for each in range(10)])
    every = table(topic, columns=["__partition", "value", "__ledger", "__entry"]).read_all().to_pylist()
    assert [(row["__partition"], row["value"]) for row in every] == [
        (number, b"%d" % each) for number in range(2) for each in range(10)
    ]
    ledger = every[0]["__ledger"]
    found = table(
        topic,
        start={f"{topic}-partition-0": f"{ledger}:8", f"{topic}-partition-1": -1},
        columns=["value"],
    ).read_all()
    assert found["value"].to_pylist() == [b"8", b"9"]
    assert table(topic, end=datetime(2020, 1, 1, tzinfo=UTC)).read_all().num_rows == 0


def test_a_message_published_after_the_call_is_not_in_the_table(
    client: pulsar.Client, table: Table, topic: str
) -> None:
    publish(client, topic, [b"before"])
    reader = table(topic, columns=["value"])
    publish(client, topic, [b"after"])
    assert reader.read_all()["value"].to_pylist() == [b"before"]


def test_values_are_decoded_by_schema(client: pulsar.Client, table: Table, topic: str) -> None:
    class Order(pulsar.schema.Record):  # type: ignore[misc]
        item = pulsar.schema.String()
        count = pulsar.schema.Integer()

    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Order), batching_enabled=False)
    for number in range(3):
        producer.send(Order(item=f"item{number}", count=number))
    producer.close()
    reader = table(topic, decode="schema", columns=["value", "__rawValue", "__decodeError"])
    assert reader.schema.field("value").type == pa.struct([("count", pa.int32()), ("item", pa.string())]) or (
        reader.schema.field("value").type == pa.struct([("item", pa.string()), ("count", pa.int32())])
    )
    rows = reader.read_all().to_pylist()
    assert [row["value"] for row in rows] == [{"item": f"item{number}", "count": number} for number in range(3)]
    assert all(row["__rawValue"] and row["__decodeError"] is None for row in rows)
    publish(client, topic, [b""])
    with pytest.raises(UndecodableError, match="is no value of schema version 0"):
        table(topic, decode="schema").read_all()
    found = table(topic, decode="schema", options={"onDecodeError": "null"}).read_all()
    assert found["value"].to_pylist()[3] is None
    # Values that are not asked for are not decoded.
    assert table(topic, decode="schema", columns=["__entry"]).read_all().num_rows == 4


def test_errors_say_what_to_do(client: pulsar.Client, table: Table, topic: str) -> None:
    with pytest.raises(TopicMissingError, match="does not exist: create it or publish to it"):
        table(topic)
    publish(client, topic, [b"x"])
    with pytest.raises(SchemaError, match="has no schema by which values could be decoded"):
        table(topic, decode="schema")
    with pytest.raises(ValueError, match="'parallel' is '0': give 1 to 64"):
        table(topic, parallel=0)
    with pytest.raises(ValueError, match="'buffer_bytes' is '0'"):
        table(topic, buffer_bytes=0)


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    monkeypatch.setattr("quire.spark.checks._is_there", lambda name: name != "pyarrow")
    with pytest.raises(MissingDependencyError, match=r"pip install 'quire-broker\[sql\]'"):
        table("orders")


def test_a_table_needs_no_pyspark_and_importing_quire_no_pyarrow() -> None:
    code = (
        "import sys, quire; assert 'pyarrow' not in sys.modules; sys.modules['pyspark'] = None\n"
        "import quire.tables.sql, quire.tables.request"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
