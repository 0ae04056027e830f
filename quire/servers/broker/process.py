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
from typing import TYPE_CHECKING, cast

import trio

from broker.admin.non_persistent import NamesElsewhere
from broker.admin.other_brokers import OtherBrokers
from broker.dynamic.conf import DynamicConf
from broker.dynamic.configuration import DynamicConfiguration
from broker.ownership.own_credentials import OwnCredentials
from broker.ownership.ownership import Ownership
from broker.ownership.values import LocalBroker
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from broker.topics.rates.group_following import GroupFollowing
from cursors.doors import Ledgers
from managed_ledger.config import LogConfig, cursors_of
from managed_ledger.factory import ManagedLedgerFactory
from quire.ledger.opening import open_client_on
from quire.metadata.errors import NoNodeError, SessionExpiredError
from quire.metadata.ledgers import ensure_layout
from quire.metadata.store import MetadataStore
from quire.servers.addresses import Addresses, free_port, naming
from quire.servers.bookie.auth_keys import bookie_credentials
from quire.servers.broker.config import BROKER, BrokerConfig
from quire.servers.broker.ports import open_ports
from quire.servers.broker.security import authentication_of, check_security, credentials_of
from quire.servers.broker.tiered_storage import open_tiered_storage
from quire.servers.errors import CliError
from quire.servers.late_imports import load_late
from quire.servers.process import closing, cut_after_faults, end_when, ending_at_faults, run_server
from quire.servers.standalone.metadata import next_incarnation
from quire.servers.tracing import open_tracing
from quire.servers.zookeeper.wait import open_when_there
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.serve import ConnectionCounts
from quire.world.doors import World
from quire.world.outbox import Turn

if TYPE_CHECKING:
    from quire.servers.broker.client_metrics import CountedLedgers
    from quire.world.tls_sides import ClientTls

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
    bookie_tls: ClientTls | None = None,
) -> None:
    """Run one broker of the cluster with this `metadata`, until `stop` is set.

    Raises BrokerStartError, ConfigError, PortError, MetadataError; the last, in a group, also after an expired session.

    Args:
        ready: called once it is registered and serves.
        turn: the turn of the ledger client's links.
        http: whether the web port is served. Its id contains `webServicePort` in any case.
        bookie_tls: TLS of the ledger client, with which the console reads the web ports of bookies.
    """
    cluster = config.broker.cluster_name
    ownership_options = replace(
        config.ownership,
        cluster_name=cluster,
        persistent_topics=config.broker.persistent_topics,
        non_persistent_topics=config.broker.non_persistent_topics,
    )
    dynamic = DynamicConfiguration(metadata, DynamicConf(BROKER, replace(config, ownership=ownership_options)))
    config = dynamic.conf.config
    listen = config.listen
    authentication, credentials = (
        authentication_of(config.authentication, config.authorization),
        credentials_of(config.authentication),
    )
    own = None if credentials is None else OwnCredentials(credentials, world.offload)
    if await metadata.get(f"/admin/clusters/{cluster}") is None:
        raise BrokerStartError(
            f"clusterName={cluster}: there is no such cluster; make it with `quire initialize-cluster-metadata`, "
            "or correct clusterName"
        )
    await dynamic.load()
    host = listen.advertised_host
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(ending_at_faults(world.faults))
        expired = SessionExpiredError("the ZooKeeper session has expired: restart the broker")
        nursery.start_soon(end_when, metadata.expired, expired, name="metadata expired")
        ports = await open_ports(world, listen, config.tls)
        plain, tls = ports.addresses(host)
        web = None if listen.web_port is None else (host, listen.web_port)
        web_tls = None if listen.web_port_tls is None else (host, listen.web_port_tls)
        addresses = Addresses(plain, web, tls, web_tls)
        me = LocalBroker(
            id=addresses.web_url.partition("://")[2],
            broker_url=addresses.broker_url,
            web_url=addresses.web_url,
            broker_url_tls=addresses.broker_url_tls,
            web_url_tls=addresses.web_url_tls,
        )
        client_tls = await _client_tls(world, config)
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
            objects=await open_tiered_storage(config.tiered),
        )
        nursery.start_soon(factory.run, name="managed ledgers")
        ownership = Ownership(world, metadata, me, config.ownership, tls=client_tls, own=own)
        tracing = await stack.enter_async_context(open_tracing(world, config.tracing))
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
            authorization=config.authorization,
        )
        broker.context.service_url_tls = me.broker_url_tls
        broker.context.client_tls = client_tls
        broker.context.tracing = tracing
        broker.context.credentials = credentials
        others = OtherBrokers(ownership, world.network, client_tls, own)
        broker.administration.others = broker.change_events.elsewhere = others
        broker.direct.names_elsewhere = NamesElsewhere(metadata, others, me.id).names
        broker.administration.ledgers_root = ledgers_root

        def changed(names: frozenset[str]) -> None:
            broker.options_changed(config.logs)
            ownership.options_changed()

        dynamic.on_change = changed
        nursery.start_soon(dynamic.run, name="configuration")
        groups = GroupFollowing(metadata, broker.topics.rates.groups, broker.topics.following.everything)
        nursery.start_soon(groups.run, name="resource groups")
        share = partial(
            groups.share,
            me.id,
            lambda: ownership.brokers.reports,
            lambda: config.ownership.resource_usage_interval_s,
        )
        nursery.start_soon(share, name="shares of resource groups")
        broker.start()
        counts = ConnectionCounts()
        async with trio.open_nursery() as serving:
            await ports.serve(broker, counts, listen, serving, stop)
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
                    dynamic,
                    me,
                    stop=stop,
                    ledgers_root=ledgers_root,
                    certificates=ports.certificates(),
                    ledgers=cast("CountedLedgers", ledger_client),
                    bookie_tls=bookie_tls,
                )
                for key, port, secure in (
                    ("webServicePort", listen.web_port, None),
                    ("webServicePortTls", listen.web_port_tls, ports.secure_web),
                ):
                    if port is not None:
                        serve = partial(serve_web, app, listen.bind_address, port, stop=stop, tls=secure)
                        with naming(key, listen.bind_address, port):
                            await serving.start(serve, name="web")
                serving.start_soon(load_late, world.offload, name="late imports")
            await nursery.start(ownership.run, name="ownership")
            if not stop.is_set():
                ready(addresses if http else replace(addresses, web=None, web_tls=None))
                log.info("ready", broker=broker.service_url, id=me.id)
            await stop.wait()
            log.info("stopping")
        with trio.move_on_after(listen.shutdown_timeout_s):
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
    web_port, web_port_tls = (free_port() if port == 0 else port for port in (listen.web_port, listen.web_port_tls))
    listen = replace(listen, advertised_address=advertised, web_port=web_port, web_port_tls=web_port_tls)
    return replace(config, listen=listen)


