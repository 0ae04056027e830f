"""Brokers as processes, on a cluster of their own (a node of a ZooKeeper, and bookies), and official clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx2
import pulsar

from quire.metadata.zookeeper.store import ZooKeeperStore
from quire.servers.initialize_cluster import NewCluster, initialize
from quire.world.real import real_world
from tests.support import web
from tests.support.bookie_process import BookieProcess
from tests.support.process import ServerProcess, start_all, wait_until
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess, ask, own_root

T = TypeVar("T")

ADMIN = "/admin/v2"
CLUSTER = "test"


class Addressed(Protocol):
    """A broker of any kind, with the address for its clients."""

    url: str


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

    def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Make a REST request; redirects are not followed."""
        return web.request(method, f"{self.web}{path}", timeout=60, **options)


class BrokerCluster:
    """An initialised cluster with a number of bookies; the test creates the brokers."""

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

    def ask(self, call: Callable[[ZooKeeperStore], Awaitable[T]]) -> T:
        """Return the answer of `call(store)`."""
        return ask(self.server.config(self.chroot), call)

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
        """Start these bookies, or all of them, and wait until they serve."""
        start_all(*(bookies or self.bookies))

    def owner_of(self, topic: str) -> BrokerProcess:
        """Return the owner of a topic by the lookup of a live broker."""
        broker = next(each for each in self.brokers if each.process is not None)
        path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
        found = broker.ask("GET", path, follow_redirects=True).json()["brokerUrl"]
        return next(each for each in self.brokers if each.url == found)

    def other(self, broker: BrokerProcess) -> BrokerProcess:
        return next(each for each in self.brokers if each is not broker)

    def move(self, topic: str, target: BrokerProcess, seconds: float = 30.0) -> None:
        """Unload the topic's bundle to that broker from its owner, and wait until it has arrived."""
        self.owner_of(topic)  # one without an owner is not moved
        bundle = target.ask("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle").text
        path = f"{ADMIN}/namespaces/public/default/{bundle}/unload?destinationBroker={target.id}"
        answer = target.ask("PUT", path, follow_redirects=True)
        assert answer.status_code == 204, answer.text
        wait_until(lambda: self.owner_of(topic) is target, "the topic has moved", seconds)

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for bookie in self.bookies:
            bookie.kill()


@contextmanager
def client_of(*brokers: Addressed, timeout_s: int = 30) -> Iterator[pulsar.Client]:
    """Open an official client with the addresses of all these brokers; it is closed at the end."""
    url = "pulsar://" + ",".join(broker.url.removeprefix("pulsar://") for broker in brokers)
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    with closing(pulsar.Client(url, operation_timeout_seconds=timeout_s, logger=logger)) as made:
        yield made
