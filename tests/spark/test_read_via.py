"""Reads past the broker through Spark, whose workers read bookies. tests/unit/spark/reading compares the ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.generator import quiet_client
from tests.spark.support import Stream, numbered, publish
from tests.support.small_cluster import SmallCluster, small_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    keys = {"managedLedgerMaxEntriesPerLedger": 50}
    with small_cluster(tmp_path_factory.mktemp("cluster"), bookies=3, keys=keys) as made:
        yield made


def test_a_batch_has_the_rows_of_the_topic(spark: Any, cluster: SmallCluster) -> None:
    client = quiet_client(cluster.url)
    publish(client, "batch", numbered(0, 180))
    client.close()
    frame = spark.read.format("quire").options(**cluster.options, topic="batch", readVia="bookies").load()
    assert [row["value"] for row in frame.select("value").collect()] == numbered(0, 180)


@pytest.mark.full
def test_a_stream_has_the_rows_of_the_topic(spark: Any, cluster: SmallCluster, tmp_path: Path) -> None:
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
