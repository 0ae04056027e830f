"""Which ledgers may be removed while adds, fences and flushes go on beside it. Pure.

Removing a ledger takes several waits for the disk, and its id may be used again at any moment (a caller may choose ids). What
holds:

    watched     a ledger that is added to, fenced or told a LAC after it was picked for removal stays: the cluster may know it
                again. The next round looks anew.
    held back   from the moment a ledger is forgotten, adds to its id wait, until its rows are gone from the disk and lastMark
                has passed the journal records of its former life. A replay of these beside records of its new life would mix
                the entries of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager


class LedgerRemoval:
    """Ledgers that are being removed from one storage."""

    __slots__ = ("_removed", "_rows_left", "held", "watching")

    def __init__(self) -> None:
        self.watching: dict[object, set[int]] = {}
        """Ledgers picked for removal that nothing has touched since; a set for each removal under way."""
        self._rows_left: dict[int, None] = {}
        self._removed: dict[int, None] = {}
        self.held: set[int] = set()
        """Ledgers that take no adds now."""

    @contextmanager
    def watch(self, ledgers: Iterable[int]) -> Iterator[Collection[int]]:
        """Those of `ledgers` that nothing has touched yet, within the block."""
        key = object()
        untouched = self.watching[key] = set(ledgers)
        try:
            yield untouched
        finally:
            del self.watching[key]

    def touched(self, ledger_id: int) -> None:
        """The ledger is written to: it is not removed now. Called only while `watching` has something."""
        for untouched in self.watching.values():
            untouched.discard(ledger_id)

    def forgotten(self, ledgers: Sequence[int]) -> None:
        """These are not known any more. Their rows are still on the disk."""
        for ledger_id in ledgers:
            self._removed.pop(ledger_id, None)
            self._rows_left[ledger_id] = None
        self.held.update(ledgers)

    @property
    def rows_left(self) -> list[int]:
        """Forgotten ledgers whose rows are on the disk: they go before the next flush."""
        return list(self._rows_left)

    def rows_deleted(self, ledgers: Sequence[int]) -> None:
        """The rows of these are gone for good."""
        for ledger_id in ledgers:
            if ledger_id in self._rows_left:
                del self._rows_left[ledger_id]
                self._removed[ledger_id] = None

    @property
    def removed(self) -> list[int]:
        """Ledgers of which only the journal has something. Take it before a checkpoint, and `release` them after it."""
        return list(self._removed)

    def release(self, ledgers: Iterable[int]) -> None:
        """A checkpoint has passed what the journal has of these: their ids are free again."""
        for ledger_id in ledgers:
            if ledger_id in self._removed:
                del self._removed[ledger_id]
                self.held.discard(ledger_id)
