"""Brokers as processes of their own, on a cluster of their own: a node of the shared ZooKeeper, and bookies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx

from quire.cli.initialize_cluster import NewCluster, initialize
from quire.metadata.zookeeper import ZooKeeperStore
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.process import ServerProcess
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess, opened, own_root

PATIENCE_S = 30.0
CLUSTER = "test"


class BrokerProcess(ServerProcess):
    """One broker's ports, configuration and log."""

    def __init__(self, folder: Path, metadata_url: str, **settings: object) -> None:
        self.port, self.web_port = free_port(), free_port()
        self.id = f"127.0.0.1:{self.web_port}"
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.web = f"http://{self.id}"
        given = {
            "clusterName": CLUSTER,
            "metadataStoreUrl": metadata_url,
            "brokerServicePort": self.port,
            "webServicePort": self.web_port,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            **settings,
        }
        super().__init__("broker", folder, given)

    def ready_line(self) -> str:
        return f"ready broker={self.url} web={self.web} pid="

    def ask(self, method: str, path: str, **options: object) -> httpx.Response:
        """Over REST, redirects not followed."""
        return httpx.request(method, f"{self.web}{path}", timeout=30, **options)  # type: ignore[arg-type]


class BrokerCluster:
    """A cluster that was initialised, with as many bookies; brokers are made by the test."""

    def __init__(self, folder: Path, server: ZooKeeperProcess, *, bookies: int = 3) -> None:
        self.folder = folder
        self.server = server
        self.chroot = own_root()
        self.metadata_url = f"zk:127.0.0.1:{server.port}{self.chroot}"
        self.brokers: list[BrokerProcess] = []
        self.ask(self._init)
        self.ledgers_uri = f"zk+hierarchical://127.0.0.1:{server.port}{self.chroot}/ledgers"
        self.bookies: list[BookieProcess] = []
        for _ in range(bookies):
            self.bookie()

    async def _init(self, store: ZooKeeperStore) -> None:
        new = NewCluster(name=CLUSTER, web_url="http://127.0.0.1:8080", broker_url="pulsar://127.0.0.1:6650")
        await initialize(store, new, real_world().rng)

    def ask(self, call: Callable[[ZooKeeperStore], object]) -> object:
        """What `call(store)` answers."""
        import trio

        async def main() -> object:
            async with opened(self.server.config(self.chroot)) as store:
                return await call(store)  # type: ignore[misc]

        return trio.run(main)

    def broker(self, **settings: object) -> BrokerProcess:
        made = BrokerProcess(
            self.folder / f"broker{len(self.brokers)}",
            self.metadata_url,
            **{
                "managedLedgerDefaultEnsembleSize": 3,
                "managedLedgerDefaultWriteQuorum": 3,
                "managedLedgerDefaultAckQuorum": 2,
                "metadataStoreSessionTimeoutMillis": 3000,
                **settings,
            },
        )
        self.brokers.append(made)
        return made

    def bookie(self, **settings: object) -> BookieProcess:
        made = BookieProcess(self.folder / f"bookie{len(self.bookies)}", self.ledgers_uri, **settings)
        self.bookies.append(made)
        return made

    def start_bookies(self, *bookies: BookieProcess) -> None:
        """All of them, or these, at once: each takes its second."""
        for bookie in bookies or self.bookies:
            bookie.launch()
        for bookie in bookies or self.bookies:
            bookie.wait_ready()

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it never came to pass: {what}"
            time.sleep(0.05)

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for bookie in self.bookies:
            bookie.kill()
