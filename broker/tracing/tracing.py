"""Tracing of one broker: from arrived to stored, and from stored to delivered.

A run of entries is looked at once when it is published and once for each consumer that gets it, and only in namespaces
that the configuration names. Entries without a sampled trace context cost a search in the bytes of their metadata.
Times are of the wall clock in nanoseconds, of the resolution of `world.clock`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from managed_ledger.writing.pending import AppendSink
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.trace_context import TraceParent, trace_parent
from quire.world.doors import Buffer

STORED_MAX: Final = 10_000
"""Entries whose time of storage is known for the span of their delivery; the oldest are forgotten."""
_NS_PER_MS: Final = 1_000_000
Attributes = Mapping[str, str | int]


class SpanSink(Protocol):
    """Receiver of finished spans. It must not raise nor block."""

    def add(self, name: str, parent: TraceParent, start_ns: int, end_ns: int, attributes: Attributes) -> None: ...


class BrokerTracing:
    """Traced namespaces of a broker, and the spans of their messages."""

    __slots__ = ("_limit", "_namespaces", "_second", "_sink", "_spans", "_stored", "_wall_ms", "dropped", "recorded")

    def __init__(
        self, sink: SpanSink, namespaces: Sequence[str], spans_per_second_max: int, wall_ms: Callable[[], int]
    ) -> None:
        self._sink = sink
        self._namespaces = frozenset(namespaces)
        self._limit = spans_per_second_max
        self._wall_ms = wall_ms
        self._second = self._spans = 0
        self._stored: OrderedDict[tuple[int, int], int] = OrderedDict()
        self.recorded = self.dropped = 0
        """Spans given to the sink; spans above the limit."""

    def sink(self, topic: TopicName, payloads: Sequence[Buffer], inner: AppendSink) -> AppendSink:
        """Return the sink of a run of entries that is given to the log now: `inner` itself if none is traced."""
        if topic.namespace_path not in self._namespaces:
            return inner
        parents = _sampled(payloads)
        return _StoringSink(self, topic, parents, self._wall_ms(), inner) if parents else inner

    def delivered(
        self,
        topic: TopicName,
        subscription: str,
        ledger_id: int,
        entry_ids: Sequence[int],
        payloads: Sequence[Buffer],
    ) -> None:
        """Record the delivery of entries to a consumer's connection."""
        if topic.namespace_path not in self._namespaces:
            return
        now = self._wall_ms()
        for index, parent in _sampled(payloads).items():
            entry_id = entry_ids[index]
            started = self._stored.get((ledger_id, entry_id), now)
            more = {"messaging.destination.subscription.name": subscription}
            self.record("dispatch", topic, parent, started, now, ledger_id, entry_id, more)

    def stored(
        self, topic: TopicName, parent: TraceParent, arrived_ms: int, ledger_id: int, entry_id: int, error: str = ""
    ) -> None:
        """Record that an entry is stored, or was not for the reason `error`."""
        now = self._wall_ms()
        if not error:
            self._stored[ledger_id, entry_id] = now
            if len(self._stored) > STORED_MAX:
                self._stored.popitem(last=False)
        self.record(
            "store", topic, parent, arrived_ms, now, ledger_id, entry_id, {"error.type": error} if error else {}
        )

    def record(
        self,
        operation: str,
        topic: TopicName,
        parent: TraceParent,
        start_ms: int,
        end_ms: int,
        ledger_id: int,
        entry_id: int,
        more: Attributes,
    ) -> None:
        """Give one span to the sink, unless there were too many in this second."""
        second = end_ms // 1000
        if second != self._second:
            self._second, self._spans = second, 0
        if self._spans >= self._limit:
            self.dropped += 1
            return
        self._spans += 1
        self.recorded += 1
        attributes: Attributes = {
            "messaging.system": "pulsar",
            "messaging.destination.name": topic.full,
            "messaging.operation.name": operation,
            "messaging.message.id": f"{ledger_id}:{entry_id}",
            **more,
        }
        name = f"{operation} {topic.full}"
        self._sink.add(name, parent, start_ms * _NS_PER_MS, end_ms * _NS_PER_MS, attributes)


def _sampled(payloads: Sequence[Buffer]) -> dict[int, TraceParent]:
    """Return the contexts of sampled entries by their index."""
    found = {}
    for index, payload in enumerate(payloads):
        parent = trace_parent(payload)
        if parent is not None and parent.sampled:
            found[index] = parent
    return found


class _StoringSink:
    """Sink of a run with traced entries, in front of the run's own."""

    __slots__ = ("_arrived_ms", "_done", "_inner", "_parents", "_topic", "_tracing")

    def __init__(
        self,
        tracing: BrokerTracing,
        topic: TopicName,
        parents: dict[int, TraceParent],
        arrived_ms: int,
        inner: AppendSink,
    ) -> None:
        self._tracing = tracing
        self._topic = topic
        self._parents = parents
        self._arrived_ms = arrived_ms
        self._inner = inner
        self._done = 0

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        first = self._done
        self._done = first + count
        for index, parent in self._parents.items():
            if first <= index < first + count:
                entry_id = first_entry_id + index - first
                self._tracing.stored(self._topic, parent, self._arrived_ms, ledger_id, entry_id)
        self._inner.confirmed(ledger_id, first_entry_id, count)

    def failed(self, error: Exception) -> None:
        for index, parent in self._parents.items():
            if index >= self._done:
                self._tracing.stored(self._topic, parent, self._arrived_ms, -1, -1, type(error).__name__)
        self._inner.failed(error)
