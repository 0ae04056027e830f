"""Reading of entries: from the write cache, the read cache and the entry logs, with read-ahead of what follows.

`get_cached` and `read_cached` are called on the loop. All else blocks and is called through `World.offload`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from heapq import merge
from typing import Final, NamedTuple

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.db_ledger_storage.location_index import ENTRY_ID_MAX, LocationIndex
from bookie.db_ledger_storage.options import StorageOptions, StorageStats
from bookie.db_ledger_storage.read_cache import ReadCache
from bookie.db_ledger_storage.region import Region, WantedRegion, read_region
from bookie.db_ledger_storage.single import read_single
from bookie.db_ledger_storage.write_cache import WriteCache, cut, cut_parts, without_waste
from bookie.errors import LedgerInLimboError, LogMissingError, NoEntryError, NoLedgerError, StorageDamagedError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import SIZE_LENGTH, Run
from quire.wire.bookkeeper.v2 import FRAME_MAX

_STEP_MAX: Final = 16
"""Largest step between entries of a sequential reader: a striped ledger has gaps on each bookie."""
_READERS_MAX: Final = 10_000
_LOOKS_MAX: Final = 3
"""Times that the index is asked for an entry whose log is gone: compaction may just have moved it."""


class Cached(NamedTuple):
    """Adjacent entries that the caches have. `is_whole`: a bound ended them, or the last entry that was added."""

    parts: list[Buffer]
    entries: int
    size: int
    is_whole: bool


class EntryReader:
    """Entries of one bookie directory, from wherever they are."""

    def __init__(
        self,
        cache: WriteCache,
        read_cache: ReadCache,
        logs: EntryLogs,
        locations: LocationIndex,
        ledgers: LedgerIndex,
        options: StorageOptions,
        stats: StorageStats,
    ) -> None:
        self._cache = cache
        self._read_cache = read_cache
        self._logs = logs
        self._locations = locations
        self._ledgers = ledgers
        self._options = options
        self._stats = stats
        self._read_before: dict[int, int] = {}
        """Last entry read singly from disk, by ledger."""
        self._region_ends: OrderedDict[int, int] = OrderedDict()
        """Entry behind the last region read, by ledger: who goes on there reads the ledger in order."""
        self._sequential_max = options.read_cache_bytes_max // max(options.sequential_ahead_bytes, 1)
        """Ledgers of which large regions are read ahead: as many as the read cache has room for."""
        self.now: Callable[[], float] = float
        """Clock of the event loop, in seconds; it may be read in any thread."""

    def get_cached(self, ledger_id: int, entry_id: int) -> memoryview | None:
        """Return one entry if a cache has it."""
        run = self._cache.find(ledger_id, entry_id) or self._read_cache.find(ledger_id, entry_id)
        return None if run is None else run.entry(entry_id)

    def read_cached(self, ledger_id: int, first: int, count_max: int, size_max: int) -> Cached:
        """As `read_run`, from the caches alone."""
        parts: list[Buffer] = []
        count, size, full = self._take_cached(parts, ledger_id, first, count_max, size_max, read_cache=True)
        is_whole = full or (count > 0 and first + count - 1 == self._cache.last_entry_id(ledger_id))
        return Cached(parts, count, size, is_whole)

    def _take_cached(
        self, parts: list[Buffer], ledger_id: int, first: int, count_max: int, size_max: int, *, read_cache: bool
    ) -> tuple[int, int, bool]:
        """Append cached entries from `first` on to `parts`; return (entries, bytes, whether a bound ended it)."""
        cache = self._cache
        count = size = 0
        while True:
            entry_id = first + count
            run = cache.find(ledger_id, entry_id)
            if run is None and read_cache:
                run = self._read_cache.find(ledger_id, entry_id)
            if run is None:
                return count, size, False
            last = run.last
            following = cache.next_first(ledger_id, entry_id)
            if following is not None and following <= last:
                last = following - 1  # a newer run covers the rest
            last = min(last, entry_id + count_max - count - 1)
            last, taken = _fitting(run, entry_id, last, size_max - size, at_least_one=not parts)
            if last < entry_id:
                return count, size, True
            parts.extend(cut_parts(run, entry_id, last))
            count += last - entry_id + 1
            size += taken
            if count >= count_max or size >= size_max:
                return count, size, True

    def read_entry(self, ledger_id: int, entry_id: int) -> Buffer:
        """Read one entry. Reads ahead only for a reader that read shortly before it. Raises as `read_run`. Blocking."""
        run = self._cache.find(ledger_id, entry_id)
        if run is not None:
            return run.entry(entry_id)
        before = self._read_before
        step = entry_id - before.get(ledger_id, entry_id)
        if len(before) >= _READERS_MAX:
            before.clear()
        before[ledger_id] = entry_id
        if not 0 < step <= _STEP_MAX:
            entry = None
            with suppress(LogMissingError):  # below the index is asked again
                entry = read_single(self._logs, self._locations, ledger_id, entry_id)
            if entry is not None:
                self._stats.disk_reads += 1
                self._stats.disk_read_bytes += len(entry)
                return entry
        parts = self.read_run(ledger_id, entry_id, 1, FRAME_MAX)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return memoryview(body)[SIZE_LENGTH:]

    def read_run(
        self, ledger_id: int, first: int, count_max: int, size_max: int, cached: Cached | None = None
    ) -> list[Buffer]:
        """Read adjacent entries from `first` on: at most `count_max` entries and `size_max` bytes, but at least one.

        Blocking. `cached`: what `read_cached` gave, which the others are read behind.

        The parts end to end are (size field, entry)*. NoLedgerError; NoEntryError if `first` is not here.
        StorageDamagedError if it was here and cannot be read, OSError: neither ever means that the entry is absent.
        """
        parts: list[Buffer] = []
        count = size = 0
        if cached is not None:
            parts += cached.parts
            count, size = cached.entries, cached.size
        while True:
            taken, taken_size, full = self._take_cached(
                parts, ledger_id, first + count, count_max - count, size_max - size, read_cache=False
            )
            count += taken
            size += taken_size
            if full:
                return parts
            try:
                region = self._read_region(ledger_id, first + count, count_max - count, size_max - size)
            except (StorageDamagedError, OSError):
                if parts:
                    return parts  # the next call begins with the damaged entry
                raise
            if region is None:
                break
            run = region.run
            last = min(run.last, run.first + count_max - count - 1)
            last, taken_size = _fitting(run, run.first, last, size_max - size, at_least_one=not parts)
            if last >= run.first:
                parts.extend(cut_parts(run, run.first, last))
                count += last - run.first + 1
                size += taken_size
            if run.last - last > last - run.first:  # avoids scraps: see `read_region`
                self._read_cache.arrived.append(without_waste(cut(run, last + 1, run.last)))
            if last < run.last or region.bounded or count >= count_max or size >= size_max:
                return parts
        if not parts:
            self._raise_absent(ledger_id, first)
        return parts

    def _read_region(self, ledger_id: int, first: int, count: int, size: int) -> Region | None:
        stop = self._cache.next_first(ledger_id, first)
        options = self._options
        is_sequential = self._region_ends.pop(ledger_id, None) == first
        ahead_size = options.sequential_ahead_bytes if is_sequential else options.read_ahead_bytes
        wanted = WantedRegion(
            ledger_id=ledger_id,
            first=first,
            stop=ENTRY_ID_MAX + 1 if stop is None else stop,
            count=count,
            size=size,
            ahead_count=options.read_ahead_entries,
            ahead_size=min(ahead_size, self._logs.readers.read_ahead_max()),
            dense=is_sequential or count > 1,
        )
        for tries_left in reversed(range(_LOOKS_MAX)):
            try:
                region = read_region(self._logs, self._locations, wanted)
                break
            except LogMissingError:
                if not tries_left:
                    raise
        if region is not None:
            self._stats.disk_reads += 1
            self._stats.disk_read_bytes += region.run.size
            ends = self._region_ends
            ends[ledger_id] = region.run.last + 1
            if len(ends) > self._sequential_max:
                ends.popitem(last=False)
        return region

    def _raise_absent(self, ledger_id: int, entry_id: int) -> None:
        state = self._ledgers.get(ledger_id)
        if state is None:
            raise NoLedgerError(f"ledger {ledger_id} is unknown here")
        if state.limbo:
            raise LedgerInLimboError(f"ledger {ledger_id} is in limbo: entry {entry_id} may be missing")
        raise NoEntryError(f"entry {entry_id} of ledger {ledger_id} is not here")

    def last_entry_id(self, ledger_id: int) -> int:
        """Return the highest entry id of the ledger stored here. NoLedgerError, NoEntryError. Blocking.

        LedgerInLimboError for any ledger in limbo: there may have been a higher one.
        """
        if self._is_limbo(ledger_id):
            self._raise_absent(ledger_id, -1)
        cached = self._cache.last_entry_id(ledger_id)  # first: a flush may move it into the index in the meantime
        began = self.now()
        indexed = self._locations.last_entry_id(ledger_id)
        times = self._stats.last_entries
        (times.bad if indexed < 0 else times.good).observe(1000 * (self.now() - began))
        if max(cached, indexed) < 0:
            self._raise_absent(ledger_id, -1)
        return max(cached, indexed)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Return every entry id of the ledger stored here, ascending. NoLedgerError, LedgerInLimboError. Blocking."""
        if ledger_id not in self._ledgers or self._is_limbo(ledger_id):
            self._raise_absent(ledger_id, 0)  # a list says what is absent, too
        return merge_ranges(*self.ranges(ledger_id))

    def ranges(self, ledger_id: int) -> tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int]]]:
        """Return what is stored here of the ledger as ranges (first, last): cached ones, and those of the index.

        Both ascend, and may overlap. Blocking.
        """
        # Read the caches first: a flush that ends in the meantime has put its rows into the index by then.
        cached = self._cache.ranges(ledger_id)
        return cached, self._locations.ranges(ledger_id)

    def _is_limbo(self, ledger_id: int) -> bool:
        state = self._ledgers.get(ledger_id)
        return state is not None and state.limbo


def merge_ranges(*ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the ids in all of these ranges (first, last), ascending, each once. Each sequence of ranges must ascend.

    >>> list(merge_ranges([(2, 4)], [(0, 2), (6, 6)]))
    [0, 1, 2, 3, 4, 6]
    """
    end = 0
    for first, last in merge(*ranges):
        yield from range(max(first, end), last + 1)
        end = max(end, last + 1)


def _fitting(run: Run, first: int, last: int, size_max: int, *, at_least_one: bool) -> tuple[int, int]:
    """Find how many entries fit, from `first` up to `last`, into `size_max` bytes; return the last one and the bytes.

    Returns `first - 1` if not even one fits and none must.
    """
    offsets = run.offsets
    begin = first - run.first
    start = offsets[begin]
    end_index = last + 1 - run.first
    size = (offsets[end_index] if end_index < run.count else run.size) - start
    if size <= size_max:
        return last, size
    # `bisect` finds the first entry that ends beyond the bound: entry i ends where entry i + 1 begins.
    fits = bisect_right(offsets, start + size_max, begin + 1, end_index) - 1
    fits = max(fits, begin + 1 if at_least_one else begin)
    end = offsets[fits] if fits < run.count else run.size
    return run.first + fits - 1, end - start
