"""Transactions by Pulsar's own Java client: the stories of tests/interop/pulsar, on one server and over a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.interop.java_client import run
from tests.support.broker_process import BrokerCluster
from tests.support.process import start_all
from tests.support.server import standalone
from tests.support.zookeeper import ZooKeeperProcess

DEADLINE_S = 240.0
ON: dict[str, Any] = {"transactionCoordinatorEnabled": "true"}


def stories(url: str, *arguments: str) -> str:
    """Return the lines of the program; it must have found nothing wrong."""
    lines = run("Transactions", url, "persistent://public/default/t", *arguments, seconds=DEADLINE_S)
    assert "all stories hold" in lines, lines
    return lines


def test_every_type_of_subscription_takes_part(tmp_path: Path) -> None:
    with standalone(tmp_path, ON) as server:
        lines = stories(server.url)
    assert lines.count("consumed and produced") == 8  # four types, batched or not


def test_a_kill_leaves_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    with standalone(tmp_path, ON) as server:
        stories(server.url, "leave")
        server.kill()
        server.start()
        assert "found" in stories(server.url, "find")


def test_two_brokers_share_coordinators_and_participants(tmp_path: Path) -> None:
    """The broker that a transaction was ended on dies, and the other one finishes it."""
    server = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=500).start()
    cluster = BrokerCluster(tmp_path / "cluster", server)
    try:
        cluster.start_bookies()
        first, second = cluster.broker(**ON), cluster.broker(**ON)
        start_all(first, second)
        lines = stories(f"pulsar://127.0.0.1:{first.port},127.0.0.1:{second.port}")
        assert lines.count("consumed and produced") == 8
        stories(first.url, "leave")
        first.kill()
        assert "found" in stories(second.url, "find")
    finally:
        cluster.end()
        server.kill()
    for broker in cluster.brokers:
        broker.check_log()
