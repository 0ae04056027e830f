"""List of the entries of a ledger on a bookie: the answer to GET_LIST_OF_ENTRIES. Pure.

    header    version(4) = 0, groups(4), zeros(56)                                        big-endian
    group     firstSequenceStart(8) lastSequenceStart(8) sequenceSize(4) sequencePeriod(4)

A sequence is `sequenceSize` consecutive ids. A group is sequences whose starts are `sequencePeriod` apart, as a striped
ledger is stored on one bookie: (5, 3, 2) gives sequences of 3 with period 5. The period of a single sequence is 0.

The original writes every sequence as a group of its own, but reads periods. With periods a striped ledger of a million
entries fits into a frame. Source: BookKeeper's AvailabilityOfEntriesOfLedger;
tests/golden/bookkeeper/wire/v3-list-of-entries-sorted.jsonl.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.errors import MalformedError

VERSION: Final = 0
_HEADER: Final = Struct("!ii56x")
_GROUP: Final = Struct("!qqii")
_INT_MAX: Final = (1 << 31) - 1


class Group(NamedTuple):
    """Sequences of `size` ids that start at `first`, first + period, ... `last`; `period` 0 for a single one."""

    first: int
    last: int
    size: int
    period: int

    @property
    def sequences(self) -> int:
        """Return the number of sequences."""
        return 1 if self.first == self.last else (self.last - self.first) // self.period + 1

    @property
    def end(self) -> int:
        """Return the id after the last one."""
        return self.last + self.size

    def __contains__(self, entry_id: object) -> bool:
        if not isinstance(entry_id, int) or not self.first <= entry_id < self.end:
            return False
        offset = entry_id - self.first
        return (offset % self.period if self.period else offset) < self.size

    def ids(self) -> Iterator[int]:
        """Yield all ids, ascending."""
        for start in range(self.first, self.last + 1, self.period or 1):
            yield from range(start, start + self.size)


class Availability:
    """Set of entry ids, in groups that ascend and do not overlap.

    >>> listed = Availability.of([0, 1, 2, 5, 6, 7, 10, 11, 12])
    >>> listed.groups
    (Group(first=0, last=10, size=3, period=5),)
    >>> 6 in listed, 8 in listed, len(listed)
    (True, False, 9)
    """

    __slots__ = ("_firsts", "groups")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self._firsts = [group.first for group in self.groups]

    @classmethod
    def of(cls, entry_ids: Iterable[int]) -> Availability:
        """Return the set of `entry_ids`, which must ascend; duplicates count once."""
        return cls(_grouped(_sequences(entry_ids)))

    @classmethod
    def decode(cls, data: Buffer) -> Availability:
        """Decode a list; MalformedError if the bytes are not one."""
        if len(data) < _HEADER.size:
            raise MalformedError(f"a list of entries of {len(data)} bytes has no header")
        version, count = _HEADER.unpack_from(data)
        if version != VERSION:
            raise MalformedError(f"a list of entries of version {version}; {VERSION} is known")
        if count < 0 or len(data) < _HEADER.size + count * _GROUP.size:
            raise MalformedError(f"a list of entries with {count} groups in {len(data)} bytes")
        groups = sorted(Group(*_GROUP.unpack_from(data, _HEADER.size + i * _GROUP.size)) for i in range(count))
        end = 0
        for group in groups:
            _check(group, end)
            end = group.end
        return cls(groups)

    def encode(self) -> bytes:
        return _HEADER.pack(VERSION, len(self.groups)) + b"".join([_GROUP.pack(*group) for group in self.groups])

    def __contains__(self, entry_id: object) -> bool:
        if not isinstance(entry_id, int):
            return False
        index = bisect_right(self._firsts, entry_id) - 1
        return index >= 0 and entry_id in self.groups[index]

    def __len__(self) -> int:
        return sum(group.sequences * group.size for group in self.groups)

    def __iter__(self) -> Iterator[int]:
        for group in self.groups:
            yield from group.ids()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Availability) and self.groups == other.groups

    def __hash__(self) -> int:
        return hash(self.groups)

    def __repr__(self) -> str:
        return f"Availability({list(self.groups)})"


def _check(group: Group, end: int) -> None:
    """Check a group. `end` is the id after the last one of the group before. MalformedError."""
    first, last, size, period = group
    single = first == last
    if first < end or size < 1 or last < first or (not single and period <= size) or (last - first) % (period or 1):
        raise MalformedError(f"a list of entries with {group} after {end - 1}")


def _sequences(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first id, number of consecutive ids)."""
    start = end = -1
    for entry_id in entry_ids:
        if entry_id == end and end - start < _INT_MAX:
            end += 1
        elif entry_id >= end:
            if end > start:
                yield start, end - start
            start, end = entry_id, entry_id + 1
        else:
            assert entry_id == end - 1, f"entry {entry_id} after {end - 1}"
    if end > start:
        yield start, end - start


def _grouped(sequences: Iterable[tuple[int, int]]) -> Iterator[Group]:
    """Return as few groups as the order allows."""
    first = last = size = period = 0
    for start, length in sequences:
        step = start - last
        if length == size and (step == period or (not period and step <= _INT_MAX)):
            last, period = start, step
            continue
        if size:
            yield Group(first, last, size, period)
        first = last = start
        size, period = length, 0
    if size:
        yield Group(first, last, size, period)
