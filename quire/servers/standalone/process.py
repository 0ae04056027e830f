"""A whole server in one process: embedded metadata, one bookie, one broker. The simulator runs this very function.

Taken down from the inside out: connections, topics (cursors and ledgers are closed), the bookie (flushed), metadata.
Correctness does not need any of it: a killed server is an ordinary server. So a server that cannot trust its disk any
more, because a sync failed, ends as if it were killed, and the next start recovers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.disks.watch import DiskWatch
from bookie.errors import StorageFailedError
from bookie.sessions.session import BookieSession
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from broker.turn import Turn
from cursors.config import CursorConfig
from managed_ledger.config import LogConfig, ManagedLedgerConfig
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.bookies.link_local import LocalLink
from quire.ledger.client import open_ledger_client
from quire.ledger.context import LedgerConfig
from quire.metadata.errors import SessionExpiredError
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.rocksdb import open_store
from quire.servers.addresses import Addresses, naming
from quire.servers.broker.keys import broker_options
from quire.servers.errors import DataDirectoryError
from quire.servers.process import end_at_fault, end_when
from quire.servers.serving import broker_port
from quire.servers.standalone.config import StandaloneConfig
from quire.servers.standalone.data_directory import DataDirectory, claim
from quire.servers.standalone.metadata import initialize, next_incarnation
from quire.service.config import narrow
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts
from quire.wire.bookkeeper import v2
from quire.world.doors import World

log = get_logger(__name__)

BOOKIE_ID = "standalone:3181"
LEDGERS_ROOT = "/ledgers"
LEDGER_CLIENT = LedgerConfig(frame_max=v2.FRAME_MAX, pending_bytes_max=None)
"""Unbounded, because the bookie is in this process, and maxMessagePublishBufferSizeInMB bounds pending bytes of all
topics together."""


async def run_standalone(
    world: World,
    config: StandaloneConfig,
    *,
    data_dir: str,
    ready: Callable[[Addresses], None],
    stop: trio.Event,
    http: bool = True,
) -> None:
    """Serve from `data_dir` (absolute) until `stop` is set. `ready` is called once the binary port (and the web port,
    if `http`) is served. Raises DataDirectoryError, PortError, BookieError, MetadataError; the last two, in a group,
    also when a sync of the disk fails."""
    directory = await world.offload.run(partial(claim, world.disk, data_dir), name="claim")
    async with AsyncExitStack() as stack:
        stack.callback(directory.lock.release)
        # Once there is a bookie there was metadata: without it, all its ledgers would count as deleted.
        has_served = await world.offload.run(partial(world.disk.exists, directory.ledgers), name="has served")
        wanted = bookie_config(config, directory)
        disks = DiskWatch(world, wanted)
        await world.offload.run(disks.make_room, name="disk room")
        try:
            metadata = await open_store(world, directory.metadata, create=not has_served)
        except FileNotFoundError as error:
            raise DataDirectoryError(
                f"{directory.metadata} is missing, but {directory.ledgers} exists: restore it from a copy"
            ) from error
        stack.push_async_callback(metadata.aclose)
        await initialize(metadata, config.cluster_name, world.rng)
        bookie = await stack.enter_async_context(open_bookie(world, wanted, metadata, disks))
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        nursery.start_soon(end_at_fault, world.faults, name="faults")
        lost = "a sync failed and nobody knows what is on the disk; the next start will tell"
        nursery.start_soon(end_when, bookie.failed, StorageFailedError(f"bookie: {lost}"), name="bookie failed")
        nursery.start_soon(end_when, metadata.expired, SessionExpiredError(f"metadata: {lost}"), name="metadata failed")
        turn = Turn()
        ids = BlockLedgerIds(metadata, LEDGERS_ROOT)
        manager = LedgerManager(metadata, ids=ids, rng=world.rng, root=LEDGERS_ROOT)
        client = await stack.enter_async_context(
            open_ledger_client(
                world,
                manager,
                lambda _: LocalLink(partial(BookieSession, bookie), turn=turn),
                lambda: [BOOKIE_ID],
                LEDGER_CLIENT,
            )
        )

        def no_room() -> str:
            return f"the disk is full: {disks.reason}" if disks.reason else ""

        logs = ledger_config(config)
        policies = TopicPolicies(metadata, LogConfig.of(logs))
        await nursery.start(policies.run, name="policies")
        factory = ManagedLedgerFactory(
            world, metadata, client, logs, nursery, cursor_config(config), config_of=policies.config_of, no_room=no_room
        )
        nursery.start_soon(factory.run, name="managed ledgers")
        broker = Broker(
            world,
            metadata,
            factory,
            broker_options(config),
            nursery,
            turn=turn,
            incarnation=await next_incarnation(metadata),
            policies=policies,
            no_room=no_room,
        )
        with naming("brokerServicePort", config.bind_address, config.broker_port):
            listener = await world.network.listen(config.bind_address, config.broker_port)
        port = listener.address[1]
        broker.context.service_url = Addresses((config.advertised_host, port), None).broker_url
        broker.start()
        counts = ConnectionCounts()
        serve = broker_port(
            listener,
            broker,
            counts,
            grace_s=config.shutdown_timeout_ms / 1000,
            connections_max=config.connections_max,
            stop=stop,
        )
        web: tuple[str, int] | None = None
        async with trio.open_nursery() as serving:
            await serving.start(serve, name="broker")
            if http:
                from quire.servers.standalone.web import serve_web

                web_part = partial(serve_web, broker, bookie, policies, counts, config, stop=stop)
                with naming("webServicePort", config.bind_address, config.web_port):
                    _, web_port = await serving.start(web_part, name="web")
                web = (config.advertised_host, web_port)
            ready(Addresses((config.advertised_host, port), web))
            log.info("ready", broker=broker.service_url, data=data_dir)
            await stop.wait()
            log.info("stopping")
        with trio.move_on_after(config.shutdown_timeout_ms / 1000):
            await broker.closed.wait()
    log.info("stopped")


def ledger_config(config: StandaloneConfig) -> ManagedLedgerConfig:
    """The managed ledgers' part of the configuration."""
    return narrow(config, ManagedLedgerConfig, ensemble_size=1, write_quorum=1, ack_quorum=1)


def cursor_config(config: StandaloneConfig) -> CursorConfig:
    """The cursors' part of the configuration."""
    return narrow(config, CursorConfig, ensemble_size=1, write_quorum=1, ack_quorum=1)


def bookie_config(config: StandaloneConfig, directory: DataDirectory) -> BookieConfig:
    """The bookie's part of the configuration. Its folders are those of the data directory, which the cookie names
    relative to it, so that it can be moved."""
    return narrow(
        config,
        BookieConfig,
        bookie_id=BOOKIE_ID,
        journal_directory=directory.journal,
        ledger_directory=directory.ledgers,
        ledgers_root=LEDGERS_ROOT,
        root=directory.root,
    )
