"""`quire bookie` as processes on a real ZooKeeper, each to be killed, paused and started again on its folders and its port."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quire.metadata.clusters import init_new_cluster
from quire.metadata.zookeeper import ZooKeeperConfig, open_store
from quire.world.real import real_world
from tests.support.process import ServerProcess
from tests.support.server import free_port
from tests.support.zookeeper import ZooKeeperProcess, own_root, run, shared_server

SESSION_TIMEOUT_MS = 4000
"""Of bookies: so long is one that died still registered, and so long does its successor wait to register."""


class BookieProcess(ServerProcess):
    """One folder, one port. `bookie_id` None: 127.0.0.1:port."""

    def __init__(
        self, folder: Path, metadata_uri: str, *, bookie_id: str | None = None, conf: Mapping[str, object] | None = None
    ) -> None:
        self.port = free_port()
        self.id = bookie_id or f"127.0.0.1:{self.port}"
        settings = {
            "bookiePort": self.port,
            "bookieId": self.id,
            "advertisedAddress": "127.0.0.1",
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "metadataServiceUri": metadata_uri,
            "journalDirectories": folder / "journal",
            "ledgerDirectories": folder / "ledgers",
            "journalPreAllocSizeMB": 1,
            "zkTimeout": SESSION_TIMEOUT_MS,
            **(conf or {}),
        }
        super().__init__("bookie", folder, settings)

    def ready_line(self) -> str:
        return f"ready bookie={re.escape(self.id)} "


class BookieCluster:
    """A cluster with a root of its own on a ZooKeeper, and bookies of ours."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess, *, root: str | None = None) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.root = root or f"{own_root()}/ledgers"
        self.bookies: list[BookieProcess] = []

    @property
    def uri(self) -> str:
        return f"zk+hierarchical://127.0.0.1:{self.zookeeper.port}{self.root}"

    def initialize(self) -> BookieCluster:
        """What `initnewcluster` does, parents included."""

        async def main() -> None:
            world = real_world()
            store = await open_store(world, ZooKeeperConfig(servers=(("127.0.0.1", self.zookeeper.port),)))
            try:
                parent = self.root.rpartition("/")[0]
                if parent and await store.get(parent) is None:
                    await store.create(parent, b"", make_parents=True)
                await init_new_cluster(store, self.root, rng=world.rng)
            finally:
                await store.aclose()

        run(main)
        return self

    def add(self, count: int = 1, conf: Mapping[str, object] | None = None) -> list[BookieProcess]:
        """Bookies that serve, started at once."""
        first = len(self.bookies)
        self.bookies += [
            BookieProcess(self.folder / f"bookie-{number}", self.uri, conf=conf)
            for number in range(first, first + count)
        ]
        self.start(*self.bookies[first:])
        return self.bookies[first:]

    def start(self, *bookies: BookieProcess) -> None:
        for bookie in bookies:
            bookie.launch()
        for bookie in bookies:
            bookie.wait_ready()

    def by_id(self, bookie_id: str) -> BookieProcess:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.kill()


@contextmanager
def cluster(
    folder: Path, count: int = 3, conf: Mapping[str, object] | None = None, zookeeper: ZooKeeperProcess | None = None
) -> Iterator[BookieCluster]:
    """A cluster of started bookies; their logs are checked and they are gone at the end."""
    made = BookieCluster(folder, zookeeper or shared_server()).initialize()
    try:
        made.add(count, conf)
        yield made
    finally:
        made.close()
    for bookie in made.bookies:
        bookie.check_log()
