"""Runbooks of a cluster: the trouble is planted in one of processes, and the page's own commands find it and end it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.pages.machines import programs
from tests.support.pages.walk import Walk
from tests.support.process import wait_until
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.plan import Kind, Node, Plan

pytestmark = [pytest.mark.cluster, pytest.mark.full]
UNITS = {Kind.ZOOKEEPER: "quire-zookeeper", Kind.BOOKIE: "quire-bookie", Kind.BROKER: "quire-broker"}
MACHINES = {Kind.ZOOKEEPER: "zk", Kind.BOOKIE: "bk", Kind.BROKER: "broker"}


class Machines:
    """A cluster whose processes the commands of a page reach by the names of machines."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        units = {f"{MACHINES[node.kind]}{node.number} {UNITS[node.kind]}": node.name for node in cluster.nodes(*UNITS)}
        self.programs = programs(folder / "programs", cluster.folder, units)
        self.names: dict[str, object] = {"/etc/quire/bk_server.conf": cluster.shell_conf}
        for node in cluster.nodes(*UNITS):
            name = f"{MACHINES[node.kind]}{node.number}"
            if node.kind is Kind.BOOKIE:
                self.names[f"{name}:3181"] = node.address
            elif node.kind is Kind.BROKER:
                self.names |= {f"{name}:6650": node.address, f"{name}:8080": f"127.0.0.1:{node.ports[1]}"}

    def node(self, name: str) -> Node:
        return self.cluster.state.node(name)

    def walk(self, page: str, more: dict[str, object] | None = None) -> Walk:
        text = (Path(__file__).parents[2] / "docs/runbooks" / page).read_text()
        names = {name: value for name, value in self.names.items() if name in text} | (more or {})
        broker = self.cluster.nodes(Kind.BROKER)[0]
        web, service = f"http://127.0.0.1:{broker.ports[1]}", f"pulsar://{broker.address}"
        return Walk(f"runbooks/{page}", self.folder / page, names, web=web, service=service, programs=self.programs)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("runbooks")
    quick = {"openLedgerRereplicationGracePeriod": 500, "rwRereplicateBackoffMs": 200}
    plan = Plan(
        zookeepers=3, bookies=4, brokers=2, recoveries=1, session_timeout_ms=10_000, conf={Kind.RECOVERY: quick}
    )
    cluster = LocalCluster.make(folder / "cluster", plan)
    try:
        cluster.up()
        yield Machines(cluster, folder)
    finally:
        cluster.refresh()
        cluster.abandon()
        shutil.rmtree(folder, ignore_errors=True)


def publish(url: str, topic: str, count: int, *, subscription: str = "audit") -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        client.subscribe(topic, subscription, initial_position=pulsar.InitialPosition.Earliest).close()
        producer = client.create_producer(topic)
        for number in range(count):
            producer.send_async(b"order-%d" % number, None)
        producer.flush()
    finally:
        client.close()


def consume(url: str, topic: str, count: int, *, subscription: str = "audit") -> list[bytes]:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(topic, subscription, initial_position=pulsar.InitialPosition.Earliest)
        found = []
        for _ in range(count):
            message = consumer.receive(30_000)
            consumer.acknowledge(message)
            found.append(message.data())
        consumer.close()
        return found
    finally:
        client.close()


def orders(count: int) -> list[bytes]:
    return [b"order-%d" % number for number in range(count)]


def test_zookeeper_is_gone(machines: Machines) -> None:
    cluster = machines.cluster
    publish(cluster.service_url, "orders", 10)
    for name in ("zk2", "zk3"):
        cluster.kill(machines.node(name))
    more: dict[str, object] = {"/var/lib/quire/zookeeper": machines.node("zk3").folder(cluster.folder)}
    ports = [machines.node(f"zk{number}").port for number in (1, 2, 3)]
    more |= {
        "2181 2182 2183": " ".join(map(str, ports)),
        "port 2182": f"port {ports[1]}",
        "port 2183": f"port {ports[2]}",
    }
    more |= {"/dev/tcp/zk1": "/dev/tcp/127.0.0.1", "/dev/tcp/zk3/2183": f"/dev/tcp/127.0.0.1/{ports[2]}"}
    with machines.walk("zookeeper-gone.md", more) as page:
        page.section("See it")
        page.section("What still works")
        page.section("Bring a majority back")
        page.section("A server has lost its disk")
        page.section("Check")
    cluster.refresh()
    assert all(cluster.is_alive(node) for node in cluster.nodes())
    assert consume(cluster.service_url, "orders", 11) == [*orders(10), b"without ZooKeeper"]


def test_a_broker_flaps(machines: Machines) -> None:
    cluster = machines.cluster
    publish(cluster.service_url, "flapping", 5)
    broker = machines.node("broker2")
    cluster.stop(broker)
    taker = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(broker.ports[1])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(2):  # as a service manager does, again and again
            cluster.launch(broker)
            wait_until(lambda: not cluster.is_alive(broker), "it ends because its port is taken", 60)
        more: dict[str, object] = {
            "/etc/quire/broker.conf": broker.conf(cluster.folder),
            "/var/log/quire/broker.log": broker.log(cluster.folder),
            "list mine": "list local",
            "topics lookup orders": "topics lookup flapping",
        }
        with machines.walk("broker-flaps.md", more) as page:
            page.section("See it")
            page.section("Take it out of service")
            page.section("Find the cause")
            assert f"process {taker.pid}" in page.outputs[-1]
            taker.send_signal(signal.SIGTERM)
            taker.wait()
            page.section("Start it again")
            page.section("Check")
    finally:
        taker.kill()
        taker.wait()
    cluster.refresh()
    assert cluster.is_alive(broker)
    assert consume(cluster.service_url, "flapping", 5) == orders(5)


def test_a_bookie_is_lost(machines: Machines) -> None:
    cluster = machines.cluster
    for number in range(4):
        publish(cluster.service_url, f"lost-{number}", 20)
    bookie = machines.node("bookie3")
    cluster.kill(bookie)
    with machines.walk("bookie-lost.md") as page:
        page.section("See it")
        page.section("The machine can be repaired soon")
        cluster.refresh()
        cluster.kill(bookie)
        shutil.rmtree(bookie.folder(cluster.folder) / "ledgers")
        page.section("The machine does not come back")
        page.section("Check")
    for number in range(4):
        assert consume(cluster.service_url, f"lost-{number}", 20) == orders(20)
