"""`quire bookie --conf conf/bk_server.conf`: one bookie as a process, on ZooKeeper.

Exit codes, the original's: 0 stopped as asked, 1 the configuration is wrong, 2 the server failed, 3 ZooKeeper gave the
bookie up and it may not register anew, 4 it could not register, 5 the bookie could not start or go on (folders,
cookies, disk).
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio

from bookie.bookie import open_bookie
from bookie.cookie import rebuild_command
from bookie.errors import NO_ROOM_ENDS, BookieError, DisksFullError, StorageFailedError
from bookie.scrubber.start_check import check_all
from bookie.server import serve_bookie
from bookie.sessions.start_tls import OfferedTls
from quire.metadata.bookies import Endpoint
from quire.metadata.errors import (
    MetadataError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    UnsupportedLayoutError,
)
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.servers import logging_setup
from quire.servers.addresses import naming
from quire.servers.bookie.auth_keys import bookie_authentication
from quire.servers.bookie.config import BOOKIE, BookieProcessKeys, BookieServerConfig
from quire.servers.bookie.host_name import interface_address
from quire.servers.bookie.located import located, zookeeper_config
from quire.servers.bookie.other_holders import holders_of
from quire.servers.bookie.peer_jobs import PeerJobs
from quire.servers.bookie.tls_keys import BookieTlsKeys
from quire.servers.errors import CliError
from quire.servers.exit_codes import BOOKIE_EXCEPTION, INVALID_CONF, SERVER_EXCEPTION, ZK_EXPIRED, ZK_REG_FAIL
from quire.servers.process import closing, cut_after_faults, end_when, ending_at_faults, run_server
from quire.servers.zookeeper.wait import open_when_there
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from quire.world.damage import DamagedError
from quire.world.doors import World
from quire.world.unwrap import leaves

log = get_logger(__name__)


class BookieStartError(CliError):
    """The bookie cannot be started with its configuration."""


class RegistrationError(CliError):
    """The bookie cannot be registered."""


class Ready:
    """Addresses of a bookie that serves."""

    def __init__(self, config: BookieServerConfig, address: tuple[str, int], http: tuple[str, int] | None) -> None:
        self.config = config
        self.address = address
        self.http = http

    def line(self, pid: int) -> str:
        """Return `ready bookie=127.0.0.1:3181 address=127.0.0.1:3181 http= journal=... ledgers=... pid=...`."""
        scheme = "https" if self.config.http.tls_enabled else "http"
        folders = self.config.bookie
        http = f"{scheme}://{self.http[0]}:{self.http[1]}" if self.http else ""
        return (
            f"ready bookie={self.config.id} address={self.address[0]}:{self.address[1]} http={http} "
            f"journal={','.join(folders.journal_directories)} ledgers={','.join(folders.ledger_directories)} pid={pid}"
        )


def check_user(config: BookieProcessKeys) -> None:
    """Raise ConfigError if this user may not start a bookie."""
    user = getpass.getuser()
    if config.permitted_users and user not in config.permitted_users:
        raise ConfigError(f"permittedStartupUsers={','.join(config.permitted_users)}: {user} is not one of them")


def total_bytes(folder: str) -> int:
    """Return the size of the file system that a folder is in."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


# --- serving


async def serve(
    world: World,
    config: BookieServerConfig,
    metadata: MetadataStore,
    *,
    ready: Callable[[Ready], None],
    stop: trio.Event,
    beside: Callable[[trio.Event], Awaitable[None]] | None = None,
    register_beside: Callable[[Metrics], None] | None = None,
    conf: Path | None = None,
) -> None:
    """Serve one located bookie, until `stop` is set, and run `beside(stop)` while it serves, whose metrics
    `register_beside` adds to its own. `conf`: its file.

    Raises BookieError, MetadataError, OSError, PortError, RegistrationError, in groups."""
    try:
        await ensure_layout(metadata, config.bookie.ledgers_root, config.layouts.factory_layout)
    except UnsupportedLayoutError as error:
        raise BookieStartError(f"ledgerManagerFactoryClass: {error}; remove the key") from error
    except NoNodeError as error:
        raise BookieStartError(
            f"{error}. Create it with `quire shell initnewcluster`, or correct metadataServiceUri"
        ) from error
    listening = config.process.listening_interface
    bind = interface_address(listening) if listening else "0.0.0.0"
    async with AsyncExitStack() as stack:
        bookie = await stack.enter_async_context(open_bookie(world, config.bookie, metadata))
        bookie.total_bytes = total_bytes
        if conf is not None:
            bookie.garbage.open_peers = partial(holders_of(conf, config.id), world, metadata)
        if config.bookie.check_on_start:
            await check_all(bookie)
        nursery = await stack.enter_async_context(ending_at_faults(world.faults))
        lost = "a sync failed, so the content of the disk is unknown; restart the server to recover from it"
        nursery.start_soon(end_when, bookie.failed, StorageFailedError(lost), name="bookie failed")
        nursery.start_soon(end_when, bookie.disks.must_end, DisksFullError(NO_ROOM_ENDS), name="disks full")
        expired = SessionExpiredError("the ZooKeeper session has expired: restart the bookie")
        nursery.start_soon(end_when, metadata.expired, expired, name="metadata expired")
        counts = ConnectionCounts()
        jobs = PeerJobs(world, bookie, metadata, config, conf)
        http: tuple[str, int] | None = None
        endpoints: tuple[Endpoint, ...] = ()
        offered = await _offered(world, config.tls)
        if config.http.enabled or config.metrics.has_own_port:
            from quire.servers.bookie.web_ports import serve_web_ports

            certified = None if offered is None else offered.side
            http = await serve_web_ports(
                world, bookie, metadata, config, counts, certified, jobs, register_beside, nursery=nursery, stop=stop
            )
        if http is not None:
            protocol = "https" if config.http.tls_enabled else "http"
            endpoints = (Endpoint(id="httpserver", host=http[0], port=http[1], protocol=protocol),)
        serving = partial(
            serve_bookie,
            world,
            bookie,
            metadata,
            bind_address=bind,
            stop=stop,
            counts=counts,
            endpoints=endpoints,
            register_wait_s=2 * config.metadata.timeout_ms / 1000,
            tls=offered,
            authentication=await bookie_authentication(world, config.auth),
        )
        async with trio.open_nursery() as outer:
            with naming("bookiePort", bind, config.bookie.port):
                address = await outer.start(_registered, serving, name="bookie")
            outer.start_soon(jobs.run, stop, name="bookie peer jobs")
            if beside is not None:
                outer.start_soon(beside, stop, name="beside the bookie")
            ready(Ready(config, address, http))
            log.info("ready", bookie=config.id)
        log.info("stopping")
    log.info("stopped")


