"""Choice of the consumers that get the messages of a non-persistent topic (pure).

Nothing waits: an entry for which no consumer has permits now is dropped. So nothing is delivered again that new entries
could overtake, and the types of subscriptions differ only in which consumer an entry is for:

    OneActive     Exclusive, Failover: the active consumer
    RoundRobin    Shared: the consumers of the highest priority in turn; the chunks of one message go to one of them
    ByKey         Key_Shared: the owner of the key's hash

An entry is delivered whole while its consumer has any permits, so a batch may bring them below 0.

Source: Pulsar's NonPersistentDispatcherSingleActiveConsumer, NonPersistentDispatcherMultipleConsumers and
NonPersistentStickyKeyDispatcherMultipleConsumers (sendMessages).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.dispatch.policies.failover import FailoverChoice
from broker.dispatch.policies.hash_owners import RING_SIZE, Ranges, Ring, range_hash
from broker.dispatch.policies.hashing import murmur
from broker.dispatch.policies.permits import Permits, Slot
from broker.dispatch.policies.shared import Chunk, Shared
from broker.errors import ConsumerAssignError, ConsumerBusyError
from quire.wire.pulsar.PulsarApi_pb2 import STICKY, KeySharedMeta

C = TypeVar("C", bound=Hashable)


class Offer(NamedTuple):
    """Entries in the order in which they were published."""

    counts: Sequence[int]
    """Messages of each, at least 1."""
    key: Callable[[int], bytes]
    """Key of an entry, by its index; called by Key_Shared only."""
    chunks: Sequence[Chunk | None] | None = None
    """Facts about those that are chunks; None: none is one."""


class Choosing(Protocol[C]):
    """Choice of one subscription."""

    def add(self, consumer: C, name: str, priority: int, meta: KeySharedMeta | None) -> None:
        """Add a consumer, without permits. Raises ConsumerBusyError, ConsumerAssignError."""

    def remove(self, consumer: C) -> None:
        """Remove a consumer."""

    def flow(self, consumer: C, permits: int, most: int) -> None:
        """Add permits; at most `most` are kept."""

    def permits(self, consumer: C) -> int:
        """Return the remaining permits."""

    def pause(self, consumer: C, paused: bool) -> None:
        """Pause or resume a consumer: a paused one gets nothing, whatever its permits."""

    def assign(self, offer: Offer) -> dict[C, list[int]]:
        """Return the indexes of the entries that each consumer gets, in order. The others are dropped."""


class OneActive(Permits[C], Generic[C]):
    """Exclusive and Failover."""

    __slots__ = ("_choice", "_members", "active")

    def __init__(self, choice: FailoverChoice | None) -> None:
        """Take the choice among Failover consumers; None: there is one consumer at most."""
        super().__init__()
        self._choice = choice
        self._members: dict[C, tuple[int, str]] = {}
        self.active: C | None = None

    def add(self, consumer: C, name: str, priority: int, meta: KeySharedMeta | None) -> None:
        if self._choice is None and self._members:
            raise ConsumerBusyError("Exclusive consumer is already connected")
        self._add(consumer)
        self._members[consumer] = (priority, name)
        self._elect()

    def remove(self, consumer: C) -> None:
        del self._slots[consumer]
        del self._members[consumer]
        self._elect()

    def _elect(self) -> None:
        if self._choice is None:
            self.active = next(iter(self._members), None)
        else:
            self.active = self._choice.choose([(*rank, member) for member, rank in self._members.items()])

    def assign(self, offer: Offer) -> dict[C, list[int]]:
        slot = None if self.active is None else self._slots[self.active]
        if slot is None or slot.paused:
            return {}
        given: list[int] = []
        for index, count in enumerate(offer.counts):
            if slot.permits <= 0:
                break
            slot.permits -= count
            given.append(index)
        return {slot.consumer: given} if given else {}


class RoundRobin(Generic[C]):
    """Shared."""

    __slots__ = ("_shared",)

    def __init__(self, batch_max: int) -> None:
        """Take the number of entries that one consumer gets before the next one's turn."""
        self._shared: Shared[C] = Shared(batch_max)

    def at_most(self, batch_max: int) -> None:
        """Give one consumer so many entries before the next one's turn."""
        self._shared.batch_max = batch_max

    def add(self, consumer: C, name: str, priority: int, meta: KeySharedMeta | None) -> None:
        self._shared.add(consumer, priority)

    def remove(self, consumer: C) -> None:
        self._shared.remove(consumer)

    def flow(self, consumer: C, permits: int, most: int) -> None:
        self._shared.flow(consumer, permits, most)

    def permits(self, consumer: C) -> int:
        return self._shared.permits(consumer)

    def pause(self, consumer: C, paused: bool) -> None:
        self._shared.pause(consumer, paused)

    def assign(self, offer: Offer) -> dict[C, list[int]]:
        if offer.chunks is not None:
            in_part, _, _ = self._shared.assign_chunks(offer.counts, offer.chunks)
            self._shared.forgotten.clear()
            return dict(in_part)
        given: dict[C, list[int]] = {}
        for consumer, start, stop in self._shared.assign(offer.counts):
            given.setdefault(consumer, []).extend(range(start, stop))
        return given


class ByKey(Permits[C], Generic[C]):
    """Key_Shared. The mode is that of the first consumer, until all have left."""

    __slots__ = ("_owners", "_points")

    def __init__(self, points: int) -> None:
        """Take the points of each consumer on the ring."""
        super().__init__()
        self._points = points
        self._owners: Ring[Slot[C]] | Ranges[Slot[C]] = Ring(points)

    def add(self, consumer: C, name: str, priority: int, meta: KeySharedMeta | None) -> None:
        sticky = meta is not None and meta.keySharedMode == STICKY
        if not self._slots:
            self._owners = Ranges() if sticky else Ring(self._points)
        elif sticky is not isinstance(self._owners, Ranges):
            raise ConsumerAssignError("the connected consumers use another Key_Shared mode")
        slot = Slot(consumer)
        if isinstance(self._owners, Ranges):
            try:
                self._owners.add(slot, [(each.start, each.end) for each in meta.hashRanges] if meta is not None else [])
            except ValueError as error:
                raise ConsumerAssignError(str(error)) from None
        else:
            self._owners.add(slot, name)
        self._slots[consumer] = slot

    def remove(self, consumer: C) -> None:
        self._owners.remove(self._slots.pop(consumer))

    def assign(self, offer: Offer) -> dict[C, list[int]]:
        given: dict[C, list[int]] = {}
        owners = self._owners
        if not self.has_permits:
            return given
        for index, count in enumerate(offer.counts):
            key = offer.key(index)
            slot = owners.owner(murmur(key) % RING_SIZE + 1 if isinstance(owners, Ring) else range_hash(key))
            if slot is not None and slot.permits > 0 and not slot.paused:
                slot.permits -= count
                given.setdefault(slot.consumer, []).append(index)
        return given