async def _client_tls(world: World, config: BrokerConfig) -> ClientTls | None:
    """Return the TLS of connections to other brokers; None: they have none. Raises ConfigError."""
    options = config.client_tls.options()
    if options is None:
        return None
    from quire.servers.tls import open_client_tls  # imported here, because other brokers do not need it

    return await open_client_tls(world, options, name="other brokers", refresh_s=config.tls.refresh_s)


async def _ledger_tls(world: World, config: BrokerConfig) -> ClientTls | None:
    """Return the TLS of connections to bookies; None: they have none. Raises ConfigError."""
    options = config.ledger_tls.options()
    if options is None:
        return None
    from quire.servers.tls import open_client_tls

    return await open_client_tls(world, options, name="bookies", refresh_s=config.ledger_tls.interval_s)


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
        check_security(config.authentication, config.authorization)
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
            tls = await _ledger_tls(world, config)
            known = await bookie_credentials(
                world, config.ledger_auth.parameters, "bookkeeperClientAuthenticationParameters"
            )
            client = open_client_on(
                world,
                store,
                keys.client,
                root=root,
                watcher=keys.watcher,
                turn=turn,
                tls=tls,
                credentials=known,
            )
            async with client as ledgers:
                await run_broker_on(
                    world,
                    store,
                    ledgers,
                    config,
                    ready=announce,
                    stop=stop,
                    turn=turn,
                    ledgers_root=root,
                    bookie_tls=tls,
                )

    return run_server("broker", main)


def ready_line(addresses: Addresses, pid: int) -> str:
    """Return `ready broker=pulsar://host:6650 web=http://host:8080 pid=...`."""
    return f"ready broker={addresses.broker_url} web={addresses.web_url}{addresses.tls_part} pid={pid}"
