"""Write cache: entries that are in the journal but not yet in an entry log. Pure.

Two tables: one fills while the other is being flushed. A table keeps runs, not entries: for each ledger a list of runs
that do not overlap, ordered by first entry id. Nearly always a run comes after the last one and is appended. If it
overlaps (recovery writes entries again), the part it covers is cut out of the older runs, so that the newest wins.

The loop changes tables while workers may look entries up. That needs no lock, because a lookup touches a ledger's two
lists in single steps of the interpreter, an append adds to `runs` before `firsts`, and every other change replaces the
lists by new ones. `WriteCache` documents the order in which the tables must be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from bookie.errors import WriteCacheFullError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run

RUN_OVERHEAD: Final = 400
"""Bytes that a run costs besides its buffers: the object, its lists, its place in a table. Measured, rounded up."""
ENTRY_OVERHEAD: Final = 40
"""Bytes that each entry costs besides its bytes: its offset, an int in a list."""

PINNED_MAX: Final = 1024
"""Bytes of a buffer, besides twice the bytes of the run, that a run may pin."""


def cut_parts(run: Run, first: int, last: int) -> list[Buffer]:
    """Return the bytes of entries `first` to `last` (inclusive) of a run, size fields included; no copy."""
    if first == run.first and last == run.last:
        return run.parts
    start = run.offsets[first - run.first]
    end = run.offsets[last + 1 - run.first] if last < run.last else run.size
    parts: list[Buffer] = []
    at = 0
    for part in run.parts:
        length = len(part)
        if at < end and at + length > start:
            parts.append(memoryview(part)[max(0, start - at) : end - at])
        at += length
    return parts


def cut(run: Run, first: int, last: int) -> Run:
    """Return a run of the entries `first` to `last` (inclusive) of a run; its parts are views of the old ones."""
    begin = first - run.first
    offsets = run.offsets[begin : last + 1 - run.first]
    start = offsets[0]
    end = run.offsets[last + 1 - run.first] if last < run.last else run.size
    return Run(
        run.ledger_id,
        first,
        cut_parts(run, first, last),
        end - start,
        moved(offsets, -start),
    )


def moved(offsets: Sequence[int], by: int) -> Sequence[int]:
    """Return the offsets, each with `by` added.

    >>> moved(range(88, 176, 44), -88), moved([88, 100], -88)
    (range(0, 88, 44), [0, 12])
    """
    if isinstance(offsets, range):
        return range(offsets.start + by, offsets.stop + by, offsets.step)
    return [offset + by for offset in offsets]


def without_waste(run: Run) -> Run:
    """Return the run, or a copy if its bytes are a small part of the buffer that they pin.

    Without it, a cache would pin many times the bytes that it counts: received chunks with one small entry and much
    that is not kept, or regions of an entry log whose last entries are read ahead. The parts of a run nearly always are
    views of one buffer, so only the last is looked at.
    """
    last = run.parts[-1]
    if type(last) is not memoryview or memoryview(last.obj).nbytes <= PINNED_MAX + 2 * run.size:
        return run
    return Run(run.ledger_id, run.first, [b"".join(run.parts)], run.size, run.offsets, run.key, run.flags)


def run_cost(run: Run) -> int:
    """Return the cost of keeping the run, in bytes."""
    return run.size + RUN_OVERHEAD + ENTRY_OVERHEAD * run.count


class _LedgerRuns:
    """Runs of one ledger: `firsts[i]` is `runs[i].first`; ascending, disjoint, never empty."""

    __slots__ = ("firsts", "last", "runs")

    def __init__(self, run: Run) -> None:
        self.runs = [run]
        self.firsts = [run.first]
        self.last = run.last
        """Id of the last entry of the last run."""


class RunTable:
    """Runs by ledger."""

    __slots__ = ("_ledgers", "entries", "size")

    def __init__(self) -> None:
        self._ledgers: dict[int, _LedgerRuns] = {}
        self.size = 0
        """Cost of the table in bytes, overhead included."""
        self.entries = 0

    def __len__(self) -> int:
        """Return the number of ledgers that have entries here."""
        return len(self._ledgers)

    def ledgers(self) -> list[int]:
        """Return the ids of these ledgers, sorted."""
        return sorted(self._ledgers)

    def add(self, run: Run) -> None:
        """Insert a run, or a copy of it (`without_waste`); drop the parts of older runs that it covers."""
        run = without_waste(run)
        found = self._ledgers.get(run.ledger_id)
        if found is None:
            self._ledgers[run.ledger_id] = _LedgerRuns(run)
        elif run.first > found.last:
            found.runs.append(run)
            found.firsts.append(run.first)
            found.last = run.first + run.count - 1
        else:
            self._insert(found, run)
        self.size += run.size + RUN_OVERHEAD + ENTRY_OVERHEAD * run.count
        self.entries += run.count

    def _insert(self, found: _LedgerRuns, run: Run) -> None:
        first, last = run.first, run.last
        runs = found.runs
        begin = bisect_right(found.firsts, first) - 1
        if begin < 0 or runs[begin].last < first:
            begin += 1
        end = bisect_right(found.firsts, last)
        pieces: list[Run] = []
        for old in runs[begin:end]:
            self.size -= run_cost(old)
            self.entries -= old.count
            if old.first < first:
                pieces.append(cut(old, old.first, first - 1))
            if old.last > last:
                pieces.append(cut(old, last + 1, old.last))
        for piece in pieces:
            self.size += run_cost(piece)
            self.entries += piece.count
        pieces.insert(1 if pieces and pieces[0].first < first else 0, run)
        # Use a new object, so that a concurrent reader sees all of the change or nothing of it.
        replaced = _LedgerRuns(run)
        replaced.runs = [*runs[:begin], *pieces, *runs[end:]]
        replaced.firsts = [*found.firsts[:begin], *(piece.first for piece in pieces), *found.firsts[end:]]
        replaced.last = replaced.runs[-1].last
        self._ledgers[run.ledger_id] = replaced

    def find(self, ledger_id: int, entry_id: int) -> Run | None:
        """Return the run that holds the entry."""
        found = self._ledgers.get(ledger_id)
        if found is None or entry_id > found.last:
            return None
        index = bisect_right(found.firsts, entry_id) - 1
        if index < 0:
            return None
        run = found.runs[index]
        return run if entry_id < run.first + run.count else None

    def next_first(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the lowest first entry id of a run that begins after `entry_id`."""
        found = self._ledgers.get(ledger_id)
        if found is None:
            return None
        firsts = found.firsts
        index = bisect_right(firsts, entry_id)
        return firsts[index] if index < len(firsts) else None

    def last_entry_id(self, ledger_id: int) -> int:
        """Return the highest entry id of the ledger, -1 if it has none here."""
        found = self._ledgers.get(ledger_id)
        return -1 if found is None else found.last

    def ranges(self, ledger_id: int) -> list[tuple[int, int]]:
        """Return the ledger's entries as (first, last), ascending."""
        found = self._ledgers.get(ledger_id)
        return [] if found is None else [(run.first, run.last) for run in found.runs]

    def drop_ledger(self, ledger_id: int) -> None:
        """Forget the ledger's entries."""
        found = self._ledgers.pop(ledger_id, None)
        if found is not None:
            for run in found.runs:
                self.size -= run_cost(run)
                self.entries -= run.count

    def sorted_runs(self) -> Iterator[Run]:
        """Return all runs by (ledger id, first entry id): the order in which a flush writes them."""
        for ledger_id in sorted(self._ledgers):
            yield from self._ledgers[ledger_id].runs


