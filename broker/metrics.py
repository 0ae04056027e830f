"""Metrics of the broker under Pulsar's names, read at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker.life_metrics import register_life
from broker.security.metrics import register_authentication
from broker.series.config import MetricsOptions
from broker.series.table import TopicSeries
from broker.server import Broker
from broker.topics.topic import Topic
from quire.distribution import installed_version
from quire.metadata.store import MetadataStore
from quire.metadata.times import STORE, Timed
from quire.service.metrics import Metrics, Samples
from quire.service.serve import ConnectionCounts

TOPICS_IN_STEP = 200
"""Topics that a sum reads before other tasks run."""


def register(
    metrics: Metrics,
    broker: Broker,
    counts: ConnectionCounts,
    cluster: str,
    options: MetricsOptions | None = None,
) -> None:
    """Add the broker's families to `metrics`."""
    register_series(metrics, broker, cluster, options or MetricsOptions())

    def version() -> Samples:
        yield (cluster, installed_version()), 1

    def by_namespace(counted: Counter[str]) -> Callable[[], Samples]:
        return lambda: [((cluster, namespace), count) for namespace, count in counted.items()]

    metrics.family("gauge", "pulsar_version_info", "Which Quire this is", ("cluster", "version"), version)
    metrics.gauge("pulsar_active_connections", "Connections served now", lambda: counts.active)
    metrics.counter("pulsar_connection_created_total_count", "Connections accepted", lambda: counts.opened)
    metrics.counter("pulsar_connection_closed_total_count", "Connections ended", lambda: counts.closed)
    metrics.counter(
        "pulsar_connection_create_success_count", "Connections that said CONNECT", lambda: broker.context.connects
    )
    metrics.counter("quire_frames", "Frames of clients that were handled", lambda: broker.context.frames)
    metrics.counter(
        "quire_requests_not_permitted",
        "Commands and requests refused because their role lacks a permission",
        lambda: 0 if broker.authorizer is None else broker.authorizer.refused,
    )
    metrics.counter(
        "quire_permissions_taken_away",
        "Producers, consumers and watchers ended because their role has lost a permission",
        lambda: 0 if broker.takeaway is None else broker.takeaway.ended,
    )
    if broker.context.authentication is not None:
        register_authentication(metrics, broker.context.authentication)
    metrics.gauge("pulsar_health", "What the last health check found: 1, 0; -1: none yet", lambda: broker.health)
    lookups, loaded = broker.lookups, broker.topics
    metrics.histogram("pulsar_broker_lookup", "Lookups over the binary protocol, in milliseconds", lookups.times)
    metrics.counter("pulsar_broker_lookup_answers", "Of them, told who serves it", lambda: lookups.answers)
    metrics.counter("pulsar_broker_lookup_redirects", "Of them, told whom to ask", lambda: lookups.redirects)
    metrics.counter("pulsar_broker_lookup_failures", "Of them, refused", lambda: lookups.failures)
    metrics.gauge("pulsar_broker_lookup_pending_requests", "Lookups not answered yet", lambda: lookups.pending)
    metrics.histogram("pulsar_topic_load_times", "Loading a topic, in milliseconds", loaded.load_times)
    metrics.counter("pulsar_topic_load_failed_count", "Topics not loaded", lambda: loaded.loads_failed)
    metrics.gauge(
        "quire_namespaces_with_unsupported_policies",
        "Namespaces whose topics are not loaded, since stored policies of theirs are not obeyed",
        lambda: len(broker.topics.takeover.refused),
    )

    def total(read: Callable[[Topic], float], *labels: str) -> Callable[[], Samples]:
        def samples() -> Samples:
            found = 0.0
            for count, topic in enumerate(broker.topics.loaded(), 1):
                found += read(topic)
                if count % TOPICS_IN_STEP == 0:
                    yield None
            yield labels, found

        return samples

    metrics.gauge(
        "quire_watched_namespaces", "Namespaces of which clients watch topic lists", lambda: broker.topic_lists.count
    )
    metrics.family(
        "counter",
        "quire_entries_passed_over",
        "Stored entries that no consumer could take, acknowledged in place of the consumers",
        ("cluster", "reason"),
        lambda: [((cluster, reason), count) for reason, count in broker.context.passed_over.items()],
    )

    if broker.transactions is not None:
        from broker.transactions.metrics import register_transactions  # off by default

        register_transactions(metrics, broker.transactions, broker.topics.loaded, cluster)
    register_life(metrics, broker)
    schemas = broker.topics.schemas.counts
    for name, text, counted in (
        ("pulsar_schema_compatible_total", "Schemas compared and found compatible", schemas.compatible),
        ("pulsar_schema_incompatible_total", "Schemas refused as incompatible", schemas.incompatible),
        ("pulsar_schema_get_ops_failed_total", "Failed queries for schemas", schemas.gets_failed),
        ("pulsar_schema_put_ops_failed_total", "Failed registrations of schemas", schemas.puts_failed),
        ("pulsar_schema_del_ops_failed_total", "Failed deletions of schemas", schemas.deletes_failed),
    ):
        metrics.family("counter", name, text, ("cluster", "namespace"), by_namespace(counted))
    for name, text, read in (
        ("pulsar_ml_cache_hits", "Entries read from the tail caches", lambda topic: topic.ledger.cache_hits),
        (
            "pulsar_ml_cache_misses",
            "Reads that found nothing in the tail caches",
            lambda topic: topic.ledger.cache_misses,
        ),
        ("pulsar_ml_ledger_reads", "Reads that went to bookies", lambda topic: topic.ledger.ledger_reads[0]),
    ):
        metrics.family("counter", name, text, (), total(read))
    cache = broker.caches
    metrics.gauge("pulsar_ml_count", "Managed ledgers open", lambda: broker.topics.count)
    metrics.gauge("pulsar_ml_cache_used_size", "Bytes in the tail caches", lambda: cache.used)
    metrics.counter(
        "pulsar_ml_cache_evictions",
        "Entries evicted from the tail caches before all readers had read them",
        lambda: cache.evicted,
    )
    times = broker.context.times
    metrics.summary(
        "pulsar_broker_publish_latency",
        "Milliseconds from the arrival of entries until they are stored; a quantile is the next bound of "
        "quire_publish_latency_ms",
        (),
        lambda: (((), times.publish),),
    )
    metrics.histogram(
        "quire_publish_latency_ms", "Milliseconds from the arrival of entries until they are stored", times.publish
    )
    metrics.histogram(
        "quire_dispatch_latency_ms",
        "Milliseconds from the arrival of an entry until it is given to the connection of a consumer, of deliveries "
        "that reach the end of their topic",
        times.dispatch,
    )
    metrics.histogram(
        "quire_cursor_persist_latency_ms",
        "Milliseconds to store acknowledgements in the ledger of a cursor",
        broker.cursor_times,
    )
    register_metadata(metrics, broker.metadata)


def register_metadata(metrics: Metrics, store: MetadataStore) -> None:
    """Add what the metadata store measures, if it does."""
    if not isinstance(store, Timed):
        return
    times = store.times
    metrics.histogram_family(
        "pulsar_metadata_store_ops_latency_ms",
        "Milliseconds of operations of the metadata store; reads that memory answers are left out",
        ("name", "type", "status"),
        times.all,
    )
    metrics.family(
        "counter",
        "pulsar_metadata_store_put_bytes_total",
        "Bytes of the values put into the metadata store",
        ("name",),
        lambda: (((STORE,), times.put_bytes),),
    )


def register_series(metrics: Metrics, broker: Broker, cluster: str, options: MetricsOptions) -> None:
    """Add the families of topics and of what they have."""
    filters = broker.context.filters
    series = TopicSeries(
        cluster,
        options,
        lambda: [*broker.topics.loaded(), *broker.direct.loaded()],
        broker.context.world.clock.wall_ms,
        has_filters=bool(filters.standard or filters.may_be_overridden),
        interval_s=lambda: broker.context.options.stats_interval_s,
    )
    broker.series = series
    metrics.table(series)
