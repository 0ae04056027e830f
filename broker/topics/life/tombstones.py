"""Topics that were deleted by force a moment ago, and the clients that were connected to them.

Official clients connect again at once, and would make the topic again, empty, by its automatic creation. Those that
were connected find no topic, from one attempt to the next, which may be a minute apart; anyone else may make it anew. A
client is known by the name of its producer, which it keeps, with an epoch above 0, or by subscription, name and id of
its consumer.

They are in this broker's memory only: after a crash of it, or when another broker serves the name, clients that still
try make the topic again. The original has none of this (apache/pulsar#7293, #17308).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, Protocol

import trio

from broker.dispatch.subscription import Subscription
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName

TOPICS_MAX: Final = 10_000
"""Deleted topics that are remembered; the oldest goes first."""
CLIENTS_MAX: Final = 10_000
"""Clients of one topic that are remembered."""

ConsumerKey = tuple[str, str, int]


class Buried(Protocol):
    """Topic that is about to be deleted."""

    @property
    def name(self) -> TopicName: ...

    @property
    def producers(self) -> Iterable[str]: ...

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...


class _Tombstone:
    __slots__ = ("consumers", "producers", "until")

    def __init__(self, producers: frozenset[str], consumers: frozenset[ConsumerKey], until: float) -> None:
        self.producers = producers
        self.consumers = consumers
        self.until = until


class Tombstones:
    """Tombstones of one broker, by full name of the topic. Each is there for `life_s` after the deletion, or after the
    last attempt of a client to connect again; 0: there are none."""

    def __init__(self, life_s: float) -> None:
        self._life_s = life_s
        self._by_name: dict[str, _Tombstone] = {}

    def bury(self, topic: Buried) -> None:
        """Remember the clients of a topic that is about to be deleted."""
        full = topic.name.full
        producers = frozenset(islice(topic.producers, CLIENTS_MAX))
        found = ((name, each) for name, held in topic.subscriptions.items() for each in held.consumers)
        consumers = frozenset([(name, each.name, each.consumer_id) for name, each in islice(found, CLIENTS_MAX)])
        if not self._life_s or not (producers or consumers):
            return
        self._by_name.pop(full, None)
        self._by_name[full] = _Tombstone(producers, consumers, trio.current_time() + self._life_s)
        while len(self._by_name) > TOPICS_MAX:
            del self._by_name[next(iter(self._by_name))]

    def has(self, full: str) -> bool:
        """Return whether the topic was deleted a moment ago."""
        found = self._by_name.get(full)
        if found is None:
            return False
        if trio.current_time() < found.until:
            return True
        del self._by_name[full]
        return False

    def knows_producer(self, full: str, request: pb.CommandProducer) -> bool:
        """Return whether a PRODUCER is from a producer of the deleted topic, which connects again."""
        if not self.has(full) or not request.epoch or request.producer_name not in self._by_name[full].producers:
            return False
        self._by_name[full].until = trio.current_time() + self._life_s
        return True

    def knows_consumer(self, full: str, request: pb.CommandSubscribe) -> bool:
        """Return whether a SUBSCRIBE is from a consumer of the deleted topic, which connects again."""
        key = (request.subscription, request.consumer_name, request.consumer_id)
        if not self.has(full) or key not in self._by_name[full].consumers:
            return False
        self._by_name[full].until = trio.current_time() + self._life_s
        return True
