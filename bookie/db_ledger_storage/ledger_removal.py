"""Removal of ledgers while adds, fences and flushes continue. Pure.

Removing a ledger takes several waits for the disk, and its id may be used again at any moment, because callers may
choose ids. Two rules keep that safe:

    watched     A ledger that is added to, fenced or sent a LAC after it was picked for removal stays: it may exist in
                the cluster again. The next round decides again.
    held back   From the moment a ledger is forgotten, adds to its id wait until its rows are gone from the disk and
                lastMark has passed the journal records of its former life. Replaying these together with records of
                its new life would mix the entries of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager


def id_ranges(ledgers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ledger ids as ranges (first, last) of ids that follow each other, ascending.

    Rows of adjacent ledgers are deleted as one range: a reader that comes past skips each range separately.

    >>> id_ranges([7, 3, 1, 2])
    [(1, 3), (7, 7)]
    """
    ranges: list[tuple[int, int]] = []
    for ledger_id in sorted(ledgers):
        if ranges and ledger_id <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], ledger_id)
        else:
            ranges.append((ledger_id, ledger_id))
    return ranges


class LedgerRemoval:
    """State of the ledgers being removed from one storage."""

    __slots__ = ("_removed", "_rows_left", "held", "watching")

    def __init__(self) -> None:
        self.watching: dict[object, set[int]] = {}
        """Ledgers picked for removal that nothing has touched since; one set for each removal in progress."""
        self._rows_left: dict[int, None] = {}
        self._removed: dict[int, None] = {}
        self.held: set[int] = set()
        """Ledgers that accept no adds now."""

    @contextmanager
    def watch(self, ledgers: Iterable[int]) -> Iterator[Collection[int]]:
        """Watch `ledgers` within the block; yield the set of those that nothing has touched yet."""
        key = object()
        untouched = self.watching[key] = set(ledgers)
        try:
            yield untouched
        finally:
            del self.watching[key]

    def touched(self, ledger_id: int) -> None:
        """Record a write to the ledger: it is not removed now. Called only while `watching` is not empty."""
        for untouched in self.watching.values():
            untouched.discard(ledger_id)

    def forgotten(self, ledgers: Sequence[int]) -> None:
        """Record that these ledgers are no longer known. Their rows are still on disk."""
        for ledger_id in ledgers:
            self._removed.pop(ledger_id, None)
            self._rows_left[ledger_id] = None
        self.held.update(ledgers)

    @property
    def rows_left(self) -> list[int]:
        """Forgotten ledgers whose rows are still on disk. The rows are deleted before the next flush."""
        return list(self._rows_left)

    def has_rows(self, ledger_id: int) -> bool:
        """Return whether the ledger is forgotten and its rows are still on disk."""
        return ledger_id in self._rows_left

    def rows_deleted(self, ledgers: Sequence[int]) -> None:
        """Record that the rows of these ledgers are deleted."""
        for ledger_id in ledgers:
            if ledger_id in self._rows_left:
                del self._rows_left[ledger_id]
                self._removed[ledger_id] = None

    @property
    def removed(self) -> list[int]:
        """Return ledgers of which only journal records are left.

        Call this before a checkpoint, and `release` them after it.
        """
        return list(self._removed)

    def release(self, ledgers: Iterable[int]) -> None:
        """Free the ids of these ledgers: a checkpoint has passed their journal records."""
        for ledger_id in ledgers:
            if ledger_id in self._removed:
                del self._removed[ledger_id]
                self.held.discard(ledger_id)
