"""`quire autorecovery --conf conf/bk_server.conf`: auditor and replication worker as a process, on ZooKeeper; and the same beside
a bookie (autoRecoveryDaemonEnabled).

Exit codes, the original's: 0 stopped as asked, 1 the configuration is wrong, 2 the server failed (an internal error included, whose
traceback is in the log), 3 ZooKeeper gave the process up (zookeeperSessionExpiredPolicy=shutdown).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import AutoRecoveryError
from autorecovery.service import RecoveryStats, open_repair_client, run_autorecovery
from quire.ledger.errors import LedgerError
from quire.metadata.errors import InvalidConnectStringError, MetadataError, SessionExpiredError
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.metadata.zookeeper.config import SessionExpiredPolicy, ZooKeeperConfig
from quire.servers.addresses import host_port, naming
from quire.servers.bookie.config import BookieServerConfig
from quire.servers.cluster_config import ClusterConfig, build_part
from quire.servers.errors import CliError, InternalError, PortError, leaves
from quire.servers.exit_codes import INVALID_CONF, SERVER_EXCEPTION, ZK_EXPIRED
from quire.servers.process import closing, end_at_fault, run_server
from quire.servers.zookeeper.wait import open_when_there
from quire.service.config import conf_key, keys_of, read_text
from quire.service.errors import ConfigError
from quire.service.original_conf import check, sort_out
from quire.service.unsupported import RECOVERY_RULES
from quire.world.doors import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig(ClusterConfig):
    """Of the process around it: how to reach the metadata, and who it is. ValueError if keys contradict each other."""

    zk_retry_first_ms: int = conf_key("zkRetryBackoffStartMs", 1000, minimum=1)
    zk_retry_max_ms: int = conf_key("zkRetryBackoffMaxMs", 10_000, minimum=1)
    zk_expired_policy: str = conf_key("zookeeperSessionExpiredPolicy", "reconnect", choices=("reconnect", "shutdown"))

    http_enabled: bool = conf_key("httpServerEnabled", False)
    http_host: str = conf_key("httpServerHost", "0.0.0.0")
    http_port: int = conf_key("httpServerPort", 8080, minimum=0, maximum=65535)

    @property
    def name(self) -> str:
        """What others see in votes and locks: the bookie of this configuration, or this host."""
        return self.bookie_id or f"{self.advertised_address or socket.gethostname()}:{self.port}"


def store_config(config: ProcessConfig) -> ZooKeeperConfig:
    """InvalidConnectStringError."""
    return replace(
        config.zookeeper,
        retry_first_s=config.zk_retry_first_ms / 1000,
        retry_max_s=max(config.zk_retry_first_ms, config.zk_retry_max_ms) / 1000,
        session_expired_policy=SessionExpiredPolicy(config.zk_expired_policy),
    )


def load(path: Path | None) -> tuple[ProcessConfig, AutoRecoveryConfig]:
    """What a bk_server.conf says; the defaults without one. ConfigError.

    Values of keys that only a bookie needs are not looked at; what no version of the original has is an error, and so is what
    is asked of auto recovery and not obeyed.
    """
    if path is None:
        return ProcessConfig(), AutoRecoveryConfig()
    of_process, of_recovery = keys_of(ProcessConfig).keys(), keys_of(AutoRecoveryConfig).keys()
    of_bookies = keys_of(BookieServerConfig).keys()
    done = sort_out(read_text(path), of_process | of_recovery | of_bookies, RECOVERY_RULES, source=str(path))
    not_ours = (of_bookies | of_recovery) - of_process
    try:
        process = build_part(ProcessConfig, path, done.text, lambda key: key not in not_ours)
        # A name that no version of the original has was an error above.
        recovery = build_part(AutoRecoveryConfig, path, done.text, lambda key: key in of_recovery)
    except ConfigError as error:
        raise ConfigError("\n".join([*done.problems, str(error)])) from error
    check(done, str(path))
    return process, recovery


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
) -> None:
    """Serve until `stop` is set, with a ledger client of its own. Raises MetadataError, LedgerError,
    AutoRecoveryError."""
    await ensure_layout(metadata, root)
    async with open_repair_client(world, metadata, config, root=root) as client:
        await run_autorecovery(
            world, metadata, client, config, name=name, root=root, stats=stats, ready=ready, stop=stop
        )


@asynccontextmanager
async def ending_at_faults(world: World) -> AsyncIterator[trio.Nursery]:
    """A nursery for a process of its own, which ends with the block, or with the first exception of a callback: InternalError."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_at_fault, world.faults, name="faults")
        yield nursery
        nursery.cancel_scope.cancel()


def beside_bookie(conf: Path | None, bookie_id: str) -> Callable[[World, trio.Event], Awaitable[None]]:
    """`run(world, stop)`: auto recovery in a bookie's process, in a session of its own. ConfigError."""
    process, config = load(conf)
    settings, root = store_config(process), process.connect_string.ledgers_root

    async def run(world: World, stop: trio.Event) -> None:
        opened = await open_when_there(world, settings, stop)
        if opened is None:
            return
        async with closing(opened) as store:
            try:
                await serve_autorecovery(world, store, config, name=bookie_id, root=root, stop=stop)
            except (AutoRecoveryError, LedgerError) as error:
                raise CliError(f"auto recovery cannot go on: {error}") from error

    return run


def run_autorecovery_command(conf: Path | None, log_level: str) -> int:
    """Run the command; return the exit code."""
    from quire.service import log as logging
    from quire.world.real import real_world

    try:
        logging.configure(log_level, sys.stderr)
        process, config = load(conf)
        settings, root = store_config(process), process.connect_string.ledgers_root
    except (ConfigError, InvalidConnectStringError, ValueError) as error:
        print(f"quire autorecovery: {error}", file=sys.stderr)
        return INVALID_CONF
    world = real_world()
    logging.configure(log_level, sys.stderr, wall_ms=world.clock.wall_ms)
    name = process.name
    http = ""

    def announce() -> None:
        about = f"metadata={process.metadata_service} http={http} pid={os.getpid()}"
        print(f"ready autorecovery={name} {about}", flush=True)

    async def main(stop: trio.Event) -> None:
        nonlocal http
        stats = RecoveryStats()
        opened = await open_when_there(world, settings, stop)
        if opened is None:
            return
        async with closing(opened) as store, ending_at_faults(world) as nursery:
            if process.http_enabled:
                from quire.servers.autorecovery.web import serve_web

                address = process.http_host, process.http_port
                web = partial(serve_web, world, store, stats, *address, root=root, name=name, stop=stop)
                with naming("httpServerPort", *address):
                    http = f"http://{host_port(await nursery.start(web, name='web'))}"
            await serve_autorecovery(world, store, config, name=name, root=root, stats=stats, ready=announce, stop=stop)

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
