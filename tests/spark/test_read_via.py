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


def test_batches_and_streams_have_the_rows_of_the_broker(spark: Any, cluster: SmallCluster, tmp_path: Path) -> None:
    client = quiet_client(cluster.url)
    sent = numbered(0, 180)
    publish(client, "via", sent)
    rows = {
        via: spark.read.format("quire").options(**cluster.options, topic="via", readVia=via, minPartitions="2").load()
        for via in ("broker", "bookies")
    }
    found = {via: [tuple(row) for row in frame.collect()] for via, frame in rows.items()}
    assert found["bookies"] == found["broker"]
    assert [row[1] for row in found["broker"]] == sent
    options = {**cluster.options, "topic": "via", "subscription": "via", "startingOffsets": "earliest"}
    stream = Stream(spark, {**options, "readVia": "bookies"}, tmp_path)
    stream.drain()
    assert stream.values() == sent
    client.close()


def test_a_standalone_server_has_no_bookie_to_read_from(
    spark: Any, options: dict[str, str], client: Any, topic: str
) -> None:
    publish(client, topic, numbered(0, 3))
    frame = spark.read.format("quire").options(**options, topic=topic, readVia="bookies").load()
    with pytest.raises(Exception, match="the bookie of a standalone server is in its process and has no port"):
        frame.collect()
