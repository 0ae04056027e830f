"""Entries that a bookie should have of a ledger, and those that it lacks, as ranges. Pure.

A member at index i of an ensemble of E stores entry e if (i - e) mod E < write quorum.
Source: BookKeeper's RoundRobinDistributionSchedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge

from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState


def fragments_with(metadata: LedgerMetadata, bookie_id: str) -> Iterator[tuple[int, int, int]]:
    """Yield (first entry, last entry, index of the bookie) of each fragment that has the bookie, ascending.

    The last fragment of a ledger that is not closed is left out: its end is unknown.
    """
    fragments = metadata.fragments
    for place, fragment in enumerate(fragments):
        if place + 1 < len(fragments):
            last = fragments[place + 1].first_entry_id - 1
        elif metadata.state is LedgerState.CLOSED:
            last = metadata.last_entry_id
        else:
            return
        if bookie_id in fragment.bookies and fragment.first_entry_id <= last:
            yield fragment.first_entry_id, last, fragment.bookies.index(bookie_id)


def gaps(first: int, last: int, present: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges within first..last that no range of `present` covers. These must ascend; they may overlap.

    >>> list(gaps(0, 9, [(0, 2), (2, 3), (6, 6)])), list(gaps(5, 6, [(0, 9)])), list(gaps(0, 1, []))
    ([(4, 5), (7, 9)], [], [(0, 1)])
    """
    expected = first
    for begin, end in present:
        if begin > last:
            break
        if begin > expected:
            yield expected, begin - 1
        expected = max(expected, end + 1)
    if expected <= last:
        yield expected, last


def lacking(
    metadata: LedgerMetadata, bookie_id: str, *present: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, range]]:
    """Yield (first entry of its fragment, entry ids) of what the bookie should have and lacks, in small ranges.

    `present`: what it has, in sequences of ascending ranges. A striped ledger has ranges of a few entries.
    """
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    merged = list(merge(*present))
    for first, last, index in fragments_with(metadata, bookie_id):
        for begin, end in gaps(first, last, merged):
            if quorum == size:
                yield first, range(begin, end + 1)
                continue
            entry_id = begin
            while entry_id <= end:
                distance = (index - entry_id) % size
                if distance >= quorum:  # the next entry that it stores
                    entry_id += distance - quorum + 1
                    continue
                stop = min(entry_id + distance, end)
                yield first, range(entry_id, stop + 1)
                entry_id = stop + 1


def batches(found: Iterable[tuple[int, range]], size: int) -> Iterator[list[int]]:
    """Join ranges of one fragment to lists of at most `size` entries.

    >>> list(batches([(0, range(0, 2)), (0, range(4, 7)), (7, range(7, 8))], 3))
    [[0, 1, 4], [5, 6], [7]]
    """
    batch: list[int] = []
    fragment = -1
    for first, entry_ids in found:
        if batch and first != fragment:
            yield batch
            batch = []
        fragment = first
        for entry_id in entry_ids:
            batch.append(entry_id)
            if len(batch) >= size:
                yield batch
                batch = []
    if batch:
        yield batch


def is_expected(metadata: LedgerMetadata, bookie_id: str, entry_id: int) -> bool:
    """Return whether the bookie should have the entry, in the last fragment of an open ledger too."""
    size = metadata.ensemble_size
    for fragment in reversed(metadata.fragments):
        if fragment.first_entry_id <= entry_id:
            if bookie_id not in fragment.bookies:
                return False
            index = fragment.bookies.index(bookie_id)
            within = metadata.state is not LedgerState.CLOSED or entry_id <= metadata.last_entry_id
            return within and (index - entry_id) % size < metadata.write_quorum
    return False
