"""Topics that were deleted by force a moment ago, and the clients that were connected to them.

Official clients connect again at once, and would make the topic again, empty, by its automatic creation. Those that
were connected find no topic, from one attempt to the next, which may be a minute apart; anyone else may make it anew. A
client is known by the name of its producer, which it keeps, with an epoch above 0, or by subscription, name and id of
its consumer.

A tombstone is stored before the log of its topic is deleted, so that a topic stays deleted when the broker is killed,
or another one serves its name:

    /quire/tombstones/<full name, escaped>      {"untilMs":1732378800000,"producers":["a"],"consumers":[["s","c",1]]}

It is read when a client of before comes to a topic that is not loaded. The original has none of this
(apache/pulsar#7293, #17308).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol
from urllib.parse import quote

import trio

from broker.dispatch.subscription import Subscription
from broker.errors import BrokerError, MetadataRefusedError, translated
from broker.ownership.values import decode_json, encode_json
from quire.metadata import paths
from quire.metadata.errors import BadVersionError, NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Clock

log = get_logger(__name__)

ROOT: Final = "/quire/tombstones"
TOPICS_MAX: Final = 10_000
"""Tombstones that one broker has in memory, and makes; the oldest goes first."""
CLIENTS_MAX: Final = 500
"""Producers of one topic that are remembered, and consumers."""
NAMES_MAX: Final = 100_000
"""Clients of all topics that one broker remembers."""
NODE_BYTES_MAX: Final = 256 << 10
"""Size of a stored tombstone; a larger one, of long names, is only in memory."""

ConsumerKey = tuple[str, str, int]


class Buried(Protocol):
    """Topic that is about to be deleted."""

    @property
    def name(self) -> TopicName: ...

    @property
    def producers(self) -> Iterable[str]: ...

    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...


@dataclass(slots=True)
class Tombstone:
    """Clients of one deleted topic."""

    producers: frozenset[str]
    consumers: frozenset[ConsumerKey]
    until_ms: int
    stored_until_ms: int = 0
    """The same in its node; 0: it has none."""

    @property
    def names(self) -> int:
        return len(self.producers) + len(self.consumers)


def encode(found: Tombstone) -> bytes:
    """Return the value of the node."""
    return encode_json(
        {
            "untilMs": found.until_ms,
            "producers": sorted(found.producers),
            "consumers": [list(each) for each in sorted(found.consumers)],
        }
    )


def decode(value: bytes) -> Tombstone:
    """Return what a node says. Raises MetadataRefusedError.

    >>> decode(encode(Tombstone(frozenset("p"), frozenset({("s", "c", 1)}), 5))).consumers
    frozenset({('s', 'c', 1)})
    """
    fields: Mapping[str, Any] = decode_json(value, "a tombstone")
    try:
        until_ms = int(fields["untilMs"])
        consumers = frozenset((str(name), str(consumer), int(number)) for name, consumer, number in fields["consumers"])
        return Tombstone(frozenset(map(str, fields["producers"])), consumers, until_ms, until_ms)
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataRefusedError(f"a tombstone of a deleted topic cannot be read: {error!r}") from error


def node_of(full: str) -> str:
    """Return the path of a topic's tombstone.

    >>> node_of("persistent://a/b/c d")
    '/quire/tombstones/persistent%3A%2F%2Fa%2Fb%2Fc%20d'
    """
    return paths.join(ROOT, quote(full, safe=""))


class Tombstones:
    """Tombstones of one broker, by full name of the topic. Each is there for `life_s` after the deletion, or after the
    last attempt of a client to connect again; 0: there are none."""

    def __init__(self, life_s: float, metadata: MetadataStore, clock: Clock) -> None:
        self._life_ms = round(1000 * life_s)
        self._metadata = metadata
        self._clock = clock
        self._by_name: dict[str, Tombstone] = {}
        self._names = 0
        """Clients in all of them."""
        self._sweep_at = trio.current_time()

    # Making

    async def bury(self, topic: Buried) -> None:
        """Remember the clients of a topic that is about to be deleted; they are known from here on, and durable on
        return. Raises MetadataUnavailableError."""
        producers = frozenset(islice(topic.producers, CLIENTS_MAX))
        found = ((name, each) for name, held in topic.subscriptions.items() for each in held.consumers)
        consumers = frozenset([(name, each.name, each.consumer_id) for name, each in islice(found, CLIENTS_MAX)])
        if not self._life_ms or not (producers or consumers):
            return
        full = topic.name.full
        made = Tombstone(producers, consumers, self._clock.wall_ms() + self._life_ms)
        self._keep(full, made)
        await self._store(full, made)

    def _keep(self, full: str, made: Tombstone) -> None:
        self._drop(full)
        self._by_name[full] = made
        self._names += made.names
        while len(self._by_name) > TOPICS_MAX or (self._names > NAMES_MAX and len(self._by_name) > 1):
            self._drop(next(iter(self._by_name)))

    def _drop(self, full: str) -> None:
        found = self._by_name.pop(full, None)
        if found is not None:
            self._names -= found.names

    async def _store(self, full: str, found: Tombstone) -> None:
        path, value = node_of(full), encode(found)
        if len(value) > NODE_BYTES_MAX:
            log.warning("tombstone not stored: too many long names", topic=full, bytes=len(value))
            return
        with translated(path):
            try:
                await self._metadata.create(path, value, make_parents=True)
            except NodeExistsError:
                try:
                    await self._metadata.put(path, value, ANY_VERSION)
                except NoNodeError:
                    return  # it was swept away meanwhile: it is over, or the next attempt stores it
        found.stored_until_ms = found.until_ms

    # Looking

    def has(self, full: str) -> bool:
        """Return whether the topic was deleted a moment ago, as far as this broker remembers."""
        found = self._by_name.get(full)
        if found is None:
            return False
        if self._clock.wall_ms() < found.until_ms:
            return True
        self._drop(full)
        return False

    async def knows_producer(self, full: str, request: pb.CommandProducer, *, loaded: bool) -> bool:
        """Return whether a PRODUCER is from a producer of the deleted topic, which connects again. `loaded`: the topic
        is there, so what other brokers have stored does not matter. Raises MetadataUnavailableError."""
        if not self._life_ms or not request.epoch:
            return False
        found = await self._find(full, loaded)
        return found is not None and request.producer_name in found.producers and await self._met(full, found)

    async def knows_consumer(self, full: str, request: pb.CommandSubscribe, *, loaded: bool) -> bool:
        """Return whether a SUBSCRIBE is from a consumer of the deleted topic, which connects again. The same holds as
        for producers."""
        if not self._life_ms:
            return False
        key = (request.subscription, request.consumer_name, request.consumer_id)
        found = await self._find(full, loaded)
        return found is not None and key in found.consumers and await self._met(full, found)

    async def _find(self, full: str, loaded: bool) -> Tombstone | None:
        if self.has(full):
            return self._by_name[full]
        if loaded:
            return None
        path = node_of(full)
        with translated(path):
            node = await self._metadata.get(path)
        if node is None:
            return None
        found = decode(node.value)
        if found.until_ms <= self._clock.wall_ms():
            return None
        self._keep(full, found)
        return found

    async def _met(self, full: str, found: Tombstone) -> bool:
        """Note an attempt. It is stored once half of the stored time is over, not each time."""
        now_ms = self._clock.wall_ms()
        found.until_ms = now_ms + self._life_ms
        if found.stored_until_ms and found.stored_until_ms - now_ms < self._life_ms // 2:
            await self._store(full, found)
        return True

    # Forgetting

    async def sweep(self) -> None:
        """Delete the nodes of tombstones that are over, of whichever broker, if that was not done for a while."""
        now = trio.current_time()
        if now < self._sweep_at:
            return
        self._sweep_at = now + max(60, self._life_ms / 1000)
        for full in list(self._by_name):
            self.has(full)
        try:
            with translated(ROOT):
                try:
                    names = await self._metadata.children(ROOT)
                except NoNodeError:
                    return
                for name in names:
                    await self._delete_if_over(paths.join(ROOT, name))
        except BrokerError as error:
            log.info("tombstones not swept", reason=str(error))

    async def _delete_if_over(self, path: str) -> None:
        node = await self._metadata.get(path)
        if node is None or decode(node.value).until_ms > self._clock.wall_ms():
            return
        try:
            await self._metadata.delete(path, node.version)
        except (NoNodeError, BadVersionError):
            pass  # another broker was first, or a client came again
