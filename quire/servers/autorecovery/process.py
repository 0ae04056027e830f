"""`quire autorecovery --conf conf/bk_server.conf`: auditor and replication worker as a process, on ZooKeeper; and the
same beside a bookie (autoRecoveryDaemonEnabled).

Exit codes, the original's: 0 stopped as asked, 1 the configuration is wrong, 2 the server failed (an internal error
included, whose traceback is in the log), 3 ZooKeeper gave the process up (zookeeperSessionExpiredPolicy=shutdown).
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import AutoRecoveryError
from autorecovery.service import RecoveryStats, open_repair_client, run_autorecovery
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError
from quire.metadata.errors import InvalidConnectStringError, MetadataError, SessionExpiredError
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.servers import logging_setup
from quire.servers.addresses import host_port, naming
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.autorecovery.rack_script import rack_script
from quire.servers.bookie.auth_keys import bookie_credentials
from quire.servers.bookie.client_tls import client_tls
from quire.servers.bookie.tls_keys import BookieTlsKeys
from quire.servers.errors import CliError, InternalError, PortError
from quire.servers.exit_codes import INVALID_CONF, SERVER_EXCEPTION, ZK_EXPIRED
from quire.servers.process import closing, cut_after_faults, ending_at_faults, run_server
from quire.servers.zookeeper.wait import open_when_there
from quire.service.errors import ConfigError
from quire.world.doors import World
from quire.world.unwrap import leaves


async def serve_autorecovery(
    world: World,
    metadata: MetadataStore,
    config: AutoRecoveryConfig,
    *,
    name: str,
    root: str,
    stats: RecoveryStats | None = None,
    ready: Callable[[], None] = lambda: None,
    stop: trio.Event,
    tls: BookieTlsKeys | None = None,
    password_file: str = "",
) -> None:
    """Serve until `stop` is set, with a ledger client of its own. Raises MetadataError, LedgerError,
    AutoRecoveryError; ConfigError: the files of `tls`, or `password_file`, cannot be used."""
    await ensure_layout(metadata, root)
    async with open_repair(world, metadata, config, root, tls, password_file) as client:
        await run_autorecovery(
            world, metadata, client, config, name=name, root=root, stats=stats, ready=ready, stop=stop
        )


@asynccontextmanager
async def open_repair(
    world: World,
    metadata: MetadataStore,
    config: AutoRecoveryConfig,
    root: str,
    tls: BookieTlsKeys | None,
    password_file: str,
) -> AsyncIterator[LedgerClient]:
    """Open a client that places copies as configured. ConfigError: the files of TLS or passwords, or the script of
    racks, cannot be used."""
    side = None if tls is None else await client_tls(world, tls)
    known = await bookie_credentials(world, password_file)
    locate = rack_script(config)
    opened = open_repair_client(world, metadata, config, root=root, tls=side, credentials=known, locate=locate)
    async with opened as client:
        yield client


def beside_bookie(
    conf: Path | None, bookie_id: str, stats: RecoveryStats
) -> Callable[[World, trio.Event], Awaitable[None]]:
    """Return `run(world, stop)`: auto recovery in a bookie's process, in a session of its own. Raises ConfigError."""
    config = AUTORECOVERY.load(conf)
    settings, root = config.metadata.zookeeper_of_server, config.metadata.connect_string.ledgers_root

    async def run(world: World, stop: trio.Event) -> None:
        opened = await open_when_there(world, settings, stop)
        if opened is None:
            return
        async with closing(opened) as store:
            try:
                await serve_autorecovery(
                    world,
                    store,
                    config.recovery,
                    name=bookie_id,
                    root=root,
                    stats=stats,
                    stop=stop,
                    tls=config.tls,
                    password_file=config.auth.password_file,
                )
            except (AutoRecoveryError, LedgerError) as error:
                raise CliError(f"auto recovery cannot go on: {error}") from error

    return run


def run_autorecovery_command(conf: Path | None, log_level: str) -> int:
    """Run the command; return the exit code."""
    from quire.service import log as logging
    from quire.world.real import real_world

    try:
        logging.configure(log_level, sys.stderr)
        config = AUTORECOVERY.load(conf)
        levels = logging.parse_levels(config.log.levels)
        settings, root = config.metadata.zookeeper_of_server, config.metadata.connect_string.ledgers_root
    except (ConfigError, InvalidConnectStringError, ValueError) as error:
        print(f"quire autorecovery: {error}", file=sys.stderr)
        return INVALID_CONF
    world = real_world()
    try:
        logging_setup.configure(log_level, levels, world.clock.wall_ms)
    except ConfigError as error:
        print(f"quire autorecovery: {error}", file=sys.stderr)
        return INVALID_CONF
    name = config.name
    http = ""

    def announce() -> None:
        about = f"metadata={config.metadata.metadata_service} http={http} pid={os.getpid()}"
        print(f"ready autorecovery={name} {about}", flush=True)

    async def main(stop: trio.Event) -> None:
        nonlocal http
        stats = RecoveryStats()
        opened = await open_when_there(world, settings, stop)
        if opened is None:
            return
        async with (
            cut_after_faults(world.faults),
            closing(opened) as store,
            ending_at_faults(world.faults) as nursery,
        ):
            if config.http.enabled:
                from quire.servers.autorecovery.web import web_app
                from quire.service.http import serve_web

                address = config.http.host, config.http.port
                side = await config.http.side(world)

                @asynccontextmanager
                async def open_client() -> AsyncIterator[tuple[LedgerClient, AutoRecoveryConfig]]:
                    files = config.tls, config.auth.password_file
                    async with open_repair(world, store, config.recovery, root, *files) as client:
                        yield client, config.recovery

                app = web_app(world, store, stats, side, root=root, name=name, open_repair=open_client, nursery=nursery)
                web = partial(serve_web, app, *address, stop=stop, tls=side)
                scheme = "https" if config.http.tls_enabled else "http"
                with naming("httpServerPort", *address):
                    http = f"{scheme}://{host_port(await nursery.start(web, name='web'))}"
            await serve_autorecovery(
                world,
                store,
                config.recovery,
                name=name,
                root=root,
                stats=stats,
                ready=announce,
                stop=stop,
                tls=config.tls,
                password_file=config.auth.password_file,
            )

    return run_server("autorecovery", main, exit_code)


def exit_code(error: BaseException) -> int | None:
    """Return the exit code for an error that ends the process; None for an internal error, or if it was cancelled."""
    causes = list(leaves(error))
    if not all(
        isinstance(
            each,
            (MetadataError, LedgerError, AutoRecoveryError, ConfigError, OSError, PortError, InternalError),
        )
        for each in causes
    ):
        return None
    if any(isinstance(each, SessionExpiredError) for each in causes):
        return ZK_EXPIRED
    return INVALID_CONF if any(isinstance(each, ConfigError) for each in causes) else SERVER_EXCEPTION
