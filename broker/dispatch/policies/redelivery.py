"""Entries to be delivered again, and entries that each consumer holds (pure).

Why this is hard: the oldest entry that some consumer can take has to be found at once, while thousands of older ones
wait for consumers without permits. The consumer of a hash changes as others join and leave, which regroups many hashes
in bounded steps. Acks and trimming remove entries from the middle."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat, starmap
from typing import Final, NamedTuple, cast

from cursors.redelivery_counts import RedeliveryCounts
from quire.ledger.position import Position

_MESSAGES = 33
"""Place of the messages in the number of an entry; the hash is below."""
_ONE = 1 << _MESSAGES
_HASH = _ONE - 1


class PendingAck(NamedTuple):
    """One entry that a consumer holds: messages in it, and its key's hash (0 if keys do not matter)."""

    messages: int
    key_hash: int


class PendingAcks:
    """Entries that one consumer was sent and has not acknowledged, in the order in which they were sent.

    An entry is one number: its messages, and below them its hash, of at most 33 bits."""

    __slots__ = ("_entries", "messages")

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], int] = {}
        """By position."""
        self.messages = 0
        """Messages in all of them."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, position: Position, messages: int, key_hash: int) -> None:
        """Add a sent entry. One that is held already is held once, as last sent."""
        self.messages += messages - (self._entries.get(position, 0) >> _MESSAGES)
        self._entries[position] = messages << _MESSAGES | key_hash

    def add_run(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        messages: int,
        counts: Sequence[int],
        hashes: Sequence[int] | None,
    ) -> None:
        """Add sent entries of one ledger, as `add` does, with `messages` in all. No hashes: keys do not matter."""
        entries = self._entries
        keys = zip(repeat(ledger_id), entry_ids, strict=False)
        packed: Iterable[int]
        if messages == len(entry_ids):
            packed = repeat(_ONE) if hashes is None else [_ONE | key_hash for key_hash in hashes]
        elif hashes is None:
            packed = [count << _MESSAGES for count in counts]
        else:
            packed = [count << _MESSAGES | key_hash for count, key_hash in zip(counts, hashes, strict=True)]
        grown = len(entries) + len(entry_ids)
        entries.update(zip(keys, packed, strict=False))
        if len(entries) == grown:
            self.messages += messages
        else:  # some were held already
            self.messages = sum(each >> _MESSAGES for each in entries.values())

    def pop(self, position: Position) -> PendingAck | None:
        """Remove an entry and return it; None if it was not held."""
        packed = self._entries.pop(position, 0)
        if not packed:
            return None
        self.messages -= packed >> _MESSAGES
        return PendingAck(packed >> _MESSAGES, packed & _HASH)

    def pop_all(self, positions: Iterable[Position]) -> tuple[list[int], int, list[Position]]:
        """Remove entries; return the hashes and the messages of those that were held, and the others."""
        pop = self._entries.pop
        hashes: list[int] = []
        others: list[Position] = []
        messages = 0
        for position in positions:
            packed = pop(position, 0)
            if packed:
                hashes.append(packed & _HASH)
                messages += packed >> _MESSAGES
            else:
                others.append(position)
        self.messages -= messages
        return hashes, messages, others

    def reduce(self, position: Position, messages: int) -> int | None:
        """Reduce a partly acknowledged entry to at most `messages`; return the reduction, None if the entry is not
        held."""
        packed = self._entries.get(position, 0)
        if not packed:
            return None
        fewer = (packed >> _MESSAGES) - messages
        if fewer <= 0:
            return 0
        self._entries[position] = messages << _MESSAGES | packed & _HASH
        self.messages -= fewer
        return fewer

    def messages_of(self, position: Position) -> int | None:
        """Return the messages held of the entry; None if it is not held."""
        packed = self._entries.get(position, 0)
        return packed >> _MESSAGES if packed else None

    def positions(self) -> list[Position]:
        """Return the positions of all entries, in the order in which they were sent."""
        return list(starmap(Position, self._entries))

    def hashes(self) -> list[int]:
        """Return the hashes of all entries, in that order."""
        return [packed & _HASH for packed in self._entries.values()]

    def clear(self) -> None:
        self._entries.clear()
        self.messages = 0


def _one_group(key_hash: int) -> Hashable:
    return True


class Redelivery:
    """Entries that wait to be delivered again, in order, and how often each was delivered.

    Bounded by what the subscription may hold unacknowledged and by the caller's look-ahead.

    Each hash has a heap of positions; removed positions stay in it until they surface. The hashes are in groups, one
    for each consumer that may have them now. Each group has a heap of the oldest position of each of its hashes. So the
    oldest entry that some consumer can have is found without a look at what the others wait for. A hash in no group
    (None) waits until it is put into one."""

    __slots__ = (
        "_count_of",
        "_counts",
        "_entries",
        "_group_of",
        "_heads",
        "_heaps",
        "_listed",
        "_unlisted",
        "_waiting",
    )

    def __init__(
        self, group_of: Callable[[int], Hashable] = _one_group, counts: RedeliveryCounts | None = None
    ) -> None:
        """Take the function that returns the group of a hash, and the counts of the cursor.

        A change of its answer is announced by `regroup`. A change from one group to another is also detected without
        that."""
        self._group_of = group_of
        self._entries: dict[Position, int] = {}
        """The hash of each position that waits."""
        self._heaps: dict[int, list[Position]] = {}
        self._waiting: dict[int, int] = {}
        """Number of entries that wait, by hash."""
        self._heads: dict[Hashable, list[tuple[Position, int]]] = {}
        """By group: the oldest position of a hash, and the hash. Valid only if `_listed` has the same."""
        self._listed: dict[int, tuple[Hashable, Position]] = {}
        self._unlisted: list[int] = []
        """Hashes that `settle` still has to put into their groups."""
        self._counts = RedeliveryCounts() if counts is None else counts
        self._count_of = self._counts.values

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, position: object) -> bool:
        return position in self._entries

    def positions(self) -> list[Position]:
        """Return the waiting entries, in any order."""
        return list(self._entries)

    @property
    def knows(self) -> bool:
        """Return whether anything waits or was ever delivered again. If not, no other query is needed."""
        return bool(self._entries or self._count_of)

    @property
    def hashes(self) -> Mapping[int, int]:
        """Return the number of waiting entries by hash. No newer entry may overtake these hashes."""
        return self._waiting

    def add(self, position: Position, key_hash: int, *, again: bool) -> None:
        """Add a waiting entry. `again`: it was delivered before, which is counted."""
        if again:
            self._counts.increment(position)
        if position in self._entries:
            return
        self._entries[position] = key_hash
        waiting = self._waiting[key_hash] = self._waiting.get(key_hash, 0) + 1
        heap = self._heaps.get(key_hash)
        if heap is None:
            self._heaps[key_hash] = [position]
            self._list(key_hash)
            return
        heappush(heap, position)
        if heap[0] == position:
            self._list(key_hash)
        if len(heap) > 2 * waiting + 64:  # mostly removed positions
            heap[:] = [each for each in dict.fromkeys(heap) if each in self._entries]
            heapify(heap)

    def discard(self, position: Position, *, keep_count: bool = False) -> None:
        """Remove an entry from the waiting ones; `keep_count` if it was delivered, not acknowledged."""
        if not keep_count and self._count_of:
            self._counts.forget(position)
        key_hash = self._entries.pop(position, None)
        if key_hash is None:
            return
        waiting = self._waiting[key_hash] - 1
        if waiting:
            self._waiting[key_hash] = waiting
        else:
            del self._waiting[key_hash]
            del self._heaps[key_hash]
            self._listed.pop(key_hash, None)

    def count(self, position: Position) -> int:
        """Return how often the entry was returned before: 0 if never."""
        return self._count_of.get(position, 0)

    def hash_of(self, position: Position) -> int | None:
        """Return the hash of a waiting entry; None for any other."""
        return self._entries.get(position)

    def hashes_of(self, ledger_id: int, entry_ids: range) -> list[int]:
        """Return the hash of each of these entries that waits, 0 for any other."""
        found = cast("Callable[[tuple[int, int], int], int]", self._entries.get)
        return list(map(found, zip(repeat(ledger_id), entry_ids, strict=False), repeat(0)))

    def oldest(self) -> tuple[Position, int] | None:
        """Return the oldest waiting entry and its hash, by a look at all of them; None if there is none."""
        return min(self._entries.items(), default=None)

    def first_run(self, count_max: int, groups: Iterable[Hashable] = (True,)) -> tuple[Position, int] | None:
        """Return the oldest entry of a hash of `groups` and how many follow it without a gap.

        The entry itself is counted. The following ones may have any hash; at most `count_max` are counted. None if
        there is none."""
        entries = self._entries
        first: Position | None = None
        for group in groups:
            head = self._head(group)
            if head is not None and (first is None or head < first):
                first = head
        if first is None:
            return None
        ledger_id, entry_id = first
        count = 1
        while count < count_max and (ledger_id, entry_id + count) in entries:
            count += 1
        return first, count

    def reach(
        self, first: Position, wanted: int, gap_max: int, count_max: int, groups: Iterable[Hashable] = (True,)
    ) -> int:
        """Return how many entries of the log, from a waiting one on, are worth one read.

        Args:
            first: the waiting entry.
            wanted: entries of `groups` that can be delivered, this one included.
            gap_max: entries between two of them that are read in vain.
            count_max: bound of the answer, which is at least 1.
        """
        ready = set(groups)
        ledger_id, start = first
        waits = self._entries.get
        last = at = start
        end = start + count_max - 1
        while wanted > 1 and at < end and at - last <= gap_max:
            at += 1
            key_hash = waits(Position(ledger_id, at))
            if key_hash is not None and self._group_of(key_hash) in ready:
                last = at
                wanted -= 1
        return last - start + 1

    def _head(self, group: Hashable) -> Position | None:
        heads = self._heads.get(group)
        while heads:
            head, key_hash = heads[0]
            if self._listed.get(key_hash) == (group, head):
                if head in self._entries and self._group_of(key_hash) == group:
                    return head
                self._list(key_hash)
            if heads and heads[0] == (head, key_hash):
                heappop(heads)
        return None

    def _list(self, key_hash: int) -> None:
        """List the oldest position of a waiting hash in its current group."""
        heap = self._heaps[key_hash]
        while heap[0] not in self._entries:
            heappop(heap)
        listed = (self._group_of(key_hash), heap[0])
        if self._listed.get(key_hash) == listed:
            return
        self._listed[key_hash] = listed
        group, head = listed
        if group is None:
            return
        heads = self._heads.setdefault(group, [])
        heappush(heads, (head, key_hash))
        if len(heads) > 2 * len(self._waiting) + 64:  # mostly outdated positions
            heads[:] = [(where[1], each) for each, where in self._listed.items() if where[0] == group]
            heapify(heads)

    def regroup(self, key_hash: int | None = None) -> None:
        """Note that the group of one hash has changed, or of many.

        In the second case `settle` has to be called before the next `first_run`."""
        if key_hash is not None:
            if key_hash in self._waiting:
                self._list(key_hash)
            return
        self._heads.clear()
        self._listed.clear()
        self._unlisted = list(self._heaps)

    @property
    def is_settled(self) -> bool:
        """Return whether all hashes are in their groups."""
        return not self._unlisted

    def settle(self, most: int) -> int:
        """Put at most `most` hashes into their groups after a `regroup` of all; return how many were looked at."""
        unlisted = self._unlisted
        count = min(most, len(unlisted))
        for _ in range(count):
            key_hash = unlisted.pop()
            if key_hash in self._waiting:
                self._list(key_hash)
        return count

    def discard_acked(self, is_acked: Callable[[Position], bool], ledger_id: int, first: int, stop: int) -> None:
        """Remove the acknowledged entries among `first` to `stop` (exclusive) of a ledger."""
        if not self._entries:
            return
        waiting = filter(self._entries.__contains__, zip(repeat(ledger_id), range(first, stop), strict=False))
        for position in list(starmap(Position, waiting)):
            if is_acked(position):
                self.discard(position)

    def clear(self) -> None:
        """Forget all entries, because everything is read again. The counts stay."""
        self._entries.clear()
        self._heaps.clear()
        self._waiting.clear()
        self._heads.clear()
        self._listed.clear()
        self._unlisted.clear()


class _NothingWaits(Redelivery):
    """Stand-in of subscriptions without consumers, of which there are thousands: shared, and never filled."""

    __slots__ = ()

    def add(self, position: Position, key_hash: int, *, again: bool) -> None:
        raise AssertionError("a subscription has a Redelivery of its own before an entry waits")


NOTHING_WAITS: Final[Redelivery] = _NothingWaits()
