"""The web port of a broker: status, health, metrics, admin REST. Imported after the binary port is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio
from starlette.applications import Starlette

from broker.admin.cluster.brokers import elsewhere
from broker.admin.other_brokers import OtherBrokers
from broker.admin.permissions.access import checked_route
from broker.admin.requests import ClusterService, Service
from broker.admin.resources import routes
from broker.console.cluster_ports import ClusterParts
from broker.console.site import console_door, console_routes
from broker.dynamic.configuration import DynamicConfiguration
from broker.errors import ServiceNotReadyError
from broker.metrics import register
from broker.ownership import http_client
from broker.ownership.metrics import register_bundles
from broker.ownership.ownership import Ownership
from broker.ownership.values import LocalBroker
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from broker.tracing.metrics import register_tracing
from managed_ledger.session import MetadataSession
from quire.ledger.placement import make_plain
from quire.ledger.placement.policy import Cluster
from quire.metadata.bookies import available
from quire.servers.broker.bookies_seen import seen_bookies
from quire.servers.broker.client_metrics import CountedLedgers, register_broker_client
from quire.servers.broker.config import BrokerConfig
from quire.servers.broker.security import middleware_of
from quire.servers.broker.tiered_metrics import register_objects
from quire.servers.broker.tiered_storage import counts_of
from quire.servers.machine_metrics import Certified, register_machine, register_ready
from quire.service.http import Health, make_app
from quire.service.measuring.loop_watch import watch_loop
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls


def web_app(
    broker: Broker,
    ownership: Ownership,
    policies: TopicPolicies,
    others: OtherBrokers,
    counts: ConnectionCounts,
    config: BrokerConfig,
    configuration: DynamicConfiguration,
    me: LocalBroker,
    *,
    stop: trio.Event,
    ledgers_root: str,
    certificates: Mapping[str, Certified | None],
    ledgers: CountedLedgers,
    bookie_tls: ClientTls | None = None,
) -> Starlette:
    """Return the site of a broker; it is ready until `stop` is set.

    Args:
        certificates: sides of TLS by port.
        ledgers: its ledger client.
        bookie_tls: TLS of its connections to bookies.
    """
    http_client.load()
    session = MetadataSession(broker.metadata)
    metrics = Metrics()
    register(metrics, broker, counts, config.broker.cluster_name, config.metrics)
    register_objects(metrics, counts_of(broker.objects), config.broker.cluster_name)
    watch_loop(metrics)
    register_machine(metrics, certificates)
    register_tracing(metrics, broker.context.tracing)
    if config.metrics.ledger_client:
        register_broker_client(metrics, ledgers, config.broker.cluster_name)
    register_cluster(metrics, lambda: len(ownership.owned()), session.is_up)
    register_bundles(metrics, config.broker.cluster_name, me.id, lambda: ownership.reporter.loads, ownership.balancer)

    def bookies_seen() -> int | None:
        seen = ledgers.cluster
        return None if seen is None else len(seen.writable)

    ready = partial(takes_messages, stop.is_set, session.is_up, bookies_seen, config.logs.ensemble_size)
    register_ready(metrics, ready)
    check = partial(check_health, broker, session, ledgers_root, config.logs.ensemble_size)
    service = Service(
        administration=broker.administration,
        client_partitions=broker.client_partitions,
        broker_url=lambda: me.broker_url,
        web_url=lambda: me.web_url,
        authorizer=broker.authorizer,
        broker_url_tls=lambda: me.broker_url_tls,
        web_url_tls=lambda: me.web_url_tls,
        deadline_s=config.broker.topic_load_timeout_s,
        cluster=ClusterService(
            metadata=broker.metadata,
            namespaces=ownership.namespaces,
            policies=policies,
            ownership=ownership,
            cluster_name=config.broker.cluster_name,
            ledgers_root=ledgers_root,
            broker_id=me.id,
            others=others,
            force_delete_namespace=lambda: config.deletion.force_namespace,
            force_delete_tenant=lambda: config.deletion.force_tenant,
            metadata_url=config.metadata.url,
            loaded=broker.topics.loaded,
            started_ms=broker.context.world.clock.wall_ms(),
            wall_ms=broker.context.world.clock.wall_ms,
            configuration=configuration,
            bookies=partial(seen_bookies, ledgers, broker.metadata, ledgers_root),
        ),
    )
    health = Health(is_ready=lambda: not stop.is_set(), check=check, elsewhere=partial(elsewhere, service))
    guard = None if broker.authorizer is None else partial(checked_route, broker.authorizer)
    security = config.authentication
    context = broker.context
    middleware = middleware_of(
        context.authentication, security, context.world.clock, context.rare_lines, context.neighbours
    )
    placement = config.ledger_client.client.placement
    parts = ClusterParts(
        ledgers=ledgers,
        network=context.world.network,
        nursery=context.nursery,
        cluster=lambda: ledgers.cluster or Cluster(writable=()),
        bookie_tls=bookie_tls,
        placement_in=lambda others: make_plain(placement, lambda: others, context.world.rng),
    )
    console = config.console
    own_routes = [*routes(service), *console_routes(console, service, parts)]
    return make_app(metrics, health, own_routes, [*console_door(console, service, parts), *middleware], guard=guard)


def register_cluster(metrics: Metrics, bundles: Callable[[], int], is_up: Callable[[], bool]) -> None:
    """Add the families of a broker of a cluster."""
    metrics.gauge("quire_bundles_owned", "Bundles that this broker serves", bundles)
    metrics.gauge("quire_metadata_connected", "1 while ZooKeeper can be reached", lambda: float(is_up()))


def takes_messages(
    stops: Callable[[], bool], is_up: Callable[[], bool], bookies: Callable[[], int | None], ensemble_size: int
) -> bool:
    """Return whether a broker of a cluster can load topics and store messages, by what it knows without asking.

    Args:
        stops: whether the broker is stopping.
        is_up: whether ZooKeeper can be reached.
        bookies: bookies seen that take entries; None: they are not watched yet.
        ensemble_size: bookies that a new ledger needs.
    """
    seen = bookies()
    return not stops() and is_up() and (seen is None or seen >= ensemble_size)


async def check_health(broker: Broker, session: MetadataSession, ledgers_root: str, ensemble_size: int) -> None:
    """ServiceNotReadyError if ZooKeeper cannot be reached, or too few bookies take entries; then the broker's own
    check."""
    try:
        if not session.is_up():
            raise ServiceNotReadyError("ZooKeeper cannot be reached")
        bookies = await available(broker.metadata, root=ledgers_root)
        if len(bookies) < ensemble_size:
            raise ServiceNotReadyError(f"{len(bookies)} bookies take entries, and a new ledger needs {ensemble_size}")
    except BaseException:
        broker.health = 0
        raise
    await broker.check_health()
