"""The demo's server as a cluster: two brokers, three bookies and a spare one, ZooKeeper and auto recovery as processes.
A kill ends the broker that serves the topic and one of the bookies, each with SIGKILL; the clients go on with what is
left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tools.demo.messaging import TOPIC
from tools.demo.server import DemoError
from tools.local_cluster.cluster import STOP_S, LocalCluster
from tools.local_cluster.errors import ClusterError
from tools.local_cluster.lookup import owner_port
from tools.local_cluster.plan import Kind, Node, Plan

PLAN = Plan(zookeepers=1, bookies=4, brokers=2, recoveries=1)


@contextmanager
def _translated() -> Iterator[None]:
    """Translate failures of the cluster to DemoError."""
    try:
        yield
    except ClusterError as error:
        raise DemoError(str(error)) from error


class ClusterServer:
    """Equivalent of `server.Server` made of many processes, in `folder`/cluster."""

    def __init__(self, folder: Path, plan: Plan = PLAN) -> None:
        self.start_s: list[float] = []
        """Seconds from each start to the last ready line."""
        # Not bound to the thread that starts a process, because the demo's threads kill and start.
        self.cluster = LocalCluster.make(folder / "cluster", plan)
        self._down: list[Node] = []
        self._kills = 0
        self._owner: Node | None = None
        """The broker that serves the topic, looked up in advance, because a kill has to come at once."""

    @property
    def url(self) -> str:
        return self.cluster.service_url

    @property
    def web(self) -> str:
        return self.cluster.web_urls[0]

    def start(self) -> None:
        """Start all processes, and later the killed ones."""
        begun = time.perf_counter()
        with _translated():
            if not self.start_s:
                self.cluster.up()
            for node in self._down:
                self.cluster.launch(node)
            for node in self._down:
                self.cluster.wait_ready(node)
        self._down.clear()
        self.start_s.append(time.perf_counter() - begun)
        self._owner = self.owner()

    def kill(self) -> None:
        """Send SIGKILL to the broker that serves the topic, and to a bookie, another one each time."""
        bookies = self.cluster.nodes(Kind.BOOKIE)
        assert self._owner is not None, "the cluster was not started"
        self._down = [self._owner, bookies[self._kills % len(bookies)]]
        self._kills += 1
        with _translated():
            for node in self._down:
                self.cluster.kill(node)

    def owner(self) -> Node:
        """Return the broker that serves the topic. Raises DemoError if none does."""
        try:
            port = owner_port(self.web, TOPIC)
        except httpx2.HTTPError as error:
            raise DemoError(f"the owner of the topic is unknown: {error!r}") from error
        for node in self.cluster.nodes(Kind.BROKER):
            if node.port == port:
                return node
        raise DemoError(f"the topic is served by an unknown broker, on port {port}")

    def stop(self) -> None:
        """Send SIGTERM to all, and wait for a clean end."""
        with _translated():
            killed = self.cluster.down()
        if killed:
            raise DemoError(f"{', '.join(killed)} did not stop within {STOP_S:g} s of SIGTERM")

    def abandon(self) -> None:
        """Make sure that nothing is left running, whatever happened."""
        self.cluster.abandon()

    def errors(self) -> list[str]:
        """Return the lines of the logs at level ERROR."""
        return self.cluster.errors()
