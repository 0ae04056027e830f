"""The archive of a cluster is exact, whatever is killed: a million rows of 1 KB in four partitions.

Producers send to a topic with deduplication, so that a row which is sent again is in it once. Nothing is retained, and
another subscription reads and acknowledges everything. Meanwhile scripts/pipelines/archive runs, and its supervisor
starts it again when it has ended. Killed with SIGKILL are its driver in the middle of a task, a worker of Spark in the
middle of a task, and then, when the producers have come to points drawn by chance, whatever the archive does at that
time: the broker that serves a partition, a bookie, ZooKeeper and the driver once more.

With `--full` only. test_archive_kills.py has the control without a hold, which loses rows.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import duckdb
import pulsar
import pyarrow as pa
import pytest

from quire.spark.pipelines.reader import Archive, read_archive
from tests.spark.archive_run import ArchiveRun
from tests.spark.generator import Drain, Generator, Load, parse
from tests.spark.support import wait_for
from tests.support import web
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.lookup import owner_port
from tools.local_cluster.plan import Kind, Node, Plan

pytestmark = pytest.mark.full

ROWS = 1_000_000
PARTITIONS = 4
SIZE = 1024
NAMESPACE = "public/archived"
TOPIC = f"persistent://{NAMESPACE}/rows"
PARTS = [f"{TOPIC}-partition-{number}" for number in range(PARTITIONS)]
BROKER = {
    "managedLedgerMaxEntriesPerLedger": 2000,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": 0,
    "defaultRetentionSizeInMB": 0,
    "retentionCheckIntervalInSeconds": 1,
}
END_S = 1800.0


def row_of(producer: int, sequence: int) -> bytes:
    """Return the value of a row of about SIZE bytes."""
    whole = hashlib.sha256(b"%d %d" % (producer, sequence)).digest() * (SIZE // 32)
    body = whole[: SIZE - 24]
    return b"%d %d %d " % (producer, sequence, crc32(body)) + body


class SupervisedRun(ArchiveRun):
    """An archive that is started again when it has ended: by a kill, or because brokers were away for too long."""

    hit_s = 600.0

    def until(self, condition: Callable[[], object], what: str) -> None:
        def met() -> object:
            if self._process is not None and self._process.poll() is not None:
                self.start()
            return condition()

        wait_for(met, what, END_S)


class Story:
    """A cluster, producers and an archive."""

    def __init__(self, folder: Path) -> None:
        plan = Plan(zookeepers=1, bookies=4, brokers=2, recoveries=0, conf={Kind.BROKER: BROKER})
        self.cluster = LocalCluster.make(folder / "cluster", plan, bound=True)
        self.cluster.up()
        self.hits: dict[str, int] = {}
        """Batch that was hit, by placed kill."""
        self.sent: dict[str, int] = {}
        """Rows sent at each kill that is not placed."""
        for method, path, value in (
            ("PUT", f"namespaces/{NAMESPACE}", None),
            ("POST", f"namespaces/{NAMESPACE}/deduplication", True),
            ("PUT", f"persistent/{NAMESPACE}/rows/partitions", PARTITIONS),
        ):
            self.ask(method, path, value)
        arguments = {
            "service-url": self.cluster.service_url,
            "admin-url": self.cluster.web_urls[0],
            "topic": TOPIC,
            "trigger": "200ms",
            "max-messages-per-trigger": str(max(2000, ROWS // 20)),
            "set": "operationTimeoutMs=120000",
        }
        self.run = SupervisedRun(folder / "archive", arguments)
        self.loads = [Load(number, TOPIC, True, ROWS // PARTITIONS) for number in range(PARTITIONS)]

    def ask(self, method: str, path: str, value: object) -> None:
        url = f"{self.cluster.web_urls[0]}/admin/v2/{path}"
        web.request(method, url, json=value, follow_redirects=True, timeout=60).raise_for_status()

    def tell(self) -> None:
        for part in PARTS:
            path = f"{part.replace('://', '/')}/subscription/{self.run.subscription}"
            self.ask("PUT", path, {"ledgerId": -1, "entryId": -1})
        generator = Generator(
            self.cluster.service_url,
            self.loads,
            value=row_of,
            compression=pulsar.CompressionType.LZ4,  # for the disk's sake
            # (of batches by key, whose sequence ids lie between one another's, deduplication drops some)
            batching=pulsar.BatchingType.Default,
        )
        drain = Drain(self.cluster.service_url, PARTS)
        try:
            self.run.start()
            generator.start(0.15)
            self.placed(generator)
            self.by_chance(generator)
            generator.finish()
            self.run.until(lambda: self.run.rows() >= ROWS, f"{ROWS} rows in the archive")
            self.run.until(lambda: self.run.has("commits", self.run.last("offsets")), "the last commit")
            assert self.run.stop() == 0, self.run.log()[-4000:]
            wait_for(lambda: drain.messages >= ROWS, "the other subscription's end", END_S)
        finally:
            generator.close()
            drain.close()
            self.run.abandon()

    def placed(self, generator: Generator) -> None:
        """Kill the driver in the middle of a task, and a worker in the middle of another."""
        run = self.run
        self.hits["driver"] = run.freeze_at(run.in_mid_task, 1)
        run.kill()
        generator.release(0.3)
        run.start()
        batch = self.hits["worker"] = run.freeze_at(run.in_mid_task, self.hits["driver"] + 1)
        worker, part = run.tail.reader(batch)
        run.kill_one(worker)
        run.thaw()
        run.until(lambda: run.has("commits", batch), "the commit of the batch whose worker was killed")
        run.tail.poll()
        assert len(run.tail.readers(batch, part)) > 1, "the task of the killed worker was not repeated"

    def by_chance(self, generator: Generator) -> None:
        chance = random.Random(17)
        kills: dict[str, Callable[[], None]] = {
            "broker": lambda: self.kill(self.owner()),
            "bookie": lambda: self.kill(chance.choice(self.cluster.nodes(Kind.BOOKIE))),
            "zookeeper": lambda: self.kill(self.cluster.nodes(Kind.ZOOKEEPER)[0]),
            "driver": self.kill_driver,
        }
        names = chance.sample(sorted(kills), len(kills))
        for name, share in zip(names, sorted(chance.uniform(0.35, 0.9) for _ in names), strict=True):
            generator.release(share)
            self.wait_for_rows(generator, int(share * ROWS * 0.9))
            self.sent[name] = generator.sent
            kills[name]()
            self.wait_for_rows(generator, self.sent[name] + 1)

    def wait_for_rows(self, generator: Generator, count: int) -> None:
        self.run.until(lambda: generator.sent >= count, f"{count} rows sent")

    def kill(self, node: Node) -> None:
        self.cluster.kill(node)
        self.cluster.launch(node)
        self.cluster.wait_ready(node)

    def owner(self) -> Node:
        port = owner_port(self.cluster.web_urls[0], PARTS[0])
        return next(node for node in self.cluster.nodes(Kind.BROKER) if node.port == port)

    def kill_driver(self) -> None:
        self.run.kill()
        self.run.start()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    made = Story(tmp_path_factory.mktemp("archived"))
    try:
        made.tell()
        yield made
    finally:
        made.run.abandon()
        made.cluster.abandon()


@pytest.fixture(scope="module")
def archive(story: Story) -> Archive:
    return read_archive(story.run.out)


def check(values: pa.ChunkedArray) -> None:
    """Check that every row is there once, and is whole."""
    found: Counter[int] = Counter()
    seen = set()
    for chunk in values.chunks:
        for value in chunk.to_pylist():
            row = parse(value)
            found[row.producer] += 1
            seen.add(row)
    assert len(seen) == ROWS
    assert found == {number: ROWS // PARTITIONS for number in range(PARTITIONS)}


def test_every_kill_came_while_rows_were_still_to_come(story: Story) -> None:
    assert 1 <= story.hits["driver"] < story.hits["worker"]
    assert set(story.sent) == {"broker", "bookie", "zookeeper", "driver"}
    assert max(story.sent.values()) < ROWS
    assert story.run.runs >= 3
    assert sum(story.run.recorded().values()) == ROWS


def test_pyarrow_sees_every_row_once(archive: Archive) -> None:
    check(archive.dataset().to_table(columns=["value"])["value"])


def test_duckdb_sees_every_row_once(archive: Archive) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        query = "FROM read_parquet($1)"
        found = connection.sql(f"SELECT count(*), count(DISTINCT value) {query}", params=[archive.paths]).fetchall()
        told: Any = connection.sql(f"SELECT value {query}", params=[archive.paths]).to_arrow_table()
    assert found == [(ROWS, ROWS)]
    check(told["value"])


def test_spark_sees_every_row_once(archive: Archive, spark: Any) -> None:
    seen = spark.read.option("basePath", str(archive.folder)).parquet(*archive.paths)
    assert seen.select("value").distinct().count() == seen.count() == ROWS
    by_part = {row["__partition"]: row["count"] for row in seen.groupBy("__partition").count().collect()}
    assert set(by_part) == set(range(PARTITIONS))
    assert sum(by_part.values()) == ROWS
