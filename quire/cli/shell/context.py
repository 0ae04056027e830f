"""Context of a command of the shell: configuration, doors, output, and access to the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from quire.cli.shell.arguments import LedgerIdFormat
from quire.cli.shell.entry_text import EntryFormat
from quire.cli.shell.output import Output
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.bookies.watcher import StoredBookies, WatcherConfig, watched_links
from quire.ledger.client import LedgerClient
from quire.ledger.context import LedgerConfig
from quire.ledger.opening import open_client_on, open_ledger_client
from quire.metadata import paths
from quire.metadata.bookies import Endpoint, check_bookie_id, service_info
from quire.metadata.errors import MalformedMetadataError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, read_layout
from quire.metadata.store import MetadataStore
from quire.servers.bookie.auth_keys import bookie_credentials
from quire.servers.bookie.client_tls import client_tls
from quire.servers.cluster_config import ClusterConfig
from quire.servers.process import closing
from quire.world.doors import World

OpenStore = Callable[[World, ClusterConfig], Awaitable[MetadataStore]]
Ask = Callable[[str], bool]
Connect = Callable[[str], BookieLink]

TICKS_PER_TIMEOUT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    world: World
    config: ClusterConfig
    output: Output
    ask: Ask
    """Asks for confirmation at the terminal; False if there is none."""
    open_store: OpenStore
    """Connects to the metadata service of the configuration."""
    ledger_ids: LedgerIdFormat = LedgerIdFormat.LONG
    entries: EntryFormat = EntryFormat.STRING

    @property
    def root(self) -> str:
        """Return the root of ledgers and bookies in the store. Raises InvalidConnectStringError."""
        return self.config.connect_string.ledgers_root

    @asynccontextmanager
    async def store(self) -> AsyncIterator[MetadataStore]:
        """Open the metadata store, until the block ends. Raises MetadataError."""
        async with closing(await self.open_store(self.world, self.config)) as store:
            yield store

    async def ledgers(self, store: MetadataStore) -> LedgerManager:
        """Return the ledgers of the cluster. Raises NoNodeError if there is no cluster, UnsupportedLayoutError."""
        layout = await read_layout(store, self.root)
        ids = SequenceLedgerIds(store, self.root, layout=layout)
        return LedgerManager(store, ids=ids, rng=self.world.rng, root=self.root, layout=layout)

    @asynccontextmanager
    async def client(
        self, store: MetadataStore, config: LedgerConfig | None = None, *, only: str | None = None
    ) -> AsyncIterator[LedgerClient]:
        """Open a ledger client of the cluster, which puts entries on the bookie `only`, if given. Raises
        MetadataError."""
        if only is None:
            tls = await client_tls(self.world, self.config.tls)
            known = await bookie_credentials(self.world, self.config.auth.password_file)
            async with open_client_on(self.world, store, config, root=self.root, tls=tls, credentials=known) as client:
                yield client
            return
        manager = await self.ledgers(store)
        async with (
            self._links(store) as (_, connect),
            open_ledger_client(self.world, manager, connect, lambda: [only], config) as client,
        ):
            yield client

    @asynccontextmanager
    async def bookies(self, store: MetadataStore, *, timeout_s: float) -> AsyncIterator[BookieClient]:
        """Open connections to single bookies, by id. Raises NoNodeError if there is no cluster."""
        async with self._links(store) as (nursery, connect):
            wheel = DeadlineWheel(timeout_s / TICKS_PER_TIMEOUT)
            nursery.start_soon(wheel.run, name="deadlines")
            client = BookieClient(connect, wheel, timeout_s, protocol="v3")
            try:
                yield client
            finally:
                client.close()

    @asynccontextmanager
    async def _links(self, store: MetadataStore) -> AsyncIterator[tuple[trio.Nursery, Connect]]:
        """Open links to bookies, and the nursery that owns them. Errors of the block are raised unchanged."""
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            try:
                watcher = StoredBookies(store, self.world.rng, WatcherConfig(root=self.root))
                await nursery.start(watcher.run, name="bookie watcher")
                tls = await client_tls(self.world, self.config.tls)
                known = await bookie_credentials(self.world, self.config.auth.password_file)
                yield nursery, watched_links(self.world.network, nursery, watcher, tls=tls, credentials=known)
            except Exception as error:
                failure = error
            finally:
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def endpoint(self, store: MetadataStore, bookie_id: str) -> Endpoint | None:
        """Return the address of a registered bookie; None if it is not registered, or has no address."""
        try:
            info = await service_info(store, bookie_id, root=self.root)
        except MalformedMetadataError:
            return None
        return None if info is None else info.bookie_endpoint

    def cookie_path(self, bookie_id: str) -> str:
        """Return the path of a cookie. Raises InvalidPathError."""
        return paths.join(self.root, f"cookies/{check_bookie_id(bookie_id)}")


async def open_zookeeper(world: World, config: ClusterConfig) -> MetadataStore:
    """Connect to ZooKeeper. Raises MetadataUnavailableError without an answer within zkTimeout, NoNodeError if the
    chroot is missing."""
    # Imported here, because kazoo takes longer to import than a command on local files to run.
    from quire.metadata.zookeeper.store import open_store

    store = await open_store(world, config.zookeeper)
    try:
        # The connected server may lag behind, and a refusal because of running bookies must see them.
        await store.sync()
    except BaseException:
        with trio.CancelScope(shield=True):
            await store.aclose()
        raise
    return store
