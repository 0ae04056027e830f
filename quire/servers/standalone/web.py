"""The web port of a standalone server: status, health, metrics, admin REST. Imported after the binary port is
served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from starlette.applications import Starlette

from bookie.bookie import Bookie
from bookie.metrics import register as register_bookie
from bookie.scrubber.metrics import register_scrubber
from bookie.scrubber.scrubber import Scrubber
from broker.admin.cluster.brokers import elsewhere
from broker.admin.permissions.access import checked_route, super_user_check
from broker.admin.requests import ClusterService, Service
from broker.admin.resources import routes
from broker.admin.top.bookies import SeenBookie
from broker.console.cluster_disks import BookieFacts, DiskSpace
from broker.console.cluster_ports import ClusterParts
from broker.console.site import console_door, console_routes
from broker.dynamic.configuration import DynamicConfiguration
from broker.metrics import register
from broker.ownership.config import OwnershipOptions
from broker.ownership.local import OwnEverything
from broker.ownership.namespaces import Namespaces
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from broker.tracing.metrics import register_tracing
from quire.ledger.placement import PlacementConfig, RandomPolicy
from quire.ledger.placement.policy import Cluster
from quire.servers.addresses import Addresses, naming
from quire.servers.bookie.scrub_web import scrub_route
from quire.servers.broker.client_metrics import CountedLedgers, register_broker_client
from quire.servers.broker.security import middleware_of
from quire.servers.broker.tiered_metrics import register_objects
from quire.servers.broker.tiered_storage import counts_of
from quire.servers.machine_metrics import Certified, register_machine, register_ready
from quire.servers.standalone.config import StandaloneConfig
from quire.service.http import Health, make_app, serve_web
from quire.service.measuring.loop_watch import watch_loop
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts

if TYPE_CHECKING:
    from quire.world.tls_sides import ServerTls


class Site:
    """The site of a standalone server, which is ready until `stop` is set."""

    def __init__(
        self,
        broker: Broker,
        bookie: Bookie,
        scrubber: Scrubber,
        policies: TopicPolicies,
        counts: ConnectionCounts,
        config: StandaloneConfig,
        configuration: DynamicConfiguration,
        addresses: Addresses,
        *,
        stop: trio.Event,
        certificates: Mapping[str, Certified | None],
        ledgers: CountedLedgers,
    ) -> None:
        """`ledgers`: the ledger client of the broker."""
        self._ownership = OwnEverything(broker.service_url)
        self._config = config
        self._stop = stop
        self.addresses = addresses
        self.app = _app(
            self._ownership,
            broker,
            bookie,
            scrubber,
            policies,
            counts,
            config,
            configuration,
            self._urls,
            certificates,
            stop=stop,
            ledgers=ledgers,
        )

    def _urls(self) -> Addresses:
        return self.addresses

    async def serve(self, nursery: trio.Nursery, tls: ServerTls | None) -> Addresses:
        """Serve the configured web ports in tasks of `nursery`; return all addresses when they are served.

        PortError."""
        listen = self._config.listen
        for key, port, secure in (
            ("webServicePort", listen.web_port, None),
            ("webServicePortTls", listen.web_port_tls, tls),
        ):
            if port is None:
                continue
            field = "web" if secure is None else "web_tls"
            listening = partial(self._listening, field)
            serve = partial(
                serve_web, self.app, listen.bind_address, port, stop=self._stop, listening=listening, tls=secure
            )
            with naming(key, listen.bind_address, port):
                await nursery.start(serve, name=field)
        return self.addresses

    def _listening(self, field: str, address: tuple[str, int]) -> None:
        own: dict[str, Any] = {field: (self._config.listen.advertised_host, address[1])}
        self.addresses = replace(self.addresses, **own)
        self._ownership.web_url = self.addresses.web_url


def _app(
    ownership: OwnEverything,
    broker: Broker,
    bookie: Bookie,
    scrubber: Scrubber,
    policies: TopicPolicies,
    counts: ConnectionCounts,
    config: StandaloneConfig,
    configuration: DynamicConfiguration,
    addresses: Callable[[], Addresses],
    certificates: Mapping[str, Certified | None],
    *,
    stop: trio.Event,
    ledgers: CountedLedgers,
) -> Starlette:
    metrics = Metrics()
    register(metrics, broker, counts, config.broker.cluster_name, config.metrics)
    register_objects(metrics, counts_of(broker.objects), config.broker.cluster_name)
    register_bookie(metrics, bookie, ConnectionCounts())
    register_scrubber(metrics, scrubber)
    watch_loop(metrics)
    register_machine(metrics, certificates)
    register_tracing(metrics, broker.context.tracing)
    if config.metrics.ledger_client:
        register_broker_client(metrics, ledgers, config.broker.cluster_name)
    register_embedded(metrics, bookie)
    register_ready(metrics, lambda: not stop.is_set() and not broker.no_room)

    async def bookies() -> list[SeenBookie]:
        total, free = await bookie.world.offload.run(bookie.disk_space, name="disk space")
        return [SeenBookie(bookie.config.id, "writable", free=free, total=total)]

    service = Service(
        administration=broker.administration,
        client_partitions=broker.client_partitions,
        broker_url=lambda: broker.service_url,
        authorizer=broker.authorizer,
        web_url=lambda: addresses().web_url,
        broker_url_tls=lambda: addresses().broker_url_tls,
        web_url_tls=lambda: addresses().web_url_tls,
        deadline_s=config.broker.topic_load_timeout_s,
        cluster=ClusterService(
            metadata=broker.metadata,
            namespaces=Namespaces(
                broker.metadata, OwnershipOptions(cluster_name=config.broker.cluster_name, bundles_default=1)
            ),
            policies=policies,
            ownership=ownership,
            cluster_name=config.broker.cluster_name,
            force_delete_namespace=lambda: config.deletion.force_namespace,
            force_delete_tenant=lambda: config.deletion.force_tenant,
            ensemble_max=1,
            loaded=broker.topics.loaded,
            started_ms=broker.context.world.clock.wall_ms(),
            wall_ms=broker.context.world.clock.wall_ms,
            configuration=configuration,
            bookies=bookies,
        ),
    )

    health = Health(
        is_ready=lambda: not stop.is_set(),
        check=broker.check_health,
        no_room=lambda: broker.no_room,
        elsewhere=partial(elsewhere, service),
    )
    guard = None if broker.authorizer is None else partial(checked_route, broker.authorizer)
    security = config.authentication
    context = broker.context
    middleware = middleware_of(
        context.authentication, security, context.world.clock, context.rare_lines, context.neighbours
    )
    own = bookie.config.id
    parts = ClusterParts(
        ledgers=ledgers,
        network=context.world.network,
        nursery=context.nursery,
        cluster=lambda: Cluster(writable=() if bookie.read_only else (own,), read_only=_only(own, bookie.read_only)),
        placement_in=lambda others: RandomPolicy(PlacementConfig(), lambda: others, context.world.rng),
        own_bookies={own: partial(_facts, bookie)},
    )
    console = config.console
    scrubs = scrub_route(bookie, scrubber, super_user_check(broker.authorizer))
    own_routes = [*routes(service), scrubs, *console_routes(console, service, parts)]
    return make_app(metrics, health, own_routes, [*console_door(console, service, parts), *middleware], guard=guard)


def _only(bookie_id: str, there: bool) -> frozenset[str]:
    return frozenset((bookie_id,)) if there else frozenset()


async def _facts(bookie: Bookie) -> BookieFacts:
    """Return the facts about the embedded bookie, which is not registered and has no port."""
    config, journal = bookie.config, bookie.journal
    world, folder = bookie.world, config.ledger_directory
    total, free = await world.offload.run(
        lambda: (world.disk.total_bytes(folder), world.disk.free_bytes(folder)), name="disk space"
    )
    return BookieFacts(
        bookie_id=config.id,
        state="read-only" if bookie.read_only else "writable",
        journals=(config.journal_directory,),
        directories=(config.ledger_directory,),
        space=DiskSpace(total, free),
        thresholds={
            "forceReadOnlyBookie": str(config.force_read_only).lower(),
            "quireDiskReserveMb": str(config.disk_reserve_mb),
            "journalPreAllocSizeMB": str(config.journal_prealloc_mb),
        },
        journal={
            "syncs": float(journal.groups),
            "queuedBytes": float(journal.queued_bytes),
            "queuedBytesMax": float(config.journal.queue_size_max),
            "writeFailures": float(journal.write_failures),
        },
        reason=bookie.mode.reason,
    )


def register_embedded(metrics: Metrics, bookie: Bookie) -> None:
    """Add the families that only a standalone server has: the first names of what its bookie does."""
    stats = bookie.stats
    metrics.counter("bookie_adds", "Entries added", lambda: stats.adds)
    metrics.counter("bookie_add_bytes", "Bytes of entries added", lambda: stats.add_bytes)
    metrics.counter("bookie_reads", "Read requests served", lambda: stats.reads)
    metrics.counter("bookie_journal_syncs", "Commit groups written and synced", lambda: bookie.journal.groups)
