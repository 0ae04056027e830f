"""Read adjacent entries of one entry log, with one scan of the index and nearly always one read. Blocking.

Every record read is checked against the index: size field, ledger id, entry id, and the position of the next record. A
mismatch means damage, which is an I/O error and never "not here", because recovery would take that for the end of the
ledger. The bytes behind the ids are guarded by the entry's digest, which the client checks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from operator import sub
from typing import Final, NamedTuple, Protocol

from bookie.db_ledger_storage.entry_log_format import (
    ENTRY_LENGTH_MIN,
    HEADER_LENGTH,
    RECORD_HEAD,
    SIZE_LENGTH,
    Scan,
    are_records,
    location_text,
)
from bookie.db_ledger_storage.location_index import LocationIndex
from bookie.db_ledger_storage.log_contents import LogBytes
from bookie.errors import StorageDamagedError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run

_POSITION: Final = 0xFFFFFFFF
_TAIL_GUESS: Final = 16 << 10
"""Bytes read for a last entry of unknown length; a longer entry takes a second read."""
_TAIL_MAX: Final = 64 << 10
"""Distance from the last entry to the next one of its ledger that is taken for the entry's length, unless the entry
before it is more than half as long."""
_GAP_MIN: Final = 256 << 10
"""Distance between two adjacent entries of a ledger from which on they are read separately. A flush writes ledger after
ledger, so a ledger that is written beside others lies in pieces, a whole flush apart."""
CHAIN_RECORDS: Final = 8
"""Records behind an entry that are examined to verify its size."""
_CHAIN_CHUNK: Final = 4096
"""Bytes read at a time for that."""


class LogReaders(Protocol):
    def reading(self, log_id: int) -> AbstractContextManager[LogBytes]:
        """Return the log, open until the block ends. LogMissingError if it is not there."""


class ReadableLogs(Protocol):
    """The part of EntryLogs that is needed here."""

    @property
    def readers(self) -> LogReaders: ...

    def records_end(self, log_id: int, file: LogBytes) -> int:
        """As of EntryLogs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRegion:
    """Request for entries of `ledger_id` from `first` on, before `stop`.

    Asks for `count` entries in `size` bytes and, for reading ahead, up to `ahead_count` entries in `ahead_size` bytes.
    Each bound may be exceeded by one entry.
    """

    ledger_id: int
    first: int
    stop: int
    count: int
    size: int
    ahead_count: int
    ahead_size: int
    dense: bool = False
    """Few gaps are expected between the entries."""


class Region(NamedTuple):
    """Entries that were read.

    `bounded`: the region ended at the wanted number of entries or bytes, and more entries follow.
    """

    run: Run
    bounded: bool


def read_region(logs: ReadableLogs, locations: LocationIndex, wanted: WantedRegion) -> Region | None:
    """Read as many of the wanted entries as are adjacent; None if the first one is not in the index.

    StorageDamagedError if the first entry is not where the index says. If a later one is not, the region ends before
    it.
    """
    found = locations.locations(
        wanted.ledger_id,
        wanted.first,
        wanted.stop,
        wanted.count + 1,
        wanted.size,
        ahead_count=wanted.ahead_count + 1,
        ahead_span=wanted.ahead_size,
        dense=wanted.dense,
    )
    return read_found(logs, wanted, found) if found else None


def read_found(logs: ReadableLogs, wanted: WantedRegion, found: list[int]) -> Region:
    """As `read_region`, for the locations of adjacent entries from the first wanted one on, which the index gave.

    LogMissingError: the log is gone. The index has other locations if compaction emptied it in the meantime.
    """
    base = found[0]
    if base & _POSITION < HEADER_LENGTH + SIZE_LENGTH or base < 0:
        raise _damaged(wanted, base, "the location index points into the header of a log")
    together = _together(found)
    near = _near(found, together)
    requested = min(wanted.count, _fitting(found, near, wanted.size))
    ahead = min(wanted.ahead_count, _fitting(found, near, wanted.ahead_size))
    # Read ahead only for small requests. For large ones it would leave scraps in the cache for every other answer, as
    # would a part of a request, unless the entries end there.
    if ahead < 2 * requested:
        taken = requested
    else:
        taken = ahead if ahead == near else ahead - ahead % requested
    # Offsets count from the first size field. The offset of the ledger's next entry, if there is one, ends the region.
    offsets = _offsets(found, taken)
    following = found[taken] - base if taken < together else -1
    tail = _tail(following - offsets[-1], offsets[-1] - offsets[-2] if taken > 1 else 0)
    start = (base & _POSITION) - SIZE_LENGTH
    with logs.readers.reading(base >> 32) as file:
        # Before the read: only these records were whole when it saw them.
        records_end = logs.records_end(base >> 32, file)
        data = file.pread(offsets[-1] + tail, start)
        count, size, reason = _verify(wanted, data, offsets)
        rest = b""
        if count == taken:
            # All headers are right. The bytes behind the last entry show whether its size is right.
            reason = _check_end(_Known(file, data, start), start, size, following, records_end)
            if not reason and size > len(data):
                rest = file.pread(size - len(data), start + len(data))
                if len(data) + len(rest) < size:
                    reason = "the entry log ends before"
            if reason:
                count, size, rest = count - 1, offsets[-1], b""
    if not count:
        raise _damaged(wanted, base, reason)
    parts: list[Buffer]
    if rest:
        parts = [data, rest]
    else:
        parts = [data if size == len(data) else memoryview(data)[:size]]
    run = Run(wanted.ledger_id, wanted.first, parts, size, offsets[:count])
    return Region(run, bounded=count == taken < near)


