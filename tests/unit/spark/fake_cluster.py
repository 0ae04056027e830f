"""A cluster in memory, as the planner sees it: logs by REST, subscriptions and readers by a client.

It needs no loop and no threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from quire.client.deliveries import Deliveries
from quire.client.errors import ConsumerBusyError, ServiceUnavailableError, TopicNotFoundError
from quire.client.message_id import MessageId
from quire.spark.admin import TopicMissingError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.spark.entries import plain
from tests.unit.spark.logs_of_brokers import stats_of


class FakeTopics:
    """Topics with ledgers and subscriptions. It is its own Admin, Runtime, Lease and Client; `calls` records the
    requests."""

    def __init__(self) -> None:
        self.logs: dict[str, list[list[int]]] = {}
        """Ledgers by topic, each as [id, entries]; the last one is open."""
        self.partition_counts: dict[str, int] = {}
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}
        """Mark-delete position by (topic, subscription)."""
        self.busy: set[str] = set()
        self.unknown: set[str] = set()
        """Topics for which a look-up of partitions fails, as at a broker that does not have them."""
        self.failing: Exception | None = None
        self.is_silent = False
        """True: readers get no answer."""
        """Error that every acknowledgement raises."""
        self.calls: list[tuple[Any, ...]] = []
        self.times: dict[int, MessageId] = {}
        self.entry = plain(b"value")
        self.schemas: dict[str, list[pb.Schema]] = {}
        """Schemas by topic, without partitions, oldest first."""
        self.on_create: Callable[[str], None] = lambda _topic: None
        self.client = self

    # Changes

    def add(self, topic: str, *ledgers: tuple[int, int]) -> None:
        self.logs[topic] = [list(each) for each in ledgers]

    def grow(self, topic: str, entries: int) -> None:
        self.logs[topic][-1][1] += entries

    def roll(self, topic: str, ledger_id: int) -> None:
        self.logs[topic].append([ledger_id, 0])

    def trim(self, topic: str) -> None:
        """Delete all ledgers but the open one, held or not."""
        del self.logs[topic][:-1]

    # Admin

    def many_internal_stats(self, topics: Sequence[str], *, metadata: bool = False) -> list[dict[str, Any] | None]:
        self.calls.append(("metadata" if metadata else "stats", *topics))
        return [self.stats(topic) for topic in topics]

    def stats(self, topic: str) -> dict[str, Any] | None:
        if topic not in self.logs:
            return None
        cursors = {
            name: {"markDeletePosition": f"{mark[0]}:{mark[1]}"}
            for (of, name), mark in self.marks.items()
            if of == topic
        }
        return {**stats_of(*((ledger, entries) for ledger, entries in self.logs[topic])), "cursors": cursors}

    def message_id_at(self, topic: str, epoch_ms: int) -> MessageId:
        self.calls.append(("message_id_at", topic, epoch_ms))
        return self.times[epoch_ms]

    def create_subscription(self, topic: str, name: str, position: MessageId) -> bool:
        self.calls.append(("create", topic, name, (position.ledger_id, position.entry_id)))
        if topic not in self.logs:
            raise TopicMissingError(topic)
        if (topic, name) in self.marks:
            return False
        self.marks[topic, name] = (position.ledger_id, position.entry_id - 1)
        self.on_create(topic)
        return True

    def close(self) -> None:
        """Close, as Admin does."""

    # Runtime and lease

    def __call__(self) -> FakeTopics:
        return self

    def call(self, function: Callable[..., Awaitable[Any]], *args: object) -> Any:
        return trio.run(function, *args)

    async def lease(self, _url: str, _options: object) -> FakeTopics:
        await trio.lowlevel.checkpoint()
        self.calls.append(("lease",))
        return self

    def release(self) -> None:
        self.calls.append(("release",))

    # Client

    async def partitions(self, topic: str) -> int:
        await trio.lowlevel.checkpoint()
        if topic in self.unknown:
            raise TopicNotFoundError(f"topic {topic} does not exist")
        return self.partition_counts.get(topic, 0)

    async def topics(self, _namespace: str) -> list[str]:
        await trio.lowlevel.checkpoint()
        return sorted(self.logs)

    async def schema(self, topic: str, version: bytes = b"") -> tuple[pb.Schema, bytes] | None:
        await trio.lowlevel.checkpoint()
        self.calls.append(("schema", topic, version))
        found = self.schemas.get(topic, [])
        number = int.from_bytes(version, "big") if version else len(found) - 1
        return (found[number], number.to_bytes(8, "big")) if 0 <= number < len(found) else None

    async def reader(self, topic: str, start: MessageId, *, window: int) -> _Reader:
        await trio.lowlevel.checkpoint()
        self.calls.append(("sample", topic, (start.ledger_id, start.entry_id)))
        if self.is_silent:
            raise ServiceUnavailableError("no reader was made in time")
        return _Reader(self, window)

    async def subscription(self, topic: str, name: str, *, start: MessageId | None) -> _Subscription:
        await trio.lowlevel.checkpoint()
        if topic in self.busy:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        self.calls.append(("attach", topic, name))
        assert (topic, name) in self.marks, "made before it is attached"
        return _Subscription(self, topic, name)


class _Reader:
    def __init__(self, cluster: FakeTopics, window: int) -> None:
        self._cluster = cluster
        self._window = window

    async def receive(self) -> Deliveries:
        await trio.lowlevel.checkpoint()
        return Deliveries([1] * self._window, list(range(self._window)), [self._cluster.entry] * self._window)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class _Subscription:
    def __init__(self, cluster: FakeTopics, topic: str, name: str) -> None:
        self._cluster = cluster
        self._key = (topic, name)

    async def mark_delete(self) -> MessageId:
        await trio.lowlevel.checkpoint()
        return MessageId(*self._cluster.marks[self._key])

    async def acknowledge(self, through: MessageId) -> None:
        await trio.lowlevel.checkpoint()
        self._cluster.calls.append(("ack", self._key[0], (through.ledger_id, through.entry_id)))
        if self._cluster.failing is not None:
            raise self._cluster.failing
        self._cluster.marks[self._key] = (through.ledger_id, through.entry_id)

    async def seek(self, position: MessageId) -> None:
        await trio.lowlevel.checkpoint()
        self._cluster.calls.append(("seek", self._key[0], (position.ledger_id, position.entry_id)))
        self._cluster.marks[self._key] = (position.ledger_id, position.entry_id - 1)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self._cluster.calls.append(("detach", self._key[0]))
