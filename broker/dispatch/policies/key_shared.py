"""Key_Shared: all messages of a key go to one consumer, in order (pure).

Why this is hard: consumers join and leave while entries of their keys are unacknowledged, and each change moves keys to
new owners. Order then depends on entries in three places at once: held by the old owner, waiting to be delivered again,
and not read yet. The rules have to hold without a look at single keys, of which there is no bound.

A key has a hash, a hash has an owner: by a ring on which each consumer has many points (AUTO_SPLIT), or by ranges that
the consumers bring along (STICKY). Two rules keep the order, unless the subscription allows it to be broken:

- While another consumer holds unacknowledged entries of a hash, its owner gets none (the hash is draining).
- Nothing of a hash is delivered while an older entry of it waits to be delivered again.

So a hash is held by one consumer at a time. Within one call a hash that was refused stays refused, since permits only
shrink and holders only appear: no later entry of a run overtakes an earlier one. Source: reading of Pulsar 4 (PIP-379).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from broker.dispatch.policies.hash_owners import RING_SIZE, Ranges, Ring, range_hash
from broker.dispatch.policies.hashing import murmur, murmurs
from broker.dispatch.policies.permits import Permits, Slot
from broker.dispatch.policies.refusal import Refusal, Why
from broker.errors import ConsumerAssignError
from quire.wire.pulsar.PulsarApi_pb2 import STICKY, KeySharedMeta

C = TypeVar("C")


class KeyShared(Permits[C]):
    """Assignment of entries to consumers by the hashes of their keys. The mode is that of the first consumer, until all
    have left."""

    __slots__ = ("_holders", "_ordered", "_owners", "_points")

    def __init__(self, points: int = 100) -> None:
        """Take the points of each consumer on the ring."""
        super().__init__()
        self._points = points
        self._owners: Ring[Slot[C]] | Ranges[Slot[C]] = Ring(points)
        self._ordered = True
        self._holders: dict[int, Slot[C]] = {}
        """Holders of unacknowledged entries by hash. Not kept when any order is allowed."""

    def add(self, consumer: C, name: str, meta: KeySharedMeta | None = None) -> None:
        """Add a consumer, without permits. No `meta`: AUTO_SPLIT, in order.

        Raises ConsumerAssignError if it wants another mode than the connected ones, or has no ranges or overlapping
        ones."""
        sticky = meta is not None and meta.keySharedMode == STICKY
        ordered = meta is None or not meta.allowOutOfOrderDelivery
        if not self._slots:
            self._owners = Ranges() if sticky else Ring(self._points)
            self._ordered = ordered
        elif sticky is not isinstance(self._owners, Ranges):
            raise ConsumerAssignError("the connected consumers use another Key_Shared mode")
        elif ordered is not self._ordered:
            raise ConsumerAssignError("the connected consumers have another setting of out-of-order delivery")
        slot = Slot(consumer)
        if isinstance(self._owners, Ranges):
            ranges = [(each.start, each.end) for each in meta.hashRanges] if meta is not None else []
            try:
                self._owners.add(slot, ranges)
            except ValueError as error:
                raise ConsumerAssignError(str(error)) from None
        else:
            self._owners.add(slot, name)
        self._slots[consumer] = slot

    @property
    def is_ordered(self) -> bool:
        """Return whether the messages of a key are kept in order."""
        return self._ordered

    def remove(self, consumer: C) -> None:
        """Remove a consumer. The caller delivers again what it held, in order."""
        slot = self._slots.pop(consumer)
        self._owners.remove(slot)
        for key_hash in slot.held:
            del self._holders[key_hash]

    @property
    def is_sticky(self) -> bool:
        """Return whether the consumers bring their ranges along."""
        return isinstance(self._owners, Ranges)

    def hash_of(self, key: bytes) -> int:
        """Return the hash of a sticky key in this mode: 1 to 65535."""
        if isinstance(self._owners, Ring):
            return murmur(key) % RING_SIZE + 1
        return range_hash(key)

    def hashes_of(self, keys: Iterable[bytes]) -> list[int]:
        """Return `hash_of` each key."""
        if isinstance(self._owners, Ring):
            return murmurs(keys, RING_SIZE)
        return list(map(range_hash, keys))

    def assign(
        self, hashes: Sequence[int], counts: Sequence[int], waiting: Collection[int] = ()
    ) -> tuple[list[tuple[C, list[int]]], list[int]]:
        """Assign a run of entries with these hashes and counts of messages (at least 1) to consumers.

        A hash of 0 stands for an entry that is not to be delivered. `waiting` are hashes of which an older entry waits
        to be delivered again. Returns the indexes per consumer, in order, and the indexes that no consumer may have
        now."""
        given: list[tuple[C, list[int]]] = []
        blocked: list[int] = []
        for slot, indexes in self._owners.shares(hashes).items():
            if slot is None or not slot.is_ready:
                blocked += indexes
                continue
            mine = hashes if len(indexes) == len(hashes) else [hashes[index] for index in indexes]
            if self._ordered and not self._may_all_go(slot, mine, waiting):
                indexes, mine = self._passable(slot, indexes, mine, waiting, blocked)
            taken = self._within_permits(slot, [counts[index] for index in indexes])
            if taken < len(indexes):
                blocked += indexes[taken:]
                indexes, mine = indexes[:taken], mine[:taken]
            if self._ordered:
                slot.held.update(mine)
                self._holders.update(dict.fromkeys(mine, slot))
            if indexes:
                given.append((slot.consumer, indexes))
        blocked.sort()
        return given, blocked

    def _may_all_go(self, slot: Slot[C], hashes: Sequence[int], waiting: Collection[int]) -> bool:
        """Return whether order keeps no entry of these hashes, which the slot owns, from it."""
        if waiting and any(map(waiting.__contains__, hashes)):
            return False
        holders = set(map(self._holders.get, hashes))
        return holders <= {None, slot}

    def _passable(
        self, slot: Slot[C], indexes: list[int], hashes: Sequence[int], waiting: Collection[int], blocked: list[int]
    ) -> tuple[list[int], list[int]]:
        """Return the indexes, and their hashes, that order does not keep from the slot; the others are `blocked`."""
        holder_of = self._holders.get
        passing: list[int] = []
        mine: list[int] = []
        for index, key_hash in zip(indexes, hashes, strict=True):
            if key_hash in waiting or holder_of(key_hash, slot) is not slot:
                blocked.append(index)
            else:
                passing.append(index)
                mine.append(key_hash)
        return passing, mine

    def _within_permits(self, slot: Slot[C], counts: Sequence[int]) -> int:
        """Return how many entries of these counts the permits of a slot allow, which they reduce."""
        messages = sum(counts)
        if not counts or messages - counts[-1] < slot.permits:
            slot.permits -= messages
            return len(counts)
        taken = 0
        while slot.permits > 0:
            slot.permits -= counts[taken]
            taken += 1
        return taken

    def refusal(self, key_hash: int, waiting: Collection[int] = ()) -> Refusal[C] | None:
        """Return why `assign` gives an entry of this hash to no consumer; None if it gives it to one."""
        slot = self._owner(key_hash)
        if slot is None:
            return Refusal(Why.NO_OWNER)
        if not slot.is_ready:
            return Refusal(Why.BUSY, slot.consumer, slot.consumer)
        if self._ordered:
            if key_hash in waiting:
                return Refusal(Why.OLDER_WAITS, None, slot.consumer)
            holder = self._holders.get(key_hash)
            if holder is not None and holder is not slot:
                return Refusal(Why.HELD, holder.consumer, slot.consumer, holder.held[key_hash])
        return None

    def group_of(self, key_hash: int) -> Hashable:
        """Return the slot of the consumer that may have entries of this hash.

        None while there is no owner, or while another consumer still holds some. This changes with `add`, `remove` and
        `released`."""
        slot = self._owner(key_hash)
        if slot is None or self._holders.get(key_hash, slot) is not slot:
            return None
        return slot

    def ready_groups(self) -> Iterator[Hashable]:
        """Return the groups of which something can be delivered now."""
        return (slot for slot in self._slots.values() if slot.is_ready)

    def released(self, consumer: C, hashes: Iterable[int]) -> None:
        """Note that the consumer holds one entry fewer of each of these hashes: acknowledged, or to be delivered
        again."""
        slot = self._slots.get(consumer)
        if slot is None:
            return
        held, pop = slot.held, slot.held.pop
        for key_hash in hashes:
            count = pop(key_hash, 0)
            if count == 1:
                del self._holders[key_hash]
            elif count:
                held[key_hash] = count - 1

    def draining(self) -> dict[int, int]:
        """Return the draining hashes, whose entries another consumer than the owner still holds, and how many it
        holds."""
        return {
            key_hash: slot.held[key_hash]
            for key_hash, slot in self._holders.items()
            if self._owner(key_hash) is not slot
        }

    def _owner(self, key_hash: int) -> Slot[C] | None:
        return self._owners.owner(key_hash)
