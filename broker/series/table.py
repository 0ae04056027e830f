"""Metrics of topics, subscriptions, consumers, producers, namespaces and the broker, as one table of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from broker.series.backlog_ages import BacklogAges
from broker.series.columns import (
    BACKLOG_BYTES,
    BY_NAMESPACE,
    OF_BROKER,
    OF_CONSUMER,
    OF_CURSOR,
    OF_PRODUCER,
    OF_SUBSCRIPTION,
    OF_TOPIC,
    ROUND,
    Column,
)
from broker.series.config import MetricsOptions
from broker.series.published import SIZE_BOUNDS
from broker.series.reader import (
    REST,
    SUBSCRIPTION_COLUMNS,
    TOPIC_COLUMNS,
    Labelled,
    SeriesReader,
    SeriesValues,
    Sums,
    labels_of,
)
from broker.topics.exclusive import AnyTopic
from quire.service.metrics import LATENCY_MS, LINES_TOGETHER, Declared, exposed_type, head

_FILTERS: Final = 4
"""Families of entry filters, the last ones of a subscription."""
_INDEX: Final = {column.name: index for index, column in enumerate(TOPIC_COLUMNS)}
_OF_BROKER: Final = tuple(
    _INDEX.get(column.name.replace("_broker", ""), -1) for column in OF_BROKER
)  # -1: the number of topics
_OF_NAMESPACE: Final = tuple(
    _INDEX[f"pulsar_{name}"]
    for name in (
        "storage_write_rate",
        "throughput_in",
        "storage_read_rate",
        "storage_read_cache_misses_rate",
        "msg_backlog",
        "storage_size",
    )
)
TOPICS: Final = Column("gauge", "pulsar_topics_count", "Topics loaded")


def bucket_names(bounds: Sequence[float]) -> list[str]:
    """Return what the original calls its buckets.

    >>> bucket_names([0.5, 1])
    ['0.0_0.5', '0.5_1.0', 'OVERFLOW']
    """
    lower = [0.0, *bounds]
    return [*(f"{low:.1f}_{high:.1f}" for low, high in zip(lower, bounds, strict=False)), "OVERFLOW"]


_BUCKETS: Final = (
    (
        Column(
            "gauge", "pulsar_ml_AddEntryLatencyBuckets", f"Entries per second by milliseconds until stored, {ROUND}"
        ),
        _INDEX["pulsar_storage_write_latency_le_0_5"],
        bucket_names(LATENCY_MS),
    ),
    (
        Column("gauge", "pulsar_ml_EntrySizeBuckets", f"Entries per second by their size in bytes, {ROUND}"),
        _INDEX["pulsar_entry_size_le_128"],
        bucket_names(SIZE_BOUNDS),
    ),
)


class TopicSeries:
    """The table. `loaded`: returns the topics of the broker; `wall_ms`: the time in ms since 1970."""

    def __init__(
        self,
        cluster: str,
        options: MetricsOptions,
        loaded: Callable[[], Sequence[AnyTopic]],
        wall_ms: Callable[[], int],
        *,
        has_filters: bool,
        interval_s: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._loaded = loaded
        self._wall_ms = wall_ms
        self._interval_s = interval_s
        self.ages = BacklogAges()
        self._reader = SeriesReader(cluster, options, self.ages)
        self._subscription_columns = SUBSCRIPTION_COLUMNS if has_filters else SUBSCRIPTION_COLUMNS[:-_FILTERS]
        namespace = ("cluster", "namespace")
        self._topic_labels = self._reader.topic_labels if options.topics else namespace
        self._subscription_labels = self._reader.subscription_labels if options.topics else namespace

    def declared(self) -> Sequence[Declared]:
        """Return the families that the options ask for."""
        options, namespace = self._options, ("cluster", "namespace")
        of_topic, of_subscription = self._topic_labels, self._subscription_labels
        parts: list[tuple[Sequence[Column], tuple[str, ...]]] = [
            (OF_BROKER, ("cluster",)),
            ((TOPICS,), namespace),
            (TOPIC_COLUMNS, of_topic),
            (self._subscription_columns, of_subscription),
        ]
        if options.backlog_bytes:
            parts.append(((BACKLOG_BYTES,), of_subscription))
        if options.consumers:
            parts.append((OF_CONSUMER, (*self._reader.subscription_labels, "consumer_id", "consumer_name")))
        if options.producers:
            parts.append((OF_PRODUCER, (*self._reader.topic_labels, "producer_id", "producer_name")))
        if options.cursors:
            parts.append((OF_CURSOR, (*namespace, "ledger_name", "cursor_name")))
        if options.managed_ledgers:
            parts += [(BY_NAMESPACE, namespace), ([each for each, _, _ in _BUCKETS], (*namespace, "quantile"))]
        return [
            Declared(column.type, column.name, column.doc, labels) for columns, labels in parts for column in columns
        ]

    def round(self) -> Generator[None, None, None]:
        """Sum up what a scrape is not to read; called every statsUpdateFrequencyInSecs."""
        yield from self._reader.round(self._loaded(), self._wall_ms())

    def lines(self) -> Iterator[str]:
        """Yield the text, in steps."""
        taking = self._reader.take(self._loaded(), self._wall_ms())
        while True:
            try:
                next(taking)
            except StopIteration as done:
                found: SeriesValues = done.value
                break
            yield ""
        yield from self._sums(found)
        topics, subscriptions = found.topics, found.subscriptions
        for namespace, sums in found.rest.items():
            values: tuple[str, ...] = (self._cluster, namespace)
            of_subscription = values
            if self._options.topics:
                values = self._reader.rest_labels(namespace)
                of_subscription = (*values[:-1], REST, values[-1])
            topics.append((labels_of(self._topic_labels, values), sums.of_topics))
            subscriptions.append((labels_of(self._subscription_labels, of_subscription), sums.of_subscriptions))
        yield from written_rows(TOPIC_COLUMNS, topics, len(OF_TOPIC))
        yield from written_rows(self._subscription_columns, subscriptions, len(OF_SUBSCRIPTION))
        if self._options.backlog_bytes:
            yield from written_rows((BACKLOG_BYTES,), found.backlog_bytes)
        if self._options.consumers:
            yield from written_rows(OF_CONSUMER, found.consumers)
        if self._options.producers:
            yield from written_rows(OF_PRODUCER, found.producers)
        if self._options.cursors:
            yield from written_rows(OF_CURSOR, found.cursors)

    def _sums(self, found: SeriesValues) -> Iterator[str]:
        """Yield what is of the broker and of namespaces."""
        cluster = labels_of(("cluster",), (self._cluster,))
        broker = Sums()
        by_namespace: list[tuple[str, Sums]] = []
        for namespace, sums in found.totals.items():
            broker.topic(sums.of_topics, sums.topics)
            by_namespace.append((labels_of(("cluster", "namespace"), (self._cluster, namespace)), sums))
        row = [broker.topics if index < 0 else broker.of_topics[index] for index in _OF_BROKER]
        yield from written_rows(OF_BROKER, [(cluster, row)])
        yield from written_rows((TOPICS,), [(text, (sums.topics,)) for text, sums in by_namespace])
        if not self._options.managed_ledgers:
            return
        found_rows = [(text, [sums.of_topics[index] for index in _OF_NAMESPACE]) for text, sums in by_namespace]
        yield from written_rows(BY_NAMESPACE, found_rows)
        interval_s = self._interval_s()
        for column, first, names in _BUCKETS:
            buckets = [
                (f'{text},quantile="{name}"', (sums.of_topics[first + number] / interval_s,))
                for text, sums in by_namespace
                for number, name in enumerate(names)
            ]
            yield from written_rows((column,), buckets)


def written_rows(columns: Sequence[Column], rows: Sequence[Labelled], common: int | None = None) -> Iterator[str]:
    """Yield the text of families whose values stand in rows, at most LINES_TOGETHER lines each time.

    `common`: number of the first columns that all rows have; only those as long as `columns` have the others."""
    width = len(columns)
    long = rows if common is None else [row for row in rows if len(row[1]) >= width]
    for index, column in enumerate(columns):
        name, having = column.name, rows if common is None or index < common else long
        yield head(name, column.doc, exposed_type(column.type, name))
        for start in range(0, len(having), LINES_TOGETHER):
            yield "".join([f"{name}{{{text}}} {row[index]}\n" for text, row in having[start : start + LINES_TOGETHER]])
