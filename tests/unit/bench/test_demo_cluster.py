"""tools.demo.cluster, on a cluster of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.support.refusals import refuses
from tools.demo.cluster import ClusterServer
from tools.demo.server import DemoError
from tools.local_cluster import rest
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.plan import Kind, Node


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of calls that the cluster receives."""
    told: list[str] = []

    def tell(name: str):
        def method(self: LocalCluster, node: Node | None = None, *rest: object) -> None:
            told.append(f"{name} {node.name}" if isinstance(node, Node) else name)

        return method

    for name in ("up", "kill", "launch", "wait_ready", "abandon"):
        monkeypatch.setattr(LocalCluster, name, tell(name))
    return told


def answer_lookups(monkeypatch: pytest.MonkeyPatch, answer: Callable[[httpx2.Request], httpx2.Response]) -> None:
    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    monkeypatch.setattr(rest, "http", lambda: client)


def serve_from(monkeypatch: pytest.MonkeyPatch, server: ClusterServer, number: int) -> None:
    """Let lookups answer that broker from now on."""
    broker = server.cluster.nodes(Kind.BROKER)[number]

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url == f"{server.web}/lookup/v2/topic/persistent/public/default/demo"
        return httpx2.Response(200, json={"brokerUrl": f"pulsar://127.0.0.1:{broker.port}"})

    answer_lookups(monkeypatch, answer)


def test_each_kill_ends_the_broker_that_serves_the_topic_and_another_bookie(tmp_path: Path, did, monkeypatch) -> None:
    server = ClusterServer(tmp_path)
    serve_from(monkeypatch, server, 1)
    server.start()
    server.kill()
    serve_from(monkeypatch, server, 0)
    server.start()
    server.kill()
    assert did == [
        *("up", "kill broker2", "kill bookie1"),
        *("launch broker2", "launch bookie1", "wait_ready broker2", "wait_ready bookie1"),
        *("kill broker1", "kill bookie2"),
    ]
    assert len(server.start_s) == 2


def test_what_the_cluster_cannot_do_ends_the_demo(tmp_path: Path, did, monkeypatch) -> None:
    server = ClusterServer(tmp_path)

    def fail(self: LocalCluster) -> None:
        raise ClusterError("bookie1 ended while it started")

    monkeypatch.setattr(LocalCluster, "up", fail)
    refuses(DemoError, lambda: server.start(), "bookie1 ended while it started")


def test_a_topic_that_nobody_serves_ends_the_demo(tmp_path: Path, did, monkeypatch) -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    answer_lookups(monkeypatch, refuse)
    refuses(DemoError, lambda: ClusterServer(tmp_path).start(), "the owner of the topic is unknown")
