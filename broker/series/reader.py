"""Values of everything that is loaded, at one scrape or round: rows of the topics that have series of their own, and
sums of the rest. Made in short steps.

Why this is hard: a broker may have 100,000 topics, and a scrape must neither hold the event loop nor take a second. So
a bounded number of topics is read at each scrape, and the sums of the others are those of the last round, unless they
are few. A topic keeps its series as long as it is loaded, because a counter that moves to the rest and back would be
taken for one that began again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Final, TypeAlias

from broker.dispatch.subscription import Subscription
from broker.series import rows
from broker.series.backlog_ages import BacklogAges
from broker.series.columns import OF_STORED_SUBSCRIPTION, OF_STORED_TOPIC, OF_SUBSCRIPTION, OF_TOPIC, Column
from broker.series.config import MetricsOptions
from broker.series.rows import AnySubscription, Row
from broker.topics.exclusive import AnyTopic
from broker.topics.topic import Topic
from quire.service.metrics import labels_text

REST: Final = "quire_rest"
"""Name of the topic, or of the subscription, whose values are sums of those without series of their own."""
READ_IN_STEP: Final = 100
"""Topics, subscriptions, consumers and producers that are read before other tasks run: about 1.5 ms."""
PASSED_IN_STEP: Final = 2000
"""Topics that are passed over before other tasks run."""
REST_AT_SCRAPE: Final = 2000
"""Topics without series of their own up to which a scrape reads all of them."""

Labelled: TypeAlias = tuple[str, Row]
"""Text of the labels, and the values."""
TOPIC_COLUMNS: Final = (*OF_TOPIC, *OF_STORED_TOPIC)
SUBSCRIPTION_COLUMNS: Final = (*OF_SUBSCRIPTION, *OF_STORED_SUBSCRIPTION)


def _largest(columns: Sequence[Column]) -> tuple[int, ...]:
    ends = ("_timestamp", "_quota_limit", "_limit_time", "_age_seconds", "_in_mills")
    return tuple(index for index, column in enumerate(columns) if column.name.endswith(ends))


_TOPIC_LARGEST: Final = _largest(TOPIC_COLUMNS)
_SUBSCRIPTION_LARGEST: Final = _largest(SUBSCRIPTION_COLUMNS)
_INDEX: Final[Mapping[str, int]] = {column.name: index for index, column in enumerate(TOPIC_COLUMNS)}
RATE_IN, THROUGHPUT_IN, MEAN_SIZE = (
    _INDEX[f"pulsar_{name}"] for name in ("rate_in", "throughput_in", "average_msg_size")
)


class Sums:
    """Sums of the rows of a namespace; of times, limits and ages the largest."""

    __slots__ = ("of_subscriptions", "of_topics", "topics")

    def __init__(self) -> None:
        self.topics = 0
        self.of_topics: list[float] = [0] * len(TOPIC_COLUMNS)
        self.of_subscriptions: list[float] = [0] * len(SUBSCRIPTION_COLUMNS)

    def topic(self, row: Row, count: int = 1) -> None:
        """Add a topic, or the sums of `count` topics."""
        self.topics += count
        _add(self.of_topics, row, _TOPIC_LARGEST)
        messages = self.of_topics[RATE_IN]
        self.of_topics[MEAN_SIZE] = self.of_topics[THROUGHPUT_IN] / messages if messages else 0

    def subscription(self, row: Row) -> None:
        """Add a subscription, or the sums of some."""
        _add(self.of_subscriptions, row, _SUBSCRIPTION_LARGEST)


def _add(sums: list[float], row: Row, largest: tuple[int, ...]) -> None:
    width = len(row)
    before = [sums[index] for index in largest]
    sums[:width] = map(add, sums, row)
    for index, value in zip(largest, before, strict=True):
        if index < width:
            sums[index] = max(value, row[index])


Rest: TypeAlias = dict[str, Sums]
"""Sums by namespace."""


@dataclass(slots=True)
class SeriesValues:
    """Values of one scrape."""

    topics: list[Labelled] = field(default_factory=list)
    subscriptions: list[Labelled] = field(default_factory=list)
    backlog_bytes: list[Labelled] = field(default_factory=list)
    consumers: list[Labelled] = field(default_factory=list)
    producers: list[Labelled] = field(default_factory=list)
    cursors: list[Labelled] = field(default_factory=list)
    rest: Rest = field(default_factory=dict)
    totals: Rest = field(default_factory=dict)
    """Sums of everything, `rest` included."""


class SeriesReader:
    """Makes the snapshots of one broker. `wall_ms`: returns the time in ms since 1970."""

    def __init__(self, cluster: str, options: MetricsOptions, ages: BacklogAges) -> None:
        self._cluster = cluster
        self._options = options
        self._ages = ages
        self._shown: dict[AnyTopic, None] = {}
        self._rest: Rest | None = None
        """Sums of the last round."""
        split = ("partition",) if options.split_partition else ()
        self.topic_labels = ("cluster", "namespace", *split, "topic")
        self.subscription_labels = ("cluster", "namespace", *split, "subscription", "topic")

    def take(self, loaded: Sequence[AnyTopic], wall_ms: int) -> Generator[None, None, SeriesValues]:
        """Read everything that is loaded; yield between two steps."""
        yield from self._choose(loaded)
        found = SeriesValues()
        left, parts = READ_IN_STEP, _Parts(self._options.parts_max)
        for topic in list(self._shown):
            left -= 1
            for count in self._read(topic, found, parts, wall_ms):
                left -= count
                if left <= 0:
                    left = READ_IN_STEP
                    yield
        others = len(loaded) - len(self._shown)
        if others > REST_AT_SCRAPE and self._rest is not None:
            found.rest = self._rest
        elif others:
            found.rest = yield from self._sum(loaded, wall_ms)
        for namespace, sums in found.rest.items():
            total = found.totals.setdefault(namespace, Sums())
            total.topic(sums.of_topics, sums.topics)
            total.subscription(sums.of_subscriptions)
        return found

    def round(self, loaded: Sequence[AnyTopic], wall_ms: int) -> Generator[None, None, None]:
        """Sum up the topics without series of their own, if a scrape does not."""
        if len(loaded) - len(self._shown) > REST_AT_SCRAPE:
            yield from self._choose(loaded)
            self._rest = yield from self._sum(loaded, wall_ms)
        else:
            self._rest = None

    def _choose(self, loaded: Sequence[AnyTopic]) -> Generator[None, None, None]:
        """Choose the topics with series of their own: those that had some, then those with traffic, then any."""
        topics_max = self._options.topics_max if self._options.topics else 0
        if len(loaded) <= topics_max:
            self._shown = dict.fromkeys(loaded)
            return
        shown = {topic: None for topic in self._shown if not topic.closing}
        for busy_only in (True, False):
            for number, topic in enumerate(loaded, 1):
                if len(shown) >= topics_max:
                    break
                if not number % PASSED_IN_STEP:
                    yield
                if not busy_only or any(topic.context.measures.of(topic)):
                    shown[topic] = None
        self._shown = shown

    def _sum(self, loaded: Iterable[AnyTopic], wall_ms: int) -> Generator[None, None, Rest]:
        rest: Rest = {}
        left = READ_IN_STEP
        for topic in loaded:
            if topic in self._shown:
                continue
            namespace = topic.name.namespace_path
            sums = rest.get(namespace) or rest.setdefault(namespace, Sums())
            sums.topic(rows.of_topic(topic, self._ages))
            subscriptions: Sequence[AnySubscription] = list(topic.subscriptions.values())
            left -= 1
            for subscription in subscriptions:
                if left <= 0:
                    left = READ_IN_STEP
                    yield
                sums.subscription(rows.of_subscription(subscription, wall_ms))
                left -= 1
            if left <= 0:
                left = READ_IN_STEP
                yield
        return rest

    def labels_of(self, topic: AnyTopic) -> tuple[str, ...]:
        """Return the values of `topic_labels`."""
        name = topic.name
        if not self._options.split_partition:
            return self._cluster, name.namespace_path, name.full
        partition = name.partition
        if partition < 0:
            return self._cluster, name.namespace_path, "-1", name.full
        return self._cluster, name.namespace_path, str(partition), name.full.removesuffix(f"-partition-{partition}")

    def rest_labels(self, namespace: str) -> tuple[str, ...]:
        """Return the values of `topic_labels` of the rest of a namespace."""
        return (self._cluster, namespace, *(("-1",) if self._options.split_partition else ()), REST)

    def _read(self, topic: AnyTopic, found: SeriesValues, parts: _Parts, wall_ms: int) -> Iterator[int]:
        """Read one topic with its parts; yield how much was read since the last time."""
        values = self.labels_of(topic)
        namespace = values[1]
        total = found.totals.get(namespace) or found.totals.setdefault(namespace, Sums())
        row = rows.of_topic(topic, self._ages)
        total.topic(row)
        found.topics.append((labels_of(self.topic_labels, values), row))
        others = None
        subscriptions: Sequence[AnySubscription] = list(topic.subscriptions.values())
        for subscription in subscriptions:
            yield 1
            row = rows.of_subscription(subscription, wall_ms)
            total.subscription(row)
            if not parts.take("subscriptions"):
                others = others or Sums()
                others.subscription(row)
                continue
            text = labels_of(self.subscription_labels, (*values[:-1], subscription.name, values[-1]))
            found.subscriptions.append((text, row))
            if isinstance(subscription, Subscription):
                if self._options.backlog_bytes:
                    found.backlog_bytes.append((text, (rows.backlog_bytes(subscription),)))
                if self._options.cursors and (cursor := rows.of_cursor(subscription)) is not None:
                    found.cursors.append((_cursor_labels(self._cluster, topic, subscription), cursor))
            if self._options.consumers:
                yield _consumers(text, subscription, found, parts)
        if others is not None:
            text = labels_of(self.subscription_labels, (*values[:-1], REST, values[-1]))
            found.subscriptions.append((text, others.of_subscriptions))
        if self._options.producers:
            text = labels_of(self.topic_labels, values)
            for producer in list(topic.producers.values()):
                yield 1
                if not parts.take("producers"):
                    break
                of_it = labels_of(("producer_id", "producer_name"), (str(producer.producer_id), producer.name))
                found.producers.append((f"{text},{of_it}", rows.of_producer(topic.context, producer)))
        yield 0


class _Parts:
    """Room for series of subscriptions, consumers and producers."""

    def __init__(self, each_max: int) -> None:
        self._max = each_max
        self._taken: dict[str, int] = {}

    def take(self, kind: str) -> bool:
        """Return whether there is room for another one of its kind."""
        taken = self._taken.get(kind, 0)
        self._taken[kind] = taken + 1
        return taken < self._max


def labels_of(names: Sequence[str], values: Sequence[str]) -> str:
    """Return the text of labels, in the order of `names`."""
    return labels_text([(name, index) for index, name in enumerate(names)], values)


def _consumers(text: str, subscription: AnySubscription, found: SeriesValues, parts: _Parts) -> int:
    consumers: Sequence[Any] = list(subscription.consumers)
    for number, each in enumerate(consumers):
        if not parts.take("consumers"):
            return number
        of_it = labels_of(("consumer_id", "consumer_name"), (str(each.consumer_id), each.name))
        unacked = subscription.unacked_of(each) if isinstance(subscription, Subscription) else 0
        row = rows.of_consumer(subscription.topic.context, each, subscription.permits_of(each), unacked)
        found.consumers.append((f"{text},{of_it}", row))
    return len(consumers)


def _cursor_labels(cluster: str, topic: AnyTopic, subscription: Subscription) -> str:
    assert isinstance(topic, Topic)
    return labels_of(
        ("cluster", "namespace", "ledger_name", "cursor_name"),
        (cluster, topic.name.namespace_path, topic.ledger.name, subscription.cursor.name),
    )
