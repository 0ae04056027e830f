"""The runbook from one machine to three: a standalone server's messages, ids and positions are those of the cluster."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from tests.support import web
from tests.support.pages.machines import programs
from tests.support.pages.walk import Walk
from tests.support.process import wait_until
from tests.support.server import StandaloneProcess, standalone
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Plan

pytestmark = [pytest.mark.cluster, pytest.mark.full]
COUNT = 400
TOPICS = ("orders", "persistent://public/default/parts")
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
Seen = dict[str, list[tuple[str, bytes, str]]]


def fill(server: StandaloneProcess) -> dict[bytes, bool]:
    """Publish to two topics, and acknowledge some messages singly; return the messages of `orders` by whether they are
    acknowledged."""
    url = f"{server.web}/admin/v2/persistent/public/default/parts/partitions"
    assert web.request("PUT", url, json=3).is_success
    client = pulsar.Client(server.url, logger=QUIET)
    consumer = client.subscribe(
        "orders", "audit", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    client.subscribe("parts", "late", initial_position=pulsar.InitialPosition.Earliest).close()
    for topic in TOPICS:
        producer = client.create_producer(
            topic,
            schema=pulsar.schema.StringSchema(),
            batching_enabled=topic != "orders",
            producer_name=f"p-{topic[-5:]}",
        )
        for number in range(COUNT):
            producer.send_async(f"{number}", None, partition_key=f"k{number % 7}", properties={"n": f"{number}"})
        producer.flush()
        producer.close()
    acknowledged = {}
    for _ in range(COUNT):
        message = consumer.receive(10_000)
        number = int(message.data())
        acknowledged[message.data()] = number < 100 or number % 3 == 0
        if acknowledged[message.data()]:
            consumer.acknowledge(message)
    client.close()
    return acknowledged


def read(url: str) -> Seen:
    """Return all messages of all topics with their ids."""
    client = pulsar.Client(url, logger=QUIET)
    found: Seen = {}
    try:
        for topic in ("orders", *(f"parts-partition-{number}" for number in range(3))):
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            seen = found[topic] = []
            while reader.has_message_available():
                message = reader.read_next(10_000)
                seen.append((str(message.message_id()), message.data(), message.properties()["n"]))
            reader.close()
    finally:
        client.close()
    return found


def left(url: str, count: int) -> set[bytes]:
    """Return what a subscription has left, and acknowledge it."""
    client = pulsar.Client(url, logger=QUIET)
    try:
        consumer = client.subscribe("orders", "audit", pulsar.ConsumerType.Shared)
        found = set()
        for _ in range(count):
            message = consumer.receive(20_000)
            consumer.acknowledge(message)
            found.add(message.data())
        with pytest.raises(pulsar.Timeout):
            consumer.receive(500)
        return found
    finally:
        client.close()


def test_from_one_machine_to_three(tmp_path: Path) -> None:
    small: dict[str, object] = {
        "managedLedgerMaxEntriesPerLedger": 60,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    with standalone(tmp_path / "one", small) as server:
        acknowledged = fill(server)
        before = read(server.url)
        cluster = LocalCluster.make(
            tmp_path / "cluster",
            Plan(bookies=3, brokers=2, recoveries=1, conf={Kind.BROKER: {"clusterName": "standalone", **small}}),
            bound=True,
        )
        first, *_ = cluster.nodes(Kind.BOOKIE)
        conf = first.conf(cluster.folder)
        lines = [line for line in conf.read_text().splitlines() if "Directories=" not in line]
        lines += [f"{kind}Directories={server.data}/bookie/{folder}" for kind, folder in FOLDERS]
        conf.write_text("\n".join(lines) + "\n")
        assert server.process is not None
        units: dict[str, str | int] = {
            "zk1 quire-zookeeper": "zk1",
            "bk1 quire-standalone": server.process.pid,
            "bk1 quire-autorecovery": "recovery1",
            "broker1 quire-broker": "broker1",
            "broker2 quire-broker": "broker2",
            **{f"bk{number} quire-bookie": f"bookie{number}" for number in (1, 2, 3)},
        }
        broker1 = cluster.nodes(Kind.BROKER)[0]
        names: dict[str, object] = {
            "/etc/quire/bk_server.conf": conf,
            "/var/lib/quire": server.data,
            "zk1:2181": cluster.nodes(Kind.ZOOKEEPER)[0].address,
            "bk1:3181": first.address,
            "broker1:8080": f"127.0.0.1:{broker1.ports[1]}",
            "broker1:6650": broker1.address,
        }
        page = Walk(
            "runbooks/one-to-three.md",
            tmp_path / "walk",
            names,
            web=f"http://127.0.0.1:{broker1.ports[1]}",
            service=f"pulsar://{broker1.address}",
            programs=programs(tmp_path / "programs", cluster.folder, units),
        )
        try:
            with page:
                page.section("Prepare")
                page.section("Stop the standalone server")
                server.gone()
                page.section("Move the metadata")
                code, said = server.refused()
                assert (code, "the cookie of" in said) == (1, True), "two servers cannot continue from the same data"
                page.section("Start the cluster")
                cluster.refresh()
                assert read(cluster.service_url) == before
                page.section("Raise the copies")
                page.section("Check")
            cluster.refresh()
            cluster.add_bookie()  # new ledgers need three
            cluster.kill(first)
            # Until brokers know that it is gone, a client's request for the end of a topic may fail.
            wait_until(lambda: read(cluster.service_url) == before, "everything is on the other bookies too", 60)
            wanted = {data for data, is_acknowledged in acknowledged.items() if not is_acknowledged}
            assert left(cluster.service_url, len(wanted)) == wanted
        finally:
            cluster.refresh()
            cluster.abandon()
        server.announced.append("cookie")


FOLDERS = (("journal", "journal"), ("ledger", "ledgers"))
