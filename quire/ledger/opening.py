"""Opening a ledger client on a metadata service: ZooKeeper by its address, any open store, or given ledger metadata.

store -> LAYOUT -> LedgerManager
      -> available, racks -> StoredBookies -> placement, and links to where the bookies are
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from quire.ledger.bookies.authentication import BookieCredentials
from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.watcher import BookieWatcher, StoredBookies, WatcherConfig, watched_links
from quire.ledger.bookies.weights import DiskWeights
from quire.ledger.client import LedgerClient
from quire.ledger.context import LedgerConfig
from quire.ledger.placement import EnsemblePlacementPolicy
from quire.metadata.errors import UnsupportedLayoutError
from quire.metadata.ledger_ids import LedgerIds, SequenceLedgerIds
from quire.metadata.ledgers import LedgerLayout, LedgerManager, read_layout
from quire.metadata.store import MetadataStore
from quire.world.doors import World
from quire.world.outbox import Turn

if TYPE_CHECKING:
    from quire.metadata.zookeeper.config import ZooKeeperConfig
    from quire.world.tls_options import TlsOptions
    from quire.world.tls_sides import ClientTls

TLS_REFRESH_S = 300.0
"""Time between two looks at the files of TLS, in seconds."""


@asynccontextmanager
async def open_client(
    world: World,
    metadata_service_uri: str,
    config: LedgerConfig | None = None,
    *,
    watcher: WatcherConfig | None = None,
    zookeeper: ZooKeeperConfig | None = None,
    tls: TlsOptions | None = None,
    credentials: BookieCredentials | None = None,
) -> AsyncIterator[LedgerClient]:
    """Open a ledger client on a cluster in ZooKeeper. Errors of the block are raised unchanged, not in a group.

    Args:
        world: Doors to clock, network and random numbers, e.g. `real_world()`.
        metadata_service_uri: Address of the cluster, e.g. `zk+hierarchical://host:port;host:port/ledgers`.
        config: Limits and choices of the client; None for the defaults.
        watcher: Health checks and other settings for watching bookies. The root comes from the URI.
        zookeeper: Credentials, TLS and timeouts. Servers and chroot come from the URI.
        tls: Files and rules of TLS to the bookies, which is then required; None: there is none.
        credentials: User and password for bookies that ask for them; None: there are none.

    Returns:
        The client, for `async with`. It is closed at the end of the block.

    Raises:
        InvalidConnectStringError: The URI is invalid.
        NoNodeError: The cluster was never initialised.
        UnsupportedLayoutError: The cluster has another layout than the URI says.
        MetadataUnavailableError: ZooKeeper cannot be reached.
        OSError, ValueError: The files of `tls` cannot be used.
    """
    side = None if tls is None else await _client_tls(world, tls)
    # Imported here because kazoo takes longer to import than a standalone server takes to start.
    from quire.metadata.zookeeper.config import SessionExpiredPolicy, ZooKeeperConfig, parse_connect_string
    from quire.metadata.zookeeper.store import open_store

    where = parse_connect_string(metadata_service_uri)
    if zookeeper is None:
        settings = ZooKeeperConfig(
            servers=where.servers, chroot=where.chroot, session_expired_policy=SessionExpiredPolicy.RECONNECT
        )
    else:
        settings = replace(zookeeper, servers=where.servers, chroot=where.chroot)
    store = await open_store(world, settings)
    try:
        root = where.ledgers_root
        async with open_client_on(
            world,
            store,
            config,
            root=root,
            layout=where.layout,
            watcher=watcher,
            tls=side,
            credentials=credentials,
        ) as client:
            yield client
    finally:
        with trio.CancelScope(shield=True):  # its thread must end, or the process does not
            await store.aclose()


@asynccontextmanager
async def open_client_on(
    world: World,
    store: MetadataStore,
    config: LedgerConfig | None = None,
    *,
    root: str = "/ledgers",
    layout: str | None = None,
    ids: LedgerIds | None = None,
    watcher: WatcherConfig | None = None,
    turn: Turn | None = None,
    tls: ClientTls | None = None,
    credentials: BookieCredentials | None = None,
) -> AsyncIterator[LedgerClient]:
    """Open a ledger client on an open metadata store, which stays open.

    Args:
        world: Doors to clock, network and random numbers.
        store: Open metadata store.
        config: Limits and choices of the client; None for the defaults.
        root: Path of the cluster's ledgers.
        layout: Name that the cluster's layout must have; None for any.
        ids: Source of ledger ids; None for the sequence that original clients use too.
        watcher: Settings for watching bookies.
        turn: Pass of the event loop that sends output at its end; see `TcpLink`.
        tls: TLS of the connections to bookies; None: there is none.
        credentials: User and password for bookies that ask for them; None: there are none.

    Returns:
        The client, for `async with`. It is closed at the end of the block.

    Raises:
        NoNodeError: The cluster was never initialised.
        UnsupportedLayoutError: The cluster has another layout than `layout`, or an unknown one.
        MetadataError: The metadata service failed.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            found = await _layout(store, root, layout)
            manager = LedgerManager(
                store,
                ids=ids or SequenceLedgerIds(store, root, layout=found),
                rng=world.rng,
                root=root,
                layout=found,
            )
            health = BookieHealth((config or LedgerConfig()).reads.failure_memory_s)
            rules = replace(watcher or WatcherConfig(), root=root)
            bookies = StoredBookies(store, world.rng, rules, faults=health)
            await nursery.start(bookies.run, name="bookie watcher")
            connect = watched_links(
                world.network, nursery, bookies, turn=turn, faults=world.faults, tls=tls, credentials=credentials
            )
            async with open_ledger_client(world, manager, connect, bookies, config, health=health) as client:
                if config is not None and config.placement.disk_weighted:
                    weights = DiskWeights(
                        client.bookies,
                        bookies,
                        interval_s=rules.weights_interval_s,
                        retry_s=rules.weights_retry_s,
                        answer_s=rules.weights_answer_s,
                    )
                    nursery.start_soon(weights.run, name="disk weights")
                yield client
        except Exception as error:
            failure = error
        finally:
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def open_ledger_client(
    world: World,
    ledgers: LedgerManager,
    connect: Callable[[str], BookieLink],
    bookies: Callable[[], list[str]] | BookieWatcher,
    config: LedgerConfig | None = None,
    *,
    placement: EnsemblePlacementPolicy | None = None,
    health: BookieHealth | None = None,
) -> AsyncIterator[LedgerClient]:
    """Open a ledger client whose tasks end with the block. Errors of the block are raised unchanged, not in a group.

    Args:
        world: Doors to clock, network and random numbers.
        ledgers: Ledger metadata.
        connect: Opens a link to a bookie id; may raise BookieUnavailableError.
        bookies: A function that returns the ids of available bookies, or a watcher.
        config: Limits and choices; None for the defaults.
        placement: Policy that overrides `bookies` and `config` for choosing ensembles.
        health: Health records to share with other parts of the process.

    Returns:
        The client, for `async with`.

    Raises:
        PlacementPolicyError: The configured policy cannot be loaded or created.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            client = LedgerClient(
                world,
                ledgers,
                connect,
                bookies,
                nursery=nursery,
                config=config,
                placement=placement,
                health=health,
            )
            try:
                yield client
            finally:
                client.close()
        except Exception as error:
            failure = error
        finally:
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _layout(store: MetadataStore, root: str, name: str | None) -> LedgerLayout:
    found = await read_layout(store, root)
    if name is not None and name != found.name:
        raise UnsupportedLayoutError(f"{root} has the layout {found.name}, not {name}")
    return found


async def _client_tls(world: World, options: TlsOptions) -> ClientTls:
    # Imported here, because most clients do not need it.
    from quire.world.real_tls import TlsFiles
    from quire.world.tls_sides import ClientTls

    files = await world.offload.run(partial(TlsFiles, options, server_side=False), name="tls files")
    return ClientTls(files, world.offload, refresh_s=TLS_REFRESH_S)
