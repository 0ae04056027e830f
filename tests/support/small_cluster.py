"""A cluster in this process: bookies and a broker on real ports, on metadata in memory, on a loop in a thread.

Blocking code of a test (planners, readers, official clients) runs beside it. It starts in about a second.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from quire.ledger.opening import open_client_on
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.servers.addresses import Addresses
from quire.servers.bookie import process as bookie_process
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located
from quire.servers.broker import process as broker_process
from quire.servers.broker.config import BROKER
from quire.servers.initialize_cluster import NewCluster, initialize
from quire.world.outbox import Turn
from quire.world.real import real_world

HOST = "127.0.0.1"
NAME = "small"
START_S = 30.0
STOP_S = 30.0

T = TypeVar("T")

KEYS: Mapping[str, object] = {
    "clusterName": NAME,
    "bindAddress": HOST,
    "advertisedAddress": HOST,
    "brokerServicePort": 0,
    "webServicePort": 0,
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "loadBalancerEnabled": False,
    "brokerShutdownTimeoutMs": 2000,
}


class SmallCluster:
    """Bookies and one broker; use `small_cluster`."""

    def __init__(self, folder: Path, bookies: int, keys: Mapping[str, object]) -> None:
        self._folder = folder
        self._count = bookies
        self._keys = {**KEYS, **keys}
        self._started = threading.Event()
        self._stop = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._run, name="small cluster", daemon=True)
        self.error: BaseException | None = None
        self.bookies: list[str] = []
        """Ids, which are addresses."""
        self.url = ""
        self.web = ""

    @property
    def options(self) -> dict[str, str]:
        """Return the addresses as options of the Spark source."""
        return {"service.url": self.url, "admin.url": self.web}

    def start(self) -> None:
        self._thread.start()
        if not self._started.wait(START_S) or self.error is not None:
            raise AssertionError(f"the cluster did not start: {self.error!r}") from self.error

    def close(self) -> None:
        if self._token is not None and self._thread.is_alive():
            self._token.run_sync_soon(self._stop.set)
            self._thread.join(STOP_S)
        assert self.error is None, f"the cluster ended: {self.error!r}"

    def call(self, function: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run `await function(*args)` on the cluster's loop."""
        assert self._token is not None, "it is started"
        return trio.from_thread.run(function, *args, trio_token=self._token)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self.error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        world, tree = real_world(), MemoryTree()
        store = MemoryStore(tree)
        await initialize_layout(store, rng=world.rng)
        await initialize(store, NewCluster(name=NAME, web_url=f"http://{HOST}:1"), world.rng)
        async with AsyncExitStack() as stack:
            bookies = await stack.enter_async_context(trio.open_nursery())
            for number in range(self._count):
                await bookies.start(self._bookie, world, tree, number)
            async with trio.open_nursery() as brokers:
                await brokers.start(self._broker, world, tree)
                self._started.set()
                await self._stop.wait()

    async def _bookie(
        self, world: Any, tree: MemoryTree, number: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        folder = self._folder / f"bookie{number}"
        config = BOOKIE.build(
            {
                "advertisedAddress": HOST,
                "bookiePort": 0,
                "allowEphemeralPorts": True,
                "allowLoopback": True,
                "listeningInterface": "lo",
                "journalDirectories": (str(folder / "journal"),),
                "ledgerDirectories": (str(folder / "ledgers"),),
                "metadataServiceUri": "zk+hierarchical://127.0.0.1:1/ledgers",
            }
        )
        there = located(config, "/ledgers")

        def ready(found: bookie_process.Ready) -> None:
            self.bookies.append(found.config.id)
            task_status.started()

        await bookie_process.serve(world, there, MemoryStore(tree), ready=ready, stop=self._stop)

    async def _broker(
        self, world: Any, tree: MemoryTree, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        config = broker_process.located(BROKER.build(self._keys))
        store, turn, keys = MemoryStore(tree), Turn(), config.ledger_client

        def ready(found: Addresses) -> None:
            self.url, self.web = found.broker_url, found.web_url
            task_status.started()

        client = open_client_on(world, store, keys.client, watcher=keys.watcher, turn=turn)
        async with client as ledgers:
            run = partial(broker_process.run_broker_on, world, store, ledgers, config)
            await run(ready=ready, stop=self._stop, turn=turn)


@contextmanager
def small_cluster(folder: Path, bookies: int = 4, keys: Mapping[str, object] | None = None) -> Iterator[SmallCluster]:
    """Run a cluster; `keys`: further keys of the broker."""
    made = SmallCluster(folder, bookies, keys or {})
    made.start()
    try:
        yield made
    finally:
        made.close()
