"""The web port of a standalone server: status, health, metrics, admin REST. Imported after the binary port is
served."""

from __future__ import annotations

from collections.abc import Callable

import trio
from starlette.applications import Starlette

from bookie.bookie import Bookie
from broker.admin.requests import ClusterService, Service
from broker.admin.resources import routes
from broker.metrics import register
from broker.ownership.config import OwnershipOptions
from broker.ownership.local import OwnEverything
from broker.ownership.namespaces import Namespaces
from broker.server import Broker
from broker.topics.policies import TopicPolicies
from quire.servers.addresses import Addresses
from quire.servers.broker.security import middleware_of
from quire.servers.standalone.config import StandaloneConfig
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts


def web_app(
    broker: Broker,
    bookie: Bookie,
    policies: TopicPolicies,
    counts: ConnectionCounts,
    config: StandaloneConfig,
    *,
    stop: trio.Event,
) -> tuple[Starlette, Callable[[tuple[str, int]], None]]:
    """Return the site of a standalone server, which is ready until `stop` is set; and what is to be called with the
    address it is served at."""
    metrics = Metrics()
    register(metrics, broker, counts, config.broker.cluster_name)
    stats = bookie.stats
    metrics.counter("bookie_adds", "Entries added", lambda: stats.adds)
    metrics.counter("bookie_add_bytes", "Bytes of entries added", lambda: stats.add_bytes)
    metrics.counter("bookie_reads", "Read requests served", lambda: stats.reads)
    metrics.counter("bookie_journal_syncs", "Commit groups written and synced", lambda: bookie.journal.groups)
    metrics.gauge(
        "quire_disk_full", "1: the disk is full, nothing is published; 0: it is not", lambda: int(broker.no_room != "")
    )
    ownership = OwnEverything(broker.service_url)
    health = Health(is_ready=lambda: not stop.is_set(), check=broker.check_health, no_room=lambda: broker.no_room)
    web_url = ""
    service = Service(
        administration=broker.administration,
        client_partitions=broker.client_partitions,
        broker_url=lambda: broker.service_url,
        web_url=lambda: web_url,
        deadline_s=config.broker.topic_load_timeout_s,
        cluster=ClusterService(
            metadata=broker.metadata,
            namespaces=Namespaces(
                broker.metadata, OwnershipOptions(cluster_name=config.broker.cluster_name, bundles_default=1)
            ),
            policies=policies,
            ownership=ownership,
            cluster_name=config.broker.cluster_name,
            ensemble_max=1,
        ),
    )

    def listening(address: tuple[str, int]) -> None:
        nonlocal web_url
        advertised = (config.listen.advertised_host, address[1])
        ownership.web_url = web_url = Addresses(advertised, advertised).web_url

    security = config.authentication
    middleware = middleware_of(broker.context.authentication, security, broker.context.world.clock)
    return make_app(metrics, health, routes(service), middleware), listening
