"""Key_Shared: all messages of a key go to one consumer, in order (pure).

A key has a hash, a hash has an owner: by a ring on which each consumer has many points (AUTO_SPLIT), or by ranges that the
consumers bring along (STICKY). Two rules keep the order, unless the subscription allows it to be broken:

- While somebody else holds unacknowledged entries of a hash, its owner gets none (the hash is draining).
- Nothing of a hash is given while an older entry of it waits to be delivered again.

So a hash is held by one consumer at a time. Within one call a hash that was refused stays refused, since permits only
shrink and holders only appear: no later entry of a run overtakes an earlier one. Source: reading of Pulsar 4 (PIP-379).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence
from typing import TypeVar

from broker.dispatch.policies.hash_owners import RING_SIZE, Ranges, Ring, range_hash
from broker.dispatch.policies.hashing import murmur
from broker.dispatch.policies.permits import Permits, Slot
from broker.errors import ConsumerAssignError
from quire.wire.pulsar.PulsarApi_pb2 import STICKY, KeySharedMeta

C = TypeVar("C")


class KeyShared(Permits[C]):
    """Hands out entries by the hashes of their keys. The mode is that of the first consumer, until all have left."""

    __slots__ = ("_holders", "_known", "_ordered", "_owners", "_points")

    def __init__(self, points: int = 100) -> None:
        """`points`: places of each consumer on the ring."""
        super().__init__()
        self._points = points
        self._owners: Ring[Slot[C]] | Ranges[Slot[C]] = Ring(points)
        self._ordered = True
        self._known: dict[int, Slot[C] | None] = {}
        """Owners by hash, as far as asked for since somebody came or left."""
        self._holders: dict[int, Slot[C]] = {}
        """Who holds unacknowledged entries of a hash. Not kept when any order is allowed."""

    def add(self, consumer: C, name: str, meta: KeySharedMeta | None = None) -> None:
        """A consumer joins, without permits. ConsumerAssignError if it wants another mode than those connected, or
        ranges that overlap or are none. No `meta`: AUTO_SPLIT, in order."""
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
        self._known.clear()

    def remove(self, consumer: C) -> None:
        """A consumer leaves and holds nothing any more; what it held is the caller's to replay, in order."""
        slot = self._slots.pop(consumer)
        self._owners.remove(slot)
        self._known.clear()
        for key_hash in slot.held:
            del self._holders[key_hash]

    def hash_of(self, key: bytes) -> int:
        """The hash of a sticky key in this mode: 1 to 65535."""
        if isinstance(self._owners, Ring):
            return murmur(key) % RING_SIZE + 1
        return range_hash(key)

    def assign(
        self, hashes: Sequence[int], counts: Sequence[int], waiting: Container[int] = ()
    ) -> tuple[list[tuple[C, list[int]]], list[int]]:
        """Who gets which of a run of entries with these hashes and counts of messages (at least 1).

        A hash of 0 stands for an entry that is not to be given. `waiting` are hashes of which an older entry waits to be delivered again. Returns the indexes per consumer, in
        order, and those that nobody may have now.
        """
        given: dict[C, list[int]] = {}
        blocked: list[int] = []
        holders = self._holders
        ordered = self._ordered
        for index, key_hash in enumerate(hashes):
            if not key_hash:
                continue
            slot = self._owner(key_hash)
            if slot is None or slot.permits <= 0 or slot.paused:
                blocked.append(index)
                continue
            if ordered:
                if key_hash in waiting:
                    blocked.append(index)
                    continue
                holder = holders.get(key_hash)
                if holder is None:
                    holders[key_hash] = slot
                    slot.held[key_hash] = 1
                elif holder is slot:
                    slot.held[key_hash] += 1
                else:
                    blocked.append(index)
                    continue
            slot.permits -= counts[index]
            indexes = given.get(slot.consumer)
            if indexes is None:
                given[slot.consumer] = [index]
            else:
                indexes.append(index)
        return list(given.items()), blocked

    def group_of(self, key_hash: int) -> Hashable:
        """Who may have entries of this hash: the slot of its owner; None while there is none, or another consumer still
        holds some, which changes with `add`, `remove` and `released`."""
        slot = self._owner(key_hash)
        if slot is None or self._holders.get(key_hash, slot) is not slot:
            return None
        return slot

    def ready_groups(self) -> Iterator[Hashable]:
        """The groups of which something can be given now."""
        return (slot for slot in self._slots.values() if slot.is_ready)

    def released(self, consumer: C, key_hash: int) -> None:
        """The consumer no longer holds one entry of this hash: it was acknowledged, or is to be delivered again."""
        slot = self._holders.get(key_hash)
        if slot is None or slot.consumer != consumer:
            return
        held = slot.held[key_hash] - 1
        if held:
            slot.held[key_hash] = held
        else:
            del slot.held[key_hash]
            del self._holders[key_hash]

    def draining(self) -> dict[int, int]:
        """Hashes that their owner cannot have because another consumer still holds entries of them: how many it holds."""
        return {
            key_hash: slot.held[key_hash]
            for key_hash, slot in self._holders.items()
            if self._owner(key_hash) is not slot
        }

    def _owner(self, key_hash: int) -> Slot[C] | None:
        try:
            return self._known[key_hash]
        except KeyError:
            slot = self._known[key_hash] = self._owners.owner(key_hash)
            return slot