class WriteCache:
    """Write cache made of two tables, bounded together by `bytes_max`.

    Readers must read `active` before `flushing`: if a flush begins in between, they see the same table twice, never
    none. The index is read after both. It has the rows before the flushed table is dropped.
    """

    __slots__ = ("active", "bytes_max", "flushing")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.active = RunTable()
        self.flushing: RunTable | None = None
        """Table being flushed; kept after a failed flush for the next one."""

    @property
    def size(self) -> int:
        """Return the cost of both tables in bytes."""
        flushing = self.flushing
        return self.active.size + (flushing.size if flushing is not None else 0)

    @property
    def entries(self) -> int:
        """Return the number of entries in both tables."""
        flushing = self.flushing
        return self.active.entries + (flushing.entries if flushing is not None else 0)

    def add(self, run: Run) -> None:
        """Insert a run; WriteCacheFullError if there is no room, and then nothing was inserted."""
        active = self.active
        flushing = self.flushing
        size = active.size if flushing is None else active.size + flushing.size
        if size + run.size > self.bytes_max and active.entries:
            raise WriteCacheFullError(f"the write cache holds {size} of {self.bytes_max} bytes")
        active.add(run)

    def begin_flush(self) -> RunTable:
        """Return the table to write now: the one whose flush failed, or else the filled one."""
        if self.flushing is None:
            self.flushing = self.active
            self.active = RunTable()
        return self.flushing

    def end_flush(self) -> None:
        """Drop the flushed table: its entries are durable in entry log and index."""
        self.flushing = None

    def find(self, ledger_id: int, entry_id: int) -> Run | None:
        """Return the run that holds the entry, newest first. Workers may call this."""
        active = self.active
        flushing = self.flushing
        run = active.find(ledger_id, entry_id)
        if run is None and flushing is not None:
            run = flushing.find(ledger_id, entry_id)
        return run

    def next_first(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the lowest first entry id of a run that begins after `entry_id`, in either table.

        Workers may call this.
        """
        active = self.active
        flushing = self.flushing
        first = active.next_first(ledger_id, entry_id)
        if flushing is not None:
            other = flushing.next_first(ledger_id, entry_id)
            if other is not None and (first is None or other < first):
                return other
        return first

    def last_entry_id(self, ledger_id: int) -> int:
        """Return the highest entry id of the ledger, -1 if it has none here. Workers may call this."""
        active = self.active
        flushing = self.flushing
        last = active.last_entry_id(ledger_id)
        return last if flushing is None else max(last, flushing.last_entry_id(ledger_id))

    def ranges(self, ledger_id: int) -> list[tuple[int, int]]:
        """Return the ledger's entries in either table as (first, last). Workers may call this.

        Ascending by first entry; the ranges of the two tables may overlap.
        """
        active = self.active
        flushing = self.flushing
        ranges = active.ranges(ledger_id)
        return ranges if flushing is None else sorted(ranges + flushing.ranges(ledger_id))

    def ledgers(self) -> list[int]:
        """Return the ids of the ledgers that have entries here, sorted."""
        ids = self.active.ledgers()
        if self.flushing is not None:
            ids = sorted({*ids, *self.flushing.ledgers()})
        return ids

    def drop_ledger(self, ledger_id: int) -> None:
        """Forget the ledger's entries. Must not be called while a flush runs."""
        self.active.drop_ledger(ledger_id)
        if self.flushing is not None:
            self.flushing.drop_ledger(ledger_id)
