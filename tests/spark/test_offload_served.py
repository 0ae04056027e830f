"""Ledgers that are only in files of tiered storage: deleted from bookies by a broker that is killed at each step, and
read on by consumers, streams and engines."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import httpx2
import pulsar
import pyarrow.dataset
import pytest

from quire.offload.folder import files as folder_files
from quire.offload.folder import read_manifest, topic_folder
from quire.spark.pipelines.offload import main
from quire.wire.bookkeeper.v2_messages import Rc
from tests.spark.peer import quiet_client
from tests.spark.support import Stream
from tests.support import web
from tests.support.broker_process import BrokerCluster, BrokerProcess
from tests.support.process import START_DEADLINE_S, wait_until
from tests.support.server import StandaloneProcess, standalone
from tests.support.zookeeper import ZooKeeperProcess

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
CONF: dict[str, object] = {
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "managedLedgerOffloadDriver": "quire-parquet",
    "managedLedgerOffloadDeletionLagMs": 0,
    "retentionCheckIntervalInSeconds": 1,
}
KILLED = """
import functools, os, signal, sys
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.client import LedgerClient
from quire.servers.broker.tiered_storage import TieredStorage
from quire.cli.main import main

point, number = sys.argv.pop(1), int(sys.argv.pop(1))
seen = []

def killing(owner, name, at, *, before):
    work = getattr(owner, name)
    async def run(*given, **named):
        if before:
            die(at)
        found = await work(*given, **named)
        if not before:
            die(at)
        return found
    setattr(owner, name, run)

