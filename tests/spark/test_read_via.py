"""Reads past the broker through Spark, whose workers read bookies. tests/unit/spark/reading compares the ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.spark.peer import PULSAR, options_of, quiet_client, serve
from tests.spark.support import Stream, numbered, publish
from tests.support.small_cluster import small_cluster


@dataclass(frozen=True)
class Brokers:
    """Addresses of brokers whose ledgers have 50 entries, and whose bookies have ports."""

    url: str
    options: dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Run a cluster of Quire, or Pulsar's standalone server, whose bookie is one as in a cluster."""
    keys: dict[str, object] = {"managedLedgerMaxEntriesPerLedger": 50}
    folder = tmp_path_factory.mktemp("cluster")
    if PULSAR:
        keys |= {"managedLedgerMinLedgerRolloverTimeMinutes": 0, "defaultRetentionTimeInMinutes": -1}
        with serve(folder, {**keys, "defaultRetentionSizeInMB": -1}) as server:
            yield Brokers(server.url, options_of(server))
        return
    with small_cluster(folder, bookies=3, keys=keys) as made:
        yield Brokers(made.url, made.options)


def test_a_batch_has_the_rows_of_the_topic(spark: Any, cluster: Brokers) -> None:
    client = quiet_client(cluster.url)
    publish(client, "batch", numbered(0, 180))
    client.close()
    frame = spark.read.format("quire").options(**cluster.options, topic="batch", readVia="bookies").load()
    assert [row["value"] for row in frame.select("value").collect()] == numbered(0, 180)


@pytest.mark.full
def test_all_ways_have_the_same_rows_of_batches(spark: Any, cluster: Brokers) -> None:
    client = quiet_client(cluster.url)
    topic = "persistent://public/default/ways"
    for number, kind in enumerate(("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")):
        kind = getattr(pulsar.CompressionType, kind)
        part = numbered(number * 100, number * 100 + 100)
        publish(client, topic, part, batching_enabled=True, batching_max_messages=3, compression_type=kind)
    client.close()
    read = spark.read.format("quire").options(**cluster.options, topic=topic)
    rows = {}
    for way in ("broker", "bookies", "auto"):
        found = read.option("readVia", way).load().orderBy("__ledger", "__entry", "__batch").collect()
        rows[way] = [tuple(row) for row in found]
    assert [row[1] for row in rows["broker"]] == numbered(0, 500)
    assert len({row[5] for row in rows["broker"]}) > 2, "there is no closed ledger"
    assert rows["bookies"] == rows["broker"]
    assert rows["auto"] == rows["broker"]


@pytest.mark.full
def test_a_stream_has_the_rows_of_the_topic(spark: Any, cluster: Brokers, tmp_path: Path) -> None:
    client = quiet_client(cluster.url)
    publish(client, "stream", numbered(0, 180))
    options = {**cluster.options, "topic": "stream", "subscription": "via", "startingOffsets": "earliest"}
    stream = Stream(spark, {**options, "readVia": "bookies"}, tmp_path)
    stream.drain()
    publish(client, "stream", numbered(180, 200))
    stream.drain()
    client.close()
    assert stream.values() == numbered(0, 200)
    assert len(stream.batches) == 2


def test_a_standalone_server_has_no_bookie_to_read_from(
    spark: Any, options: dict[str, str], client: Any, topic: str
) -> None:
    publish(client, topic, numbered(0, 3))
    frame = spark.read.format("quire").options(**options, topic=topic, readVia="bookies").load()
    with pytest.raises(Exception, match="the bookie of a standalone server is in its process and has no port"):
        frame.collect()