async def _offered(world: World, keys: BookieTlsKeys) -> OfferedTls | None:
    """Return the TLS that the bookie offers; None: it has none. ConfigError: the files cannot be used."""
    options = keys.server()
    if options is None:
        return None
    from quire.servers.tls import open_server_tls  # imported here, because most bookies do not need it

    side = await open_server_tls(world, options, name="bookie", refresh_s=keys.interval_s)
    return OfferedTls(side, keys.handshake_timeout_s, keys.required)


async def _registered(
    serving: Callable[..., Awaitable[None]],
    *,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `serving`, and translate a failed registration."""
    try:
        await serving(task_status=task_status)
    except* NodeExistsError as errors:
        raise RegistrationError(
            f"{next(leaves(errors))}: another bookie of this name is running, or its session has not expired yet"
        ) from errors


def run_bookie(conf: Path | None, log_level: str) -> int:
    """Run the command; return the exit code."""
    from quire.service import log as logging
    from quire.world.real import real_world

    try:
        logging.configure(log_level, sys.stderr)
        config = BOOKIE.load(conf)
        check_user(config.process)
        levels = logging.parse_levels(config.log.levels)
        store_config, root = zookeeper_config(config)
        config = located(config, root)
        auto_recovery = _auto_recovery(conf, config)
    except (ConfigError, ValueError) as error:
        print(f"quire bookie: {error}", file=sys.stderr)
        return INVALID_CONF
    world = real_world()
    try:
        logging_setup.configure(log_level, levels, world.clock.wall_ms)
    except ConfigError as error:
        print(f"quire bookie: {error}", file=sys.stderr)
        return INVALID_CONF

    def announce(found: Ready) -> None:
        print(found.line(os.getpid()), flush=True)

    async def main(stop: trio.Event) -> None:
        beside = None if auto_recovery is None else partial(auto_recovery.run, world)
        register = None if auto_recovery is None else auto_recovery.register
        store = await open_when_there(world, store_config, stop)
        if store is None:
            return
        async with cut_after_faults(world.faults), closing(store):
            await serve(
                world, config, store, ready=announce, stop=stop, beside=beside, register_beside=register, conf=conf
            )

    named = "" if conf is None else f"`quire doctor --conf {conf}` lists all damage; "
    remedy = f"{named}{rebuild_command(config.id)} rebuilds this bookie from the others (docs/operating.md)"
    return run_server("bookie", main, exit_code, remedy=remedy)


class BesideBookie(NamedTuple):
    """Server in a bookie's process."""

    run: Callable[[World, trio.Event], Awaitable[None]]
    register: Callable[[Metrics], None]
    """Adds its metrics to the bookie's."""


def _auto_recovery(conf: Path | None, config: BookieServerConfig) -> BesideBookie | None:
    """Return what runs beside the bookie, if configured. Raises ConfigError."""
    if not config.process.auto_recovery:
        return None
    # Imported here, because other bookies do not need it.
    from autorecovery.service import RecoveryStats
    from quire.servers.autorecovery.process import beside_bookie
    from quire.servers.autorecovery.recovery_metrics import register_recovery

    stats = RecoveryStats()
    return BesideBookie(
        beside_bookie(conf, config.id, stats), partial(register_recovery, stats=stats, scope="replication_")
    )


def exit_code(error: BaseException) -> int | None:
    """Return the exit code for an error that ends a bookie; None for an internal error, or if it was cancelled."""
    causes = list(leaves(error))
    kinds = (
        (ConfigError, INVALID_CONF),
        (RegistrationError, ZK_REG_FAIL),
        (BookieStartError, BOOKIE_EXCEPTION),
        (SessionExpiredError, ZK_EXPIRED),
        (BookieError, BOOKIE_EXCEPTION),
        (DamagedError, BOOKIE_EXCEPTION),
        (MetadataError, ZK_REG_FAIL),
        (OSError, SERVER_EXCEPTION),
        (CliError, SERVER_EXCEPTION),
    )
    if not all(isinstance(cause, tuple(kind for kind, _ in kinds)) for cause in causes):
        return None
    return next(code for kind, code in kinds if any(isinstance(cause, kind) for cause in causes))
