"""Owners of hashes, by consistent hashing or by declared ranges (pure). Source: reading of Pulsar 4.

Why this is hard: a consumer that joins or leaves must move few hashes, because a hash that moves has to drain first
(`key_shared`). The owners must be the same after a reconnection in another order, and consumers with equal names must
not take each other's points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from broker.dispatch.policies.hashing import murmur

S = TypeVar("S")

RING_SIZE = 65535
"""Hashes and points of a ring are 1 to RING_SIZE."""
RANGE_SIZE = 65536
"""Ranges lie within 0 to RANGE_SIZE - 1; no key has hash 0."""
_PART_BITS = 3
_PART = 1 << _PART_BITS
"""Adjoining hashes that have one place in the table of a ring."""
_MIXED = 255
"""Number of no owner: a part of the ring has several, or is the one with hash 0."""
_TABLE_MIN = 64
"""Hashes from which on a table of owners is made for them."""


def range_hash(key: bytes) -> int:
    """Return the hash of a key for `Ranges`."""
    return murmur(key) % RANGE_SIZE or 1


class Ring(Generic[S]):
    """Ring on which each member has points and owns the hashes between the point before and each of them, inclusive.

    A member's points depend on its name and on which of the members of that name it is. So after a reconnection in
    another order the same members own the same hashes. Where points collide, the member that came first owns."""

    __slots__ = ("_at", "_members", "_owners", "_per_member", "_points", "_table")

    def __init__(self, per_member: int) -> None:
        self._per_member = per_member
        self._points: list[int] = []
        """All points in use, sorted."""
        self._at: list[S] = []
        """Owner of each of them, and behind the last one that of the first."""
        self._owners: dict[int, list[S]] = {}
        self._members: dict[str, list[S | None]] = {}
        """Members by name. The places of removed members are reused."""
        self._table: _Table[S] | None = None
        """Made at the first use after a change: 8 KB."""

    def add(self, member: S, name: str) -> None:
        places = self._members.setdefault(name, [])
        index = places.index(None) if None in places else len(places)
        places[index : index + 1] = [member]
        for point in self._points_of(name, index):
            owners = self._owners.get(point)
            if owners is None:
                self._owners[point] = [member]
                insort(self._points, point)
            elif member not in owners:
                owners.append(member)
        self._list_owners()

    def remove(self, member: S) -> None:
        name, index = next((name, places.index(member)) for name, places in self._members.items() if member in places)
        places = self._members[name]
        places[index] = None
        if all(place is None for place in places):
            del self._members[name]
        for point in self._points_of(name, index):
            owners = self._owners.get(point)
            if owners is None or member not in owners:
                continue  # two points of the same member
            owners.remove(member)
            if not owners:
                del self._owners[point]
                del self._points[bisect_left(self._points, point)]
        self._list_owners()

    def _list_owners(self) -> None:
        self._at = [self._owners[point][0] for point in self._points]
        self._at += self._at[:1]
        self._table = None

    def owner(self, key_hash: int) -> S | None:
        """Return the owner of the first point at or behind `key_hash`, around the end; None if there are no members."""
        return self._at[bisect_left(self._points, key_hash)] if self._at else None

    def shares(self, hashes: Sequence[int]) -> Mapping[S | None, list[int]]:
        """Return the indexes of the hashes of each owner, ascending. A hash of 0 is in no share."""
        if len(hashes) >= _TABLE_MIN and self._at:
            if self._table is None:
                self._table = _Table(self._points, self._at)
            return self._table.shares(hashes)
        found: defaultdict[S | None, list[int]] = defaultdict(list)
        at: Sequence[S | None] = self._at or (None,)
        points = self._points
        for index, key_hash in enumerate(hashes):
            if key_hash:
                found[at[bisect_left(points, key_hash)]].append(index)
        return found

    def _points_of(self, name: str, index: int) -> list[int]:
        return [murmur(f"{name}\0{index}\0{point}") % RING_SIZE + 1 for point in range(self._per_member)]


class _Table(Generic[S]):
    """Owners of the parts of a ring, for the first members up to a number. A search among the points takes four times
    as long as a look at the table."""

    __slots__ = ("_numbers", "_owners", "_parts", "_points")

    def __init__(self, points: Sequence[int], at: Sequence[S]) -> None:
        """Take the points, and the owner of each of them and behind the last one."""
        self._points = points
        numbers = {owner: number for number, owner in enumerate(dict.fromkeys(at))}
        self._owners = list(numbers)
        self._numbers = [numbers[owner] for owner in at]
        """By point."""
        parts = bytearray((_MIXED,)) * (RING_SIZE + 1 >> _PART_BITS)
        start = _PART
        for point, number in zip((*points, RING_SIZE), self._numbers, strict=True):
            first, stop = (start + _PART - 1) >> _PART_BITS, (point + 1) >> _PART_BITS
            if first < stop and number < _MIXED:
                parts[first:stop] = bytes((number,)) * (stop - first)
            start = max(start, point + 1)
        self._parts = bytes(parts)

    def shares(self, hashes: Sequence[int]) -> Mapping[S | None, list[int]]:
        """See `Ring.shares`."""
        parts, points, numbers = self._parts, self._points, self._numbers
        found: list[list[int]] = [[] for _ in self._owners]
        add = [indexes.append for indexes in found]
        for index, key_hash in enumerate(hashes):
            number = parts[key_hash >> _PART_BITS]
            if number != _MIXED:
                add[number](index)
            elif key_hash:
                add[numbers[bisect_left(points, key_hash)]](index)
        return {owner: indexes for owner, indexes in zip(self._owners, found, strict=True) if indexes}


class Ranges(Generic[S]):
    """Hash ranges declared by the members. An undeclared hash has no owner."""

    __slots__ = ("_ranges", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[tuple[int, int, S]] = []
        """(start, end, member), both ends inclusive, in the order of starts."""

    def add(self, member: S, ranges: Sequence[tuple[int, int]]) -> None:
        """Add a member. Raises ValueError, and adds nothing, if there is no range, one is out of bounds, or two
        overlap."""
        if not ranges:
            raise ValueError("a sticky consumer has to declare at least one hash range")
        merged = self._ranges + [(start, end, member) for start, end in ranges]
        merged.sort(key=lambda each: each[:2])
        before = -1
        for start, end, _ in merged:
            if not 0 <= start <= end < RANGE_SIZE:
                raise ValueError(f"[{start}, {end}] is not a hash range within [0, {RANGE_SIZE - 1}]")
            if start <= before:
                raise ValueError(f"hash range [{start}, {end}] overlaps another")
            before = end
        self._keep(merged)

    def remove(self, member: S) -> None:
        self._keep([each for each in self._ranges if each[2] is not member])

    def _keep(self, ranges: list[tuple[int, int, S]]) -> None:
        self._ranges = ranges
        self._starts = [start for start, _, _ in ranges]

    def owner(self, key_hash: int) -> S | None:
        """Return the member whose range holds `key_hash`; None if it is in none."""
        at = bisect_right(self._starts, key_hash) - 1
        if at < 0:
            return None
        _, end, member = self._ranges[at]
        return member if key_hash <= end else None

    def shares(self, hashes: Sequence[int]) -> Mapping[S | None, list[int]]:
        """Return the indexes of the hashes of each owner, ascending. A hash of 0 is in no share."""
        found: defaultdict[S | None, list[int]] = defaultdict(list)
        for index, key_hash in enumerate(hashes):
            if key_hash:
                found[self.owner(key_hash)].append(index)
        return found
