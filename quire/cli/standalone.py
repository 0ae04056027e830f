"""A whole server in one process: embedded metadata, one bookie, one broker. The simulator runs this very function.

Taken down from the inside out: connections, topics (cursors and ledgers are closed), the bookie (flushed), metadata.
Correctness does not need any of it: a killed server is an ordinary server. So a server that cannot trust its disk any
more, because a sync failed, ends as if it were killed, and the next start tells what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.errors import StorageFailedError
from broker.config import BrokerOptions
from broker.server import Broker
from broker.turn import Turn
from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.factory import ManagedLedgerFactory
from quire.cli.addresses import Addresses
from quire.cli.data_directory import DataDirectory, claim
from quire.cli.standalone_config import StandaloneConfig
from quire.cli.standalone_metadata import initialize, next_incarnation
from quire.ledger.client import open_ledger_client
from quire.ledger.link_local import LocalLink
from quire.metadata.errors import SessionExpiredError
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager
from quire.metadata.rocksdb import open_store
from quire.service.config import narrow
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts, serve_connections
from quire.world.doors import World

log = get_logger(__name__)

BOOKIE_ID = "standalone:3181"
LEDGERS_ROOT = "/ledgers"
MB = 1 << 20


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
    if `http`) is served. Raises DataDirectoryError, OSError (a port is taken), BookieError, MetadataError; the last two, in a group,
    also when a sync of the disk fails."""
    directory = await world.offload.run(partial(claim, world.disk, data_dir), name="claim")
    async with AsyncExitStack() as stack:
        stack.callback(directory.lock.release)
        metadata = await open_store(world, directory.metadata)
        stack.push_async_callback(metadata.aclose)
        await initialize(metadata, config.cluster_name, world.rng)
        bookie = await stack.enter_async_context(open_bookie(world, bookie_config(config, directory), metadata))
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        lost = "a sync failed and nobody knows what is on the disk; the next start will tell"
        nursery.start_soon(_end_when, bookie.failed, StorageFailedError(f"bookie: {lost}"), name="bookie failed")
        nursery.start_soon(
            _end_when, metadata.expired, SessionExpiredError(f"metadata: {lost}"), name="metadata failed"
        )
        turn = Turn()
        ids = BlockLedgerIds(metadata, LEDGERS_ROOT)
        manager = LedgerManager(metadata, ids=ids, rng=world.rng, root=LEDGERS_ROOT)
        client = await stack.enter_async_context(
            open_ledger_client(world, manager, lambda _: LocalLink(bookie.session, turn=turn), lambda: [BOOKIE_ID])
        )
        factory = ManagedLedgerFactory(world, metadata, client, ledger_config(config), nursery, cursor_config(config))
        nursery.start_soon(factory.run, name="managed ledgers")
        broker = Broker(
            world,
            metadata,
            factory,
            broker_options(config),
            nursery,
            turn=turn,
            incarnation=await next_incarnation(metadata),
        )
        listener = await world.network.listen(config.bind_address, config.broker_port)
        port = listener.address[1]
        broker.service_url = Addresses((config.advertised_host, port), None).broker_url
        broker.start()
        counts = ConnectionCounts()
        serve = partial(
            serve_connections,
            listener,
            broker.handle,
            stop=stop,
            grace_s=config.shutdown_timeout_ms / 1000,
            connections_max=config.connections_max,
            refuse=broker.refuse,
            on_drain=broker.begin_close,
            counts=counts,
            name="broker",
        )
        web: tuple[str, int] | None = None
        async with trio.open_nursery() as serving:
            await serving.start(serve, name="broker")
            if http:
                from quire.cli.standalone_web import serve_web

                _, web_port = await serving.start(
                    partial(serve_web, broker, bookie, counts, config, stop=stop), name="web"
                )
                web = (config.advertised_host, web_port)
            ready(Addresses((config.advertised_host, port), web))
            log.info("ready", broker=broker.service_url, data=data_dir)
            await stop.wait()
            log.info("stopping")
        with trio.move_on_after(config.shutdown_timeout_ms / 1000):
            await broker.closed.wait()
    log.info("stopped")


async def _end_when(failed: trio.Event, error: Exception) -> None:
    await failed.wait()
    raise error


def broker_options(config: StandaloneConfig) -> BrokerOptions:
    """The broker's part of the configuration."""
    return BrokerOptions(
        cluster_name=config.cluster_name,
        message_size_max=config.message_size_max,
        keep_alive_interval_s=config.keep_alive_interval_s,
        liveness_probe_timeout_s=config.liveness_probe_timeout_ms / 1000,
        topic_load_timeout_s=config.topic_load_timeout_s,
        pending_sends_max=config.pending_sends_max,
        publish_buffer_bytes_max=config.publish_buffer_mb * MB,
        allow_auto_topic_creation=config.allow_auto_topic_creation,
        auto_topic_type=config.auto_topic_type,
        partitions_default=config.partitions_default,
        partitions_per_topic_max=config.partitions_per_topic_max,
        read_batch_entries_max=config.read_batch_entries_max,
        read_batch_bytes_max=config.read_batch_bytes_max,
        round_robin_batch_max=config.round_robin_batch_max,
        unacked_messages_per_consumer_max=config.unacked_per_consumer_max,
        unacked_messages_per_subscription_max=config.unacked_per_subscription_max,
        consumers_per_subscription_max=config.consumers_per_subscription_max,
        key_shared_replica_points=config.key_shared_replica_points,
        key_shared_lookahead_per_consumer=config.key_shared_lookahead_per_consumer,
        key_shared_lookahead_per_subscription=config.key_shared_lookahead_per_subscription,
        failover_delay_s=config.failover_delay_ms / 1000,
    )


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
