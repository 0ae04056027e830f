"""`quire broker --conf conf/broker.conf`: one broker of a cluster as a process, on ZooKeeper and bookies. It keeps
nothing: what is durable is theirs, and any broker can go on where another one ended.

Exit codes: 0 stopped as asked, 1 could not start or go on, 2 the configuration is wrong.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from broker.admin.non_persistent import NamesElsewhere
from broker.admin.other_brokers import OtherBrokers
from broker.ownership.own_credentials import OwnCredentials
from broker.ownership.ownership import Ownership
from broker.ownership.values import LocalBroker
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from cursors.doors import Ledgers
from managed_ledger.config import LogConfig, cursors_of
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.opening import open_client_on
from quire.metadata.errors import NoNodeError, SessionExpiredError
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.servers.addresses import Addresses, free_port, host_port, naming
from quire.servers.broker.config import BROKER, BrokerConfig
from quire.servers.broker.security import authentication_of, credentials_of
from quire.servers.errors import CliError
from quire.servers.process import closing, cut_after_faults, end_when, ending_at_faults, run_server
from quire.servers.serving import broker_port
from quire.servers.standalone.metadata import next_incarnation
from quire.servers.zookeeper.wait import open_when_there
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts
from quire.world.doors import World
from quire.world.outbox import Turn

log = get_logger(__name__)

DEFAULT_CONF = Path("conf/broker.conf")


class BrokerStartError(CliError):
    """The broker cannot be started on this cluster in its present state."""


# --- serving


async def run_broker_on(
    world: World,
    metadata: MetadataStore,
    ledger_client: Ledgers,
    config: BrokerConfig,
    *,
    ready: Callable[[Addresses], None],
    stop: trio.Event,
    turn: Turn | None = None,
    http: bool = True,
    ledgers_root: str = "/ledgers",
) -> None:
    """Run one broker of the cluster with this `metadata`, until `stop` is set.

    Raises BrokerStartError, ConfigError, PortError, MetadataError; the last, in a group, also after an expired session.

    Args:
        ready: called once it is registered and serves.
        turn: the turn of the ledger client's links.
        http: whether the web port is served. Its id contains `webServicePort` in any case.
    """
    cluster, listen = config.broker.cluster_name, config.listen
    authentication, credentials = authentication_of(config.authentication), credentials_of(config.authentication)
    own = None if credentials is None else OwnCredentials(credentials, world.offload)
    if await metadata.get(f"/admin/clusters/{cluster}") is None:
        raise BrokerStartError(
            f"clusterName={cluster}: there is no such cluster; make it with `quire initialize-cluster-metadata`, "
            "or correct clusterName"
        )
    host = listen.advertised_host
    grace_s = listen.shutdown_timeout_s
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(ending_at_faults(world.faults))
        expired = SessionExpiredError("the ZooKeeper session has expired: restart the broker")
        nursery.start_soon(end_when, metadata.expired, expired, name="metadata expired")
        with naming("brokerServicePort", listen.bind_address, listen.broker_port):
            listener = await world.network.listen(listen.bind_address, listen.broker_port)
        addresses = Addresses((host, listener.address[1]), (host, listen.web_port))
        me = LocalBroker(
            id=host_port((host, listen.web_port)), broker_url=addresses.broker_url, web_url=addresses.web_url
        )
        policies = TopicPolicies(metadata, LogConfig.of(config.logs), config.broker)
        await nursery.start(policies.run, name="policies")
        factory = ManagedLedgerFactory(
            world,
            metadata,
            ledger_client,
            config.logs,
            nursery,
            cursors_of(config.logs, config.cursors),
            config_of=policies.config_of,
        )
        nursery.start_soon(factory.run, name="managed ledgers")
        ownership = Ownership(world, metadata, me, replace(config.ownership, cluster_name=cluster), own)
        broker = Broker(
            world,
            metadata,
            factory,
            config.broker,
            nursery,
            turn=turn,
            service_url=me.broker_url,
            incarnation=await next_incarnation(metadata),
            ownership=ownership,
            policies=policies,
            authentication=authentication,
        )
        broker.context.credentials = credentials
        others = OtherBrokers(ownership, world.network, own)
        broker.administration.others = broker.change_events.elsewhere = others
        broker.direct.names_elsewhere = NamesElsewhere(metadata, others, me.id).names
        broker.administration.ledgers_root = ledgers_root
        broker.start()
        counts = ConnectionCounts()
        serve = broker_port(
            listener, broker, counts, grace_s=grace_s, connections_max=listen.connections_max, stop=stop
        )
        async with trio.open_nursery() as serving:
            await serving.start(serve, name="broker")
            if http:
                from quire.servers.broker.web import web_app
                from quire.service.http import serve_web

                app = web_app(
                    broker,
                    ownership,
                    policies,
                    others,
                    counts,
                    config,
                    me,
                    stop=stop,
                    ledgers_root=ledgers_root,
                )
                web = partial(serve_web, app, config.listen.bind_address, config.listen.web_port, stop=stop)
                with naming("webServicePort", listen.bind_address, listen.web_port):
                    await serving.start(web, name="web")
            await nursery.start(ownership.run, name="ownership")
            if not stop.is_set():
                ready(Addresses(addresses.broker, addresses.web if http else None))
                log.info("ready", broker=broker.service_url, id=me.id)
            await stop.wait()
            log.info("stopping")
        with trio.move_on_after(grace_s):
            await broker.closed.wait()
    log.info("stopped")


# --- from a configuration to a server


def located(config: BrokerConfig) -> BrokerConfig:
    """Complete the configuration with the values of this machine: its name, a free port. Raises ConfigError."""
    if not config.broker.cluster_name:
        raise ConfigError("clusterName: must be set, to the name given to `quire initialize-cluster-metadata`")
    listen = config.listen
    advertised = listen.advertised_address
    if not advertised and listen.bind_address in ("0.0.0.0", "::", ""):
        advertised = socket.getfqdn()
    return replace(
        config, listen=replace(listen, advertised_address=advertised, web_port=listen.web_port or free_port())
    )


def run_broker(conf: Path | None, log_level: str, *, accept_unsupported_policies: bool = False) -> int:
    """Run the command; return the exit code."""
    from quire.service import log as logging
    from quire.world.real import real_world

    try:
        logging.configure(log_level, sys.stderr)
        if conf is None and DEFAULT_CONF.exists():
            conf = DEFAULT_CONF
        overrides = {"quireAcceptUnsupportedPolicies": True} if accept_unsupported_policies else {}
        config = located(BROKER.load(conf, overrides))
        levels = logging.parse_levels(config.log.levels)
        store_config, root = config.metadata.stores()
    except (ConfigError, ValueError) as error:
        print(f"quire broker: {error}", file=sys.stderr)
        return 2
    world = real_world()
    logging.configure(log_level, sys.stderr, wall_ms=world.clock.wall_ms, levels=levels)

    def announce(found: Addresses) -> None:
        print(ready_line(found, os.getpid()), flush=True)

    async def main(stop: trio.Event) -> None:
        store = await open_when_there(world, store_config, stop)
        if store is None:
            return
        async with cut_after_faults(world.faults), closing(store):
            try:
                await ensure_layout(store, root)
            except NoNodeError as error:
                raise BrokerStartError(
                    f"{error}. Create it with `quire initialize-cluster-metadata`, or correct "
                    "bookkeeperMetadataServiceUri"
                ) from error
            turn = Turn()
            keys = config.ledger_client
            client = open_client_on(world, store, keys.client, root=root, watcher=keys.watcher, turn=turn)
            async with client as ledgers:
                await run_broker_on(
                    world, store, ledgers, config, ready=announce, stop=stop, turn=turn, ledgers_root=root
                )

    return run_server("broker", main)


def ready_line(addresses: Addresses, pid: int) -> str:
    """Return `ready broker=pulsar://host:6650 web=http://host:8080 pid=...`."""
    return f"ready broker={addresses.broker_url} web={addresses.web_url} pid={pid}"
