"""A whole server in one process: embedded metadata, one bookie, one broker. The simulator runs this very function.

Taken down from the inside out: connections, topics (cursors and ledgers are closed), the bookie (flushed), metadata.
Correctness does not need any of it: a killed server is an ordinary server. So a server that cannot trust its disk any
more, because a sync failed, ends as if it were killed, and the next start recovers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.disks.watch import DiskWatch
from bookie.errors import NO_ROOM_ENDS, DisksFullError, StorageFailedError
from bookie.scrubber.scrubber import Scrubber
from bookie.scrubber.start_check import check_all
from bookie.sessions.session import BookieSession
from broker.dynamic.conf import DynamicConf
from broker.dynamic.configuration import DynamicConfiguration
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from broker.topics.rates.group_following import GroupFollowing
from managed_ledger.config import LogConfig, cursors_of
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.bookies.link_local import LocalLink
from quire.ledger.context import LedgerConfig
from quire.ledger.opening import open_ledger_client
from quire.metadata.errors import SessionExpiredError
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.rocksdb import open_store
from quire.servers.addresses import Addresses
from quire.servers.broker.ports import open_ports
from quire.servers.broker.security import authentication_of, credentials_of
from quire.servers.broker.tiered_storage import open_tiered_storage
from quire.servers.errors import DataDirectoryError
from quire.servers.late_imports import load_late
from quire.servers.process import cut_after_faults, end_when, ending_at_faults
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.data_directory import DataDirectory, claim
from quire.servers.standalone.metadata import initialize, next_incarnation
from quire.servers.tracing import open_tracing
from quire.service.background import keep_trying
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts
from quire.wire.bookkeeper import v2
from quire.world.doors import World
from quire.world.outbox import Turn

log = get_logger(__name__)

BROUGHT_BACK = "Bring the data directory back from a copy, or start without it: damaged entries stay unreadable"
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
    """Serve from `data_dir` (absolute) until `stop` is set.

    `ready` is called once the binary port (and the web port, if `http`) is served. Raises DataDirectoryError,
    PortError, ConfigError, BookieError, MetadataError; the last two, in a group, also when a sync of the disk fails."""
    listen = config.listen
    authentication, credentials = (
        authentication_of(config.authentication, config.authorization),
        credentials_of(config.authentication),
    )
    directory = await world.offload.run(partial(claim, world.disk, data_dir), name="claim")
    async with AsyncExitStack() as stack:
        stack.callback(directory.lock.release)
        await stack.enter_async_context(cut_after_faults(world.faults))
        # Where there is a bookie there was metadata: without it, all its ledgers would count as deleted.
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
        await initialize(metadata, config.broker.cluster_name, world.rng)
        bookie = await stack.enter_async_context(open_bookie(world, wanted, metadata, disks))
        if wanted.check_on_start:
            await check_all(bookie, BROUGHT_BACK)
        nursery = await stack.enter_async_context(ending_at_faults(world.faults))
        lost = "a sync failed, so the content of the disk is unknown; restart the server to recover from it"
        nursery.start_soon(end_when, bookie.failed, StorageFailedError(f"bookie: {lost}"), name="bookie failed")
        nursery.start_soon(end_when, disks.must_end, DisksFullError(NO_ROOM_ENDS), name="disks full")
        nursery.start_soon(end_when, metadata.expired, SessionExpiredError(f"metadata: {lost}"), name="metadata failed")
        scrubber = Scrubber(bookie, metadata, None)
        if http or wanted.scrub_interval_s:  # else nothing can ask for a scrub
            scrubs = partial(keep_trying, "scrub", scrubber.run, bookie.job_failures, world.rng)
            nursery.start_soon(scrubs, name="bookie scrub")
        turn = Turn()
        ids = BlockLedgerIds(metadata, LEDGERS_ROOT)
        manager = LedgerManager(metadata, ids=ids, rng=world.rng, root=LEDGERS_ROOT)
        client = await stack.enter_async_context(
            open_ledger_client(
                world,
                manager,
                lambda _: LocalLink(partial(BookieSession, bookie), turn=turn),
                lambda: [wanted.id],
                LEDGER_CLIENT,
            )
        )

        dynamic = DynamicConfiguration(metadata, DynamicConf(STANDALONE, config))
        await dynamic.load()
        config = dynamic.conf.config
        policies = TopicPolicies(metadata, LogConfig.of(config.logs), config.broker)
        await nursery.start(policies.run, name="policies")
        factory = ManagedLedgerFactory(
            world,
            metadata,
            client,
            config.logs,
            nursery,
            cursors_of(config.logs, config.cursors),
            config_of=policies.config_of,
            no_room=disks.why_full,
            objects=await open_tiered_storage(config.tiered),
        )
        nursery.start_soon(factory.run, name="managed ledgers")
        tracing = await stack.enter_async_context(open_tracing(world, config.tracing))
        broker = Broker(
            world,
            metadata,
            factory,
            config.broker,
            nursery,
            turn=turn,
            incarnation=await next_incarnation(metadata),
            policies=policies,
            authorization=config.authorization,
            no_room=disks.why_full,
            authentication=authentication,
        )
        broker.context.credentials = credentials
        ports = await open_ports(world, listen, config.tls)
        plain, tls = ports.addresses(listen.advertised_host)
        addresses = Addresses(plain, None, tls)
        broker.context.service_url = addresses.broker_url
        broker.context.service_url_tls = addresses.broker_url_tls
        broker.context.tracing = tracing
        dynamic.on_change = lambda names: broker.options_changed(config.logs)
        nursery.start_soon(dynamic.run, name="configuration")
        groups = GroupFollowing(metadata, broker.topics.rates.groups, broker.topics.following.everything)
        nursery.start_soon(groups.run, name="resource groups")
        broker.start()
        counts = ConnectionCounts()
        async with trio.open_nursery() as serving:
            await ports.serve(broker, counts, listen, serving, stop)
            if http:
                from quire.servers.standalone.web import Site

                site = Site(
                    broker,
                    bookie,
                    scrubber,
                    policies,
                    counts,
                    config,
                    dynamic,
                    addresses,
                    stop=stop,
                    certificates=ports.certificates(),
                    ledgers=client,
                )
                addresses = await site.serve(serving, ports.secure_web)
                serving.start_soon(load_late, world.offload, name="late imports")
            ready(addresses)
            log.info("ready", broker=broker.service_url, data=data_dir)
            await stop.wait()
            log.info("stopping")
        with trio.move_on_after(listen.shutdown_timeout_s):
            await broker.closed.wait()
    log.info("stopped")


def bookie_config(config: StandaloneConfig, directory: DataDirectory) -> BookieConfig:
    """Return the bookie's part of the configuration.

    Its folders are those of the data directory. The cookie has them relative to it, so that it can be moved."""
    return replace(
        config.bookie,
        journal_directories=(directory.journal,),
        ledger_directories=(directory.ledgers,),
        ledgers_root=LEDGERS_ROOT,
        root=directory.root,
    )
