"""`quire bookie --conf conf/bk_server.conf`: one bookie as a process, on ZooKeeper.

Exit codes, the original's: 0 stopped as asked, 1 the configuration is wrong, 2 the server failed, 3 ZooKeeper gave the bookie
up and it may not register anew, 4 it could not register, 5 the bookie could not start or go on (folders, cookies, disk).
"""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from bookie.bookie import open_bookie
from bookie.cookie import rebuild_command
from bookie.errors import BookieError, StorageFailedError
from bookie.server import serve_bookie
from quire.metadata.bookies import Endpoint, check_bookie_id
from quire.metadata.errors import (
    InvalidConnectStringError,
    InvalidPathError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.metadata.zookeeper.store import (
    SessionExpiredPolicy,
    ZooKeeperConfig,
    parse_connect_string,
)
from quire.servers.addresses import free_port, naming
from quire.servers.bookie.config import BookieServerConfig, load_server_config
from quire.servers.errors import CliError, leaves
from quire.servers.exit_codes import BOOKIE_EXCEPTION, INVALID_CONF, SERVER_EXCEPTION, ZK_EXPIRED, ZK_REG_FAIL
from quire.servers.process import closing, end_at_fault, end_when, run_server
from quire.servers.zookeeper.keys import PULSAR_PREFIX, credentials, tls
from quire.servers.zookeeper.wait import open_when_there
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts
from quire.world.damage import DamagedError
from quire.world.doors import World

log = get_logger(__name__)

_SIOCGIFADDR = 0x8915


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
        http = f"http://{self.http[0]}:{self.http[1]}" if self.http else ""
        return (
            f"ready bookie={self.config.id} address={self.address[0]}:{self.address[1]} http={http} "
            f"journal={self.config.journal_directory} ledgers={self.config.ledger_directory} pid={pid}"
        )


# --- from a configuration to a server


def zookeeper_config(config: BookieServerConfig) -> tuple[ZooKeeperConfig, str]:
    """How to reach the metadata store, and the ledgers' root in it. ConfigError."""
    uri = config.metadata_service
    plain = uri.removeprefix(PULSAR_PREFIX)
    scheme = plain.partition(":")[0].partition("+")[0]
    if plain != uri and scheme != "zk":
        plain = f"zk:{plain}"
    elif scheme != "zk":
        raise ConfigError(
            f"metadataServiceUri={uri}: the metadata store is ZooKeeper: zk+hierarchical://host:2181/ledgers"
        )
    try:
        where = parse_connect_string(plain)
        made = ZooKeeperConfig(
            servers=where.servers,
            chroot=where.chroot,
            session_timeout_s=config.zk_timeout_ms / 1000,
            retry_first_s=config.zk_retry_first_ms / 1000,
            retry_max_s=max(config.zk_retry_first_ms, config.zk_retry_max_ms) / 1000,
            session_expired_policy=SessionExpiredPolicy(config.zk_expired_policy),
            secure=config.zk_secure,
            auth=credentials(config),
            tls=tls(config),
        )
    except InvalidConnectStringError as error:
        raise ConfigError(f"metadataServiceUri: {error}") from error
    return made, where.ledgers_root


def located(config: BookieServerConfig, ledgers_root: str) -> BookieServerConfig:
    """The configuration with everything in it that this machine says: host, port, folders. ConfigError."""
    host = config.host or own_host(config)
    port = config.port or free_port()
    folders = (config.journal_directory, config.ledger_directory, config.index_directory)
    # A cookie names folders as they are configured, and those of a relative path by that.
    root = "" if all(os.path.isabs(folder) for folder in folders if folder) else os.getcwd()
    journal, ledgers, index = (os.path.abspath(folder) if folder else "" for folder in folders)
    made = replace(
        config,
        host=host,
        port=port,
        journal_directory=journal,
        ledger_directory=ledgers,
        index_directory="" if index == ledgers else index,
        ledgers_root=ledgers_root,
        root=root,
    )
    try:
        check_bookie_id(made.id)
    except InvalidPathError as error:
        raise ConfigError(f"bookieId: {error}") from error
    return made


def own_host(config: BookieServerConfig) -> str:
    """What this machine is called, or its address. ConfigError if others cannot reach it by that."""
    address = interface_address(config.listening_interface) if config.listening_interface else None
    name = socket.getfqdn()
    if address is None:
        try:
            address = socket.gethostbyname(socket.gethostname())
        except OSError as error:
            raise ConfigError(f"this host's name has no address ({error}): set advertisedAddress") from error
    if address.startswith("127.") and not config.allow_loopback:
        raise ConfigError(
            f"this host's name resolves to {address}, which others cannot reach: set advertisedAddress or "
            "listeningInterface, or allowLoopback=true for a cluster on one machine"
        )
    if config.use_host_name:
        return name.partition(".")[0] if config.use_short_host_name else name
    return address


def interface_address(name: str) -> str:
    """Return the IPv4 address of a network interface. Raises ConfigError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise ConfigError(f"listeningInterface={name}: {error.strerror}") from error
    return socket.inet_ntoa(answer[20:24])


def check_user(config: BookieServerConfig) -> None:
    """ConfigError if this user may not start a bookie."""
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
) -> None:
    """Serve one located bookie, until `stop` is set, and run `beside(stop)` while it serves.

    Raises BookieError, MetadataError, OSError, PortError, RegistrationError, in groups."""
    try:
        await ensure_layout(metadata, config.ledgers_root)
    except NoNodeError as error:
        raise BookieStartError(
            f"{error}. Create it with `quire shell initnewcluster`, or correct metadataServiceUri"
        ) from error
    bind = interface_address(config.listening_interface) if config.listening_interface else "0.0.0.0"
    async with AsyncExitStack() as stack:
        bookie = await stack.enter_async_context(open_bookie(world, config, metadata))
        bookie.total_bytes = total_bytes
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        nursery.start_soon(end_at_fault, world.faults, name="faults")
        lost = "a sync failed and nobody knows what is on the disk; the next start will tell"
        nursery.start_soon(end_when, bookie.failed, StorageFailedError(lost), name="bookie failed")
        expired = SessionExpiredError("the ZooKeeper session has expired: restart the bookie")
        nursery.start_soon(end_when, metadata.expired, expired, name="metadata expired")
        counts = ConnectionCounts()
        http: tuple[str, int] | None = None
        endpoints: tuple[Endpoint, ...] = ()
        if config.http_enabled:
            from quire.servers.bookie.web import serve_web

            web = partial(serve_web, bookie, metadata, counts, config, stop=stop)
            with naming("httpServerPort", config.http_host, config.http_port):
                _, http_port = await nursery.start(web, name="web")
            http = (config.host, http_port)
            endpoints = (Endpoint(id="httpserver", host=config.host, port=http_port, protocol="http"),)
        serving = partial(
            serve_bookie,
            world,
            bookie,
            metadata,
            bind_address=bind,
            stop=stop,
            counts=counts,
            endpoints=endpoints,
            register_wait_s=2 * config.zk_timeout_ms / 1000,
        )
        async with trio.open_nursery() as outer:
            with naming("bookiePort", bind, config.port):
                address = await outer.start(_registered, serving, name="bookie")
            if beside is not None:
                outer.start_soon(beside, stop, name="beside the bookie")
            ready(Ready(config, address, http))
            log.info("ready", bookie=config.id)
        log.info("stopping")
    log.info("stopped")


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
        config = BookieServerConfig() if conf is None else load_server_config(conf)
        check_user(config)
        store_config, root = zookeeper_config(config)
        config = located(config, root)
        auto_recovery = _auto_recovery(conf, config)
    except (ConfigError, ValueError) as error:
        print(f"quire bookie: {error}", file=sys.stderr)
        return INVALID_CONF
    world = real_world()
    logging.configure(log_level, sys.stderr, wall_ms=world.clock.wall_ms)

    def announce(found: Ready) -> None:
        print(found.line(os.getpid()), flush=True)

    async def main(stop: trio.Event) -> None:
        beside = None if auto_recovery is None else partial(auto_recovery, world)
        store = await open_when_there(world, store_config, stop)
        if store is None:
            return
        async with closing(store):
            await serve(world, config, store, ready=announce, stop=stop, beside=beside)

    named = "" if conf is None else f"`quire doctor --conf {conf}` lists all damage; "
    remedy = f"{named}{rebuild_command(config.id)} rebuilds this bookie from the others (docs/operating.md)"
    return run_server("bookie", main, exit_code, remedy=remedy)


def _auto_recovery(
    conf: Path | None, config: BookieServerConfig
) -> Callable[[World, trio.Event], Awaitable[None]] | None:
    """What runs beside the bookie, if it is to: `run(world, stop)`. ConfigError."""
    if not config.auto_recovery:
        return None
    # Imported here, because other bookies do not need it.
    from quire.servers.autorecovery.process import beside_bookie

    return beside_bookie(conf, config.id)


def exit_code(error: BaseException) -> int | None:
    """Return the exit code for an error that ends a bookie; None for an internal error, or if it was cancelled."""
    causes = list(leaves(error))
    kinds = (
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
