"""`quire bookie` as processes on a real ZooKeeper, which can be killed, paused and started again on their folders and
ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quire.ledger import LedgerClient
from quire.ledger.errors import LedgerError
from quire.metadata.clusters import init_new_cluster
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.process import start_all
from tests.support.zookeeper import ZooKeeperProcess, own_root, run, shared_server

LOOPBACK = {"listeningInterface": "lo", "allowLoopback": "true"}
"""Settings for the original's shell, which reads the configuration files of Quire's bookies."""


class BookieCluster:
    """A cluster with a root of its own on a ZooKeeper, and Quire's bookies."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess, *, root: str | None = None) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.root = root or f"{own_root()}/ledgers"
        self.bookies: list[BookieProcess] = []

    @property
    def uri(self) -> str:
        return f"zk+hierarchical://127.0.0.1:{self.zookeeper.port}{self.root}"

    def initialize(self) -> BookieCluster:
        """Create the metadata as `initnewcluster` does, parents included."""

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
        """Start bookies at the same time; return them when they serve."""
        first = len(self.bookies)
        self.bookies += [
            BookieProcess(self.folder / f"bookie-{number}", self.uri, **LOOPBACK, **(conf or {}))
            for number in range(first, first + count)
        ]
        self.start(*self.bookies[first:])
        return self.bookies[first:]

    def start(self, *bookies: BookieProcess) -> None:
        start_all(*bookies)

    def by_id(self, bookie_id: str) -> BookieProcess:
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.kill()


@contextmanager
def cluster(
    folder: Path, count: int = 3, conf: Mapping[str, object] | None = None, zookeeper: ZooKeeperProcess | None = None
) -> Iterator[BookieCluster]:
    """Run a cluster of bookies; at the end check their logs and stop them."""
    made = BookieCluster(folder, zookeeper or shared_server()).initialize()
    try:
        made.add(count, conf)
        yield made
    finally:
        made.close()
    for bookie in made.bookies:
        bookie.check_log()


async def sees(client: LedgerClient, count: int) -> bool:
    """Return whether a ledger on this many bookies can be created; it is deleted again."""
    try:
        probe = await client.create(ensemble_size=count)
    except LedgerError:
        return False
    await client.delete(probe.ledger_id)
    return True
