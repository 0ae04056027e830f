"""Due times of the messages that are due first, in a bounded number of small buckets (pure).

Why this is hard: the earliest has to be found at once, the latest have to be dropped when there are too many, and no
call may take longer than a few milliseconds, with 10^5 of them. A sorted list moves too much, a heap does not know its
latest. So the times are cut into buckets, each of them bounded: only the first is a heap, and the last is dropped
whole.

A message is one int, 60 bytes with its place in a list, in the order of due time, ledger and entry:

    due time (64 bits)   ledger id (64)   entry id (64)   hash of its key (32)
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from typing import NamedTuple

KEY_BYTES = 60
"""Memory of one message."""
BUCKET_MAX = 1024
"""Messages moved in one step: 3 ms."""
NEAR_MAX = 64 * BUCKET_MAX
_WORD = (1 << 64) - 1
_HASH = (1 << 32) - 1


class Delayed(NamedTuple):
    """A delayed message."""

    due_ms: int
    ledger_id: int
    entry_id: int
    key_hash: int


def packed(due_ms: int, ledger_id: int, entry_id: int, key_hash: int) -> int:
    """Return the message as an int of the same order.

    >>> unpacked(packed(5, 6, 7, 8))
    Delayed(due_ms=5, ledger_id=6, entry_id=7, key_hash=8)
    """
    return ((due_ms << 64 | ledger_id) << 64 | entry_id) << 32 | key_hash


def unpacked(key: int) -> Delayed:
    entry = key >> 32
    return Delayed(entry >> 128, entry >> 64 & _WORD, entry & _WORD, key & _HASH)


class Near:
    """Packed messages in buckets of at most `bucket_max`."""

    __slots__ = ("_bucket_max", "_buckets", "_count", "_floors")

    def __init__(self, bucket_max: int = BUCKET_MAX) -> None:
        self._bucket_max = bucket_max
        self._floors: list[int] = [0]
        """Per bucket: nothing in it, and nothing in a later one, is below."""
        self._buckets: list[list[int]] = [[]]
        """The first is a heap."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: int) -> None:
        at = bisect_right(self._floors, key) - 1
        bucket = self._buckets[at]
        if at:
            bucket.append(key)
        else:
            heappush(bucket, key)
        self._count += 1
        if len(bucket) > self._bucket_max:
            bucket.sort()  # which is also a heap
            half = len(bucket) // 2
            self._buckets.insert(at + 1, bucket[half:])
            self._floors.insert(at + 1, bucket[half])
            del bucket[half:]

    @property
    def first(self) -> int | None:
        """Return the earliest message; None if there is none."""
        buckets = self._buckets
        while not buckets[0] and len(buckets) > 1:
            del buckets[0], self._floors[0]
            self._floors[0] = 0
            heapify(buckets[0])
        return buckets[0][0] if buckets[0] else None

    def pop(self) -> int:
        """Remove the earliest message, which `first` has returned."""
        self._count -= 1
        return heappop(self._buckets[0])

    def drop_last(self) -> tuple[int, list[int]]:
        """Remove the bucket of the latest messages; return its floor, and them. There is more than one bucket."""
        assert len(self._buckets) > 1, "the only bucket is never dropped"
        bucket = self._buckets.pop()
        self._count -= len(bucket)
        return self._floors.pop(), bucket

    def buckets(self) -> list[list[int]]:
        """Return the buckets, from the earliest on. Those that are split or dropped meanwhile are of no use to
        `keep`."""
        return list(self._buckets)

    def keep(self, bucket: list[int], kept: list[int]) -> None:
        """Replace what is in a bucket by the part of it that is kept."""
        if len(kept) < len(bucket) and any(each is bucket for each in self._buckets):
            self._count -= len(bucket) - len(kept)
            bucket[:] = kept
            heapify(bucket)

    def clear(self) -> None:
        self._floors = [0]
        self._buckets = [[]]
        self._count = 0
