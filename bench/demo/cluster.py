"""The demo's server as a cluster: two brokers, three bookies and a spare one, ZooKeeper and auto recovery as processes. A kill
ends the broker that serves the topic and one of the bookies, each with SIGKILL; the clients go on with what is left."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from bench.demo.messaging import TOPIC
from bench.demo.server import DemoError
from bench.local_cluster.cluster import ClusterError, LocalCluster
from bench.local_cluster.plan import HOST, Kind, Node, Plan
from bench.local_cluster.state import StateError

LOOKUP_S = 10.0
PLAN = Plan(zookeepers=1, bookies=4, brokers=2, recoveries=1)


class ClusterServer:
    """What `server.Server` is, of many processes. Their folders are in `folder`/cluster."""

    def __init__(self, folder: Path, plan: Plan = PLAN) -> None:
        self.start_s: list[float] = []
        """Seconds from each start to the last ready line."""
        # (Not bound to the thread that starts a process: the demo's threads kill and start.)
        self.cluster = LocalCluster.make(folder / "cluster", plan)
        self._down: list[Node] = []
        self._kills = 0
        self._owner: Node | None = None
        """The broker that serves the topic: asked for beforehand, for a kill has to come at once."""

    @property
    def url(self) -> str:
        return self.cluster.service_url

    @property
    def web(self) -> str:
        return self.cluster.web_urls[0]

    def start(self) -> None:
        """Start all of it, and later what was killed."""
        begun = time.perf_counter()
        try:
            if not self.start_s:
                self.cluster.up()
            for node in self._down:
                self.cluster.launch(node)
            for node in self._down:
                self.cluster.wait_ready(node)
        except (ClusterError, StateError) as error:
            raise DemoError(str(error)) from error
        self._down.clear()
        self.start_s.append(time.perf_counter() - begun)
        self._owner = self.owner()

    def kill(self) -> None:
        """SIGKILL the broker that serves the topic, and a bookie: each time another one."""
        bookies = self.cluster.nodes(Kind.BOOKIE)
        assert self._owner is not None, "the cluster was not started"
        self._down = [self._owner, bookies[self._kills % len(bookies)]]
        self._kills += 1
        try:
            for node in self._down:
                self.cluster.kill(node)
        except ClusterError as error:
            raise DemoError(str(error)) from error

    def owner(self) -> Node:
        """The broker that serves the topic. DemoError if none does."""
        url = f"{self.web}/lookup/v2/topic/{TOPIC.replace('://', '/')}"
        try:
            answer = httpx.get(url, timeout=LOOKUP_S, follow_redirects=True).raise_for_status().json()
        except httpx.HTTPError as error:
            raise DemoError(f"nobody says who serves the topic: {error!r}") from error
        for node in self.cluster.nodes(Kind.BROKER):
            if answer["brokerUrl"] == f"pulsar://{HOST}:{node.port}":
                return node
        raise DemoError(f"the topic is served by a broker of nobody: {answer}")

    def stop(self) -> None:
        """SIGTERM to all, and wait for a clean end."""
        told: list[str] = []
        self.cluster.down(told.append)
        forced = [line for line in told if "killing it" in line]
        if forced:
            raise DemoError("; ".join(forced))

    def abandon(self) -> None:
        """Make sure that nothing is left running, whatever happened."""
        self.cluster.abandon()

    def errors(self) -> list[str]:
        """Lines of the logs that ask for a human."""
        return self.cluster.errors()
