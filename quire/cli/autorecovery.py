"""`quire autorecovery --conf conf/bk_server.conf`: auditor and replication worker as a process, on ZooKeeper; and the same beside
a bookie (autoRecoveryDaemonEnabled).

Exit codes, the original's: 0 stopped as asked, 1 the configuration is wrong, 2 the server failed, 3 ZooKeeper gave the process
up (zookeeperSessionExpiredPolicy=shutdown).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import AutoRecoveryError
from autorecovery.service import RecoveryStats, open_repair_client, run_autorecovery
from bookie.original_conf import ALIASES, IGNORED, REFUSED
from bookie.server_config import BookieServerConfig
from quire.cli.bookie import INVALID_CONF, SERVER_EXCEPTION, ZK_EXPIRED
from quire.cli.errors import CliError, leaves
from quire.cli.process import run_server
from quire.cli.shell.config import ShellConfig
from quire.ledger.errors import LedgerError
from quire.metadata.errors import InvalidConnectStringError, MetadataError, SessionExpiredError
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.metadata.zookeeper import open_store
from quire.metadata.zookeeper_config import SessionExpiredPolicy, ZooKeeperConfig
from quire.service.config import build, conf_key, keys_of, parse, read_text
from quire.service.errors import ConfigError
from quire.world.doors import World

CONNECT_TIMEOUT_S: Final = 30.0
"""For the first connection to ZooKeeper, which may be starting."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig(ShellConfig):
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
        connect_timeout_s=CONNECT_TIMEOUT_S,
        retry_first_s=config.zk_retry_first_ms / 1000,
        retry_max_s=max(config.zk_retry_first_ms, config.zk_retry_max_ms) / 1000,
        session_expired_policy=SessionExpiredPolicy(config.zk_expired_policy),
    )


def load(path: Path | None) -> tuple[ProcessConfig, AutoRecoveryConfig]:
    """What a bk_server.conf says; the defaults without one. ConfigError.

    Values of keys that only a bookie needs are not looked at; a key that nobody knows is an error.
    """
    if path is None:
        return ProcessConfig(), AutoRecoveryConfig()
    text = read_text(path)
    of_process, of_recovery = keys_of(ProcessConfig).keys(), keys_of(AutoRecoveryConfig).keys()
    of_bookies = keys_of(BookieServerConfig).keys() | IGNORED.keys() | REFUSED.keys() | ALIASES.keys()
    process = _build(ProcessConfig, path, _without(text, (of_bookies | of_recovery) - of_process))
    # What nobody knows was an error above.
    recovery = _build(AutoRecoveryConfig, path, _only(text, of_recovery))
    return process, recovery


def _build(cls: type[T], path: Path, text: str) -> T:
    values, _ = parse(text, cls, source=str(path))
    try:
        return build(cls, values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _without(text: str, keys: Collection[str]) -> str:
    """The lines, those empty that set these keys."""
    return "\n".join("" if line.partition("=")[0].strip() in keys else line for line in text.split("\n"))


def _only(text: str, keys: Collection[str]) -> str:
    """The lines that set these keys, the others empty."""
    return "\n".join(line if line.partition("=")[0].strip() in keys else "" for line in text.split("\n"))


async def serve_autorecovery(
    world: World,
    metadata: MetadataStore,
    config: AutoRecoveryConfig,
    *,
    name: str,
    root: str,
    stats: RecoveryStats | None = None,
    ready: Callable[[], None],
    stop: trio.Event,
) -> None:
    """Until `stop` is set, with a ledger client of its own. MetadataError, LedgerError, AutoRecoveryError."""
    await ensure_layout(metadata, root)
    async with open_repair_client(world, metadata, config, root=root) as client:
        await run_autorecovery(
            world, metadata, client, config, name=name, root=root, stats=stats, ready=ready, stop=stop
        )


def beside_bookie(conf: Path | None, bookie_id: str) -> Callable[[World, trio.Event], Awaitable[None]]:
    """`run(world, stop)`: auto recovery in a bookie's process, in a session of its own. ConfigError."""
    process, config = load(conf)
    settings, root = store_config(process), process.connect_string.ledgers_root

    def ready() -> None:
        """The bookie has told that it is."""

    async def run(world: World, stop: trio.Event) -> None:
        store = await open_store(world, settings)
        try:
            await serve_autorecovery(world, store, config, name=bookie_id, root=root, ready=ready, stop=stop)
        except (AutoRecoveryError, LedgerError) as error:
            raise CliError(f"auto recovery cannot go on: {error}") from error
        finally:
            with trio.CancelScope(shield=True):
                await store.aclose()

    return run


def run_autorecovery_command(conf: Path | None, log_level: str) -> int:
    """The command. Returns the exit code."""
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
        store = await open_store(world, settings)
        stats = RecoveryStats()
        serve = partial(serve_autorecovery, world, store, config, name=name, root=root, stats=stats)
        try:
            if not process.http_enabled:
                await serve(ready=announce, stop=stop)
            else:
                from quire.cli.autorecovery_web import serve_web

                async with trio.open_nursery() as nursery:
                    address = process.http_host, process.http_port
                    web = partial(serve_web, world, store, stats, *address, root=root, name=name, stop=stop)
                    host, port = await nursery.start(web, name="web")
                    http = f"http://{host}:{port}"
                    await serve(ready=announce, stop=stop)
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):  # its thread must end, or the process does not
                await store.aclose()

    return run_server("autorecovery", main, exit_code)


def exit_code(error: BaseException) -> int | None:
    """What a process that ends so answers; None if it is our mistake, or if it was cut."""
    causes = list(leaves(error))
    if not all(
        isinstance(each, (MetadataError, LedgerError, AutoRecoveryError, ConfigError, OSError)) for each in causes
    ):
        return None
    if any(isinstance(each, SessionExpiredError) for each in causes):
        return ZK_EXPIRED
    return INVALID_CONF if any(isinstance(each, ConfigError) for each in causes) else SERVER_EXCEPTION