class _Known:
    """The log, of which `data` from `start` on was read."""

    def __init__(self, file: LogBytes, data: bytes, start: int) -> None:
        self._data = data
        self._start = start
        self._file = file
        self.size = file.size

    def pread(self, size: int, offset: int) -> bytes:
        begin = offset - self._start
        if begin + size <= len(self._data):
            return self._data[begin : begin + size]
        return self._file.pread(size, offset)


def _tail(distance: int, before: int) -> int:
    """Return the bytes to read from the last entry on: usually all of it, and the records that `_check_chain` looks at
    if others follow.

    `distance`: to the ledger's next entry, negative if unknown. `before`: length of the entry before it, 0 if unknown.
    """
    return distance if 0 <= distance <= max(_TAIL_MAX, 2 * before) else max(_TAIL_GUESS, before)


def _together(found: list[int]) -> int:
    """Return how many of the locations, from the first on, ascend within one log."""
    together = len(found)
    if found != sorted(found):
        together = next(index for index in range(1, together) if found[index] <= found[index - 1])
    return bisect_left(found, ((found[0] >> 32) + 1) << 32, 0, together)


def _near(found: list[int], together: int) -> int:
    """Return how many entries of the first `together` come before the first gap.

    A long distance is the length of an entry if an entry beside it is more than half as long.
    """
    steps = list(map(sub, found[1:together], found))
    if max(steps, default=0) < _GAP_MIN:
        return together
    beside = steps[1] if len(steps) > 1 else 0
    for index, step in enumerate(steps, 1):
        if step >= _GAP_MIN and step > 2 * beside:
            return index
        beside = step
    return together


def _offsets(found: list[int], taken: int) -> Sequence[int]:
    """Return the distances of the first `taken` locations from the first one; a range if all entries are as long."""
    base, last = found[0], found[taken - 1]
    if taken > 1 and not (last - base) % (taken - 1):
        even = range(0, last - base + 1, (last - base) // (taken - 1))
        if found[1] - base == even.step and found[:taken] == list(range(base, last + 1, even.step)):
            return even
    return [location - base for location in found[:taken]]


def _fitting(found: list[int], together: int, size: int) -> int:
    """Return how many entries of the first `together`, at least one, fit into `size` bytes.

    The index does not store lengths, so the last of them is assumed to be as long as the one before it.
    """
    begun = bisect_left(found, found[0] + size, 0, together)
    if begun < 2:
        return 1
    end = 2 * found[begun - 1] - found[begun - 2] - found[0]
    return begun if end <= size else begun - 1


def _verify(wanted: WantedRegion, data: bytes, offsets: Sequence[int]) -> tuple[int, int, str]:
    """Check records against the index; return (number of good entries, end of the last one, what is wrong with the
    next).

    The reason is empty if all are right, or if a gap, which may hold other ledgers' entries, ends the region.
    """
    ledger_id = wanted.ledger_id
    unpack = RECORD_HEAD.unpack_from
    available = len(data) - RECORD_HEAD.size
    count = end = 0
    if isinstance(offsets, range):
        even = len(offsets) - 1  # the last one may have another length
        if are_records(data, offsets.step, even, ledger_id, wanted.first):
            count, end = even, offsets[-1]
    for entry_id, offset in enumerate(offsets[count:], wanted.first + count):
        if offset != end:
            return _end_at_gap(data, offsets, count, end)
        if offset > available:
            if end > len(data):  # the end of the log cut the entry before it, too
                return count - 1, offsets[count - 1], "the entry log ends before"
            return count, end, "the entry log ends before"
        size, found_ledger, found_entry = unpack(data, offset)
        if found_entry != entry_id or found_ledger != ledger_id or size < ENTRY_LENGTH_MIN:
            return count, end, f"there are {size} bytes of entry {found_ledger}:{found_entry}"
        end = offset + SIZE_LENGTH + size
        count += 1
    return count, end, ""


def _end_at_gap(data: bytes, offsets: Sequence[int], count: int, end: int) -> tuple[int, int, str]:
    """As `_verify`, for an entry `count` that does not begin where the one before it ends.

    Fine if other records lie between.
    """
    offset = offsets[count]
    if offset > end:
        scan = Scan(lambda size, at: data[at : at + size], offset, start=end)
        for _ in islice(scan, CHAIN_RECORDS):
            pass
        if scan.torn_at < 0:
            return count, end, ""
    return count - 1, offsets[count - 1], "its size is wrong"


def _check_end(file: LogBytes, start: int, end: int, following: int, records_end: int) -> str:
    """Return what is wrong with the size of the last entry, which ends at `end` by that size; empty if nothing is.

    `following` is the offset of the next entry of the ledger in this log, -1 if there is none; both count from `start`.
    `records_end` is the end of the log's records, -1 if the log may be torn behind its last indexed entry.
    """
    if following == end:
        return ""
    if 0 <= following < end or start + end > (file.size() if records_end < 0 else records_end):
        return "its size is too large"
    if following >= 0:
        return _check_chain(file, start + end, start + following)
    return "" if records_end < 0 else _check_chain(file, start + end, records_end)


def _check_chain(file: LogBytes, at: int, until: int) -> str:
    """Return what is wrong with the records that begin at `at`, if some of them do not fit before `until`.

    Examines only a few.
    """
    scan = Scan(file.pread, until, start=at, chunk_size=_CHAIN_CHUNK)
    for _ in islice(scan, CHAIN_RECORDS):
        pass
    return "no entry begins behind it" if scan.torn_at >= 0 else ""


def _damaged(wanted: WantedRegion, location: int, reason: str) -> StorageDamagedError:
    return StorageDamagedError(
        f"entry {wanted.first} of ledger {wanted.ledger_id} at {location_text(location)}: {reason}"
    )