def die(at):
    if at == point and leaving:
        seen.append(at)
        if len(seen) == number:
            print(f"killed at {point} {number}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

leaving = []
verify = TieredStorage.verify
async def verified(self, place):
    await verify(self, place)
    leaving.append(place.ledger_id)
    die("verified")
TieredStorage.verify = verified
killing(ManagedLedger, "delete_ledgers", "stored", before=True)
killing(LedgerClient, "delete", "deleted", before=False)
killing(ManagedLedger, "delete_ledgers", "done", before=False)
sys.exit(main())
"""
POINTS = ("verified", "stored", "deleted", "done")


def publish(client: pulsar.Client, topic: str, first: int, stop: int) -> None:
    """Publish in every form: alone and in batches, plain and compressed, with keys and properties."""
    for kind, residue in ((pulsar.CompressionType.NONE, 0), (pulsar.CompressionType.ZSTD, 1)):
        for batching in (False, True):
            producer = client.create_producer(
                topic, compression_type=kind, batching_enabled=batching, batching_max_messages=3,
                block_if_queue_full=True,
            )  # fmt: skip
            for number in range(first + residue + 2 * batching, stop, 4):
                producer.send_async(b"%d" % number, None, partition_key=f"k{number % 5}", properties={"n": str(number)})
            producer.flush()
            producer.close()


def take(client: pulsar.Client, topic: str, count: int) -> list[int]:
    """Receive and acknowledge, with a consumer of its own: one that is connected while a broker is killed gets again
    what it had not acknowledged."""
    consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    found = []
    for _ in range(count):
        message = consumer.receive(60_000)
        assert message.properties() == {"n": message.data().decode()}
        found.append(int(message.data()))
        consumer.acknowledge(message)
    consumer.close()
    return found


def offloading(server: StandaloneProcess | BrokerProcess, topic: str) -> list[dict[str, Any]]:
    answer = web.get(f"{server.web}/admin/v2/{topic.replace('://', '/')}/quireOffload", timeout=60)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["ledgers"]
    return found


def metadata_of(server: StandaloneProcess | BrokerProcess, topic: str) -> dict[int, str]:
    """Return the metadata that the ledgers of a topic have; "": none."""
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}/internalStats?metadata=true"
    return {each["ledgerId"]: each["metadata"] for each in web.get(url, timeout=60).json()["ledgers"]}


def offload(server: StandaloneProcess | BrokerProcess, topic: str, out: Path) -> None:
    assert main(["--service-url", server.url, "--admin-url", server.web, "--topic", topic, "--out", str(out)]) == 0


def left(server: StandaloneProcess | BrokerProcess, topic: str) -> list[int]:
    """Wait until all closed ledgers of a topic have left the bookies; return them."""
    wait_until(lambda: all(each["bookkeeperDeleted"] for each in offloading(server, topic)), "all left", PATIENCE_S)
    found = [int(each["ledgerId"]) for each in offloading(server, topic)]
    wait_until(lambda: not any(metadata_of(server, topic)[each] for each in found), "none stays", PATIENCE_S)
    return found


def engines_read(spark: Any, home: Path) -> list[int]:
    """Return the messages of the files as pyarrow, DuckDB and Spark (None: not) read them, which must be equal."""
    paths = [str(home / each.path) for each in read_manifest(home)]
    table = pyarrow.dataset.dataset(paths, format="parquet").to_table(columns=["value"])
    found = [int(value) for value in table["value"].to_pylist()]
    if spark is not None:
        frame = spark.read.parquet(*paths).orderBy("__ledger", "__entry", "__batch").select("value")
        assert [int(row["value"]) for row in frame.collect()] == found
    relation = duckdb.sql(f"SELECT value FROM read_parquet({paths!r}) ORDER BY __ledger, __entry, __batch")
    assert relation is not None
    rows = relation.fetchall()
    assert [int(value) for (value,) in rows] == found
    return found


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_a_consumer_reads_on_when_ledgers_have_left_the_bookie(topic: str, tmp_path: Path, out: Path) -> None:
    with standalone(tmp_path / "server", {**CONF, "fileSystemURI": out.as_uri()}) as server:
        client = quiet_client(server.url)
        take(client, topic, 0)
        publish(client, topic, 0, 60)
        publish(client, topic, 60, 200)
        received = take(client, topic, 37)
        offload(server, topic, out)
        assert len(left(server, topic)) >= 4
        server.kill()
        server.start()
        received += take(client, topic, 50)
        publish(client, topic, 200, 220)
        received += take(client, topic, 133)
        assert sorted(received) == list(range(220))
        files = engines_read(None, topic_folder(out, topic))
        assert received[: len(files)] == files
        client.close()
        counted(server, "brk_ledgeroffloader_read_offload_data_latency_count")
        files_go_with_their_ledgers(server, topic, topic_folder(out, topic))
        counted(server, 'brk_ledgeroffloader_delete_offload_ops_total{cluster="standalone",namespace="public/default",')


def counted(server: StandaloneProcess, beginning: str) -> None:
    """Check that the first series with this beginning is above 0."""
    text = web.get(f"{server.web}/metrics", timeout=60).text
    line = next(each for each in text.splitlines() if each.startswith(beginning))
    assert float(line.rpartition(" ")[2]) > 0, line


def files_go_with_their_ledgers(server: StandaloneProcess, topic: str, home: Path) -> None:
    """Truncate a topic whose messages are acknowledged, and delete it: no file stays."""
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}"
    offload(server, topic, home.parents[2])
    last = max(each["ledgerId"] for each in offloading(server, topic))
    assert web.request("DELETE", f"{url}/truncate", timeout=60).status_code == 204
    wait_until(lambda: all(each.ledger_id > last for each in folder_files(home)), "no file is left", PATIENCE_S)
    assert [each for each in read_manifest(home) if each.ledger <= last] == []
    client = quiet_client(server.url)
    publish(client, topic, 0, 60)
    client.close()
    offload(server, topic, home.parents[2])
    assert folder_files(home)
    assert web.request("DELETE", f"{url}?force=true", timeout=60).status_code == 204
    assert folder_files(home) == []
    assert read_manifest(home) == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    server = ZooKeeperProcess(folder / "zookeeper")
    try:
        server.start()
        made = BrokerCluster(folder, server)
        for bookie in made.bookies:
            bookie.settings["gcWaitTime"] = 1000
        made.start_bookies()
        yield made
        made.end()
    finally:
        server.kill()


@pytest.mark.full
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_wherever_a_broker_is_killed_in_the_deletion_each_message_is_read_once(
    spark: Any, cluster: BrokerCluster, topic: str, tmp_path: Path, out: Path, point: str, number: int
) -> None:
    conf = {**CONF, "fileSystemURI": out.as_uri(), "managedLedgerOffloadDeletionLagMs": -1}
    broker, other = cluster.broker(**conf), cluster.broker(**conf)
    try:
        broker.start()
        client = quiet_client(broker.url)
        options = {"service.url": broker.url, "admin.url": broker.web, "topic": topic}
        stream = Stream(spark, {**options, "subscription": "stream", "startingOffsets": "earliest"}, tmp_path)
        take(client, topic, 0)
        publish(client, topic, 0, 60)
        stream.drain()
        publish(client, topic, 60, 400)
        received = take(client, topic, 45)
        offload(broker, topic, out)
        broker.stop()

        broker.settings["managedLedgerOffloadDeletionLagMs"] = 0
        command = broker.command
        broker.command = [sys.executable, "-c", KILLED, point, str(number), "broker"]
        broker.launch()
        broker.wait_ready()
        web.get(f"{broker.web}/lookup/v2/topic/{topic.replace('://', '/')}", timeout=60)
        offloading_or_dead(broker, topic)
        assert broker.wait_ended(START_DEADLINE_S) == -signal.SIGKILL
        assert f"killed at {point} {number}" in broker.said()
        broker.command = command

        other.settings["managedLedgerOffloadDeletionLagMs"] = 0
        other.start()
        broker.start()
        gone = left(cluster.owner_of(topic), topic)
        assert len(gone) >= 8
        wires = [bookie.connect() for bookie in cluster.bookies]
        for ledger_id in gone:
            wait_until(
                partial(no_bookie_has, wires, ledger_id),
                f"no bookie has ledger {ledger_id}",
                PATIENCE_S,
            )
        received += take(client, topic, 100)
        publish(client, topic, 400, 420)
        received += take(client, topic, 275)
        assert sorted(received) == list(range(420))
        stream.drain()
        assert [int(value) for value in stream.values()] == received
        read = spark.read.format("quire").options(**options, readVia="bookies").load()
        assert sorted(int(row["value"]) for row in read.select("value").collect()) == list(range(420))
        files = engines_read(spark, topic_folder(out, topic))
        assert received[: len(files)] == files
        client.close()
    finally:
        for each in (broker, other):
            each.kill()
            cluster.brokers.remove(each)


def no_bookie_has(wires: list[Any], ledger_id: int) -> bool:
    return all(wire.read(ledger_id, 0)[0] in (Rc.NO_LEDGER, Rc.NO_ENTRY) for wire in wires)


def offloading_or_dead(broker: BrokerProcess, topic: str) -> None:
    """Make the broker open a topic; it may be killed meanwhile."""
    with contextlib.suppress(
        httpx2.HTTPError, AssertionError
    ):  # (another answer than 200 comes from a broker that dies)
        offloading(broker, topic)
