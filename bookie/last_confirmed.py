"""Last confirmed entry (LAC) of ledgers as known to the bookie, and the reads waiting for it to advance. Pure.

Every entry carries the LAC known to its writer; an explicit LAC arrives in a request of its own. Only ledgers with LAC
requests are followed, so that an add to any other ledger costs one dictionary lookup:

    follow     from now on adds raise the LAC; its earlier value is not known yet
    learned    the storage has answered: the greater of the last entry's LAC and the explicit one
    raised     an add or an explicit LAC is greater: waiters are called

The LAC never decreases here. It may be behind the writer's, and is never ahead of what the writer has confirmed.
Source: BookKeeper's TransientLedgerInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

LacWaiter: TypeAlias = Callable[[bool], None]
"""Callback of a waiter, called once.

True if the LAC has advanced, False if the ledger was fenced and will not advance.
"""

NO_LAC: Final = -1
_UNKNOWN: Final = -2


class _Followed:
    __slots__ = ("is_known", "lac", "waiters")

    def __init__(self) -> None:
        self.lac = _UNKNOWN
        self.is_known = False
        self.waiters: dict[LacWaiter, int] = {}
        """LAC that each waiter waits to be exceeded."""


class LacTable:
    """LACs of followed ledgers.

    At most `ledgers_max` are followed at once. For one more, the ledger followed longest without waiters is forgotten.
    """

    def __init__(self, ledgers_max: int = 10_000) -> None:
        self._ledgers_max = ledgers_max
        self._followed: dict[int, _Followed] = {}
        self.followed = self._followed.keys()
        """Ledgers whose adds must be reported here."""

    def known(self, ledger_id: int) -> int | None:
        """Return the LAC, NO_LAC if nothing is confirmed; None if unknown: then call `follow`, read the storage, call
        `learned`.
        """
        found = self._followed.get(ledger_id)
        return found.lac if found is not None and found.is_known else None

    def follow(self, ledger_id: int) -> None:
        """Follow the ledger; no effect if it is followed already."""
        if ledger_id not in self._followed:
            if len(self._followed) >= self._ledgers_max:
                self._forget_one()
            self._followed[ledger_id] = _Followed()

    def _forget_one(self) -> None:
        oldest = next((ledger_id for ledger_id, found in self._followed.items() if not found.waiters), None)
        if oldest is not None:
            del self._followed[oldest]

    def learned(self, ledger_id: int, lac: int) -> None:
        """Record the LAC that the storage has."""
        found = self._followed.get(ledger_id)
        if found is not None:
            found.is_known = True
            self.raised(ledger_id, max(lac, NO_LAC))

    def raised(self, ledger_id: int, lac: int) -> None:
        """Record that the ledger's writer has confirmed entries up to `lac`. Calls the waiters for that."""
        found = self._followed.get(ledger_id)
        if found is None or lac <= found.lac:
            return
        found.lac = lac
        if found.waiters:
            due = [waiter for waiter, previous in found.waiters.items() if lac > previous]
            for waiter in due:
                del found.waiters[waiter]
            for waiter in due:
                waiter(True)

    def fenced(self, ledger_id: int) -> None:
        """Record that the ledger is fenced, so its writer confirms no more. Calls all its waiters."""
        found = self._followed.get(ledger_id)
        if found is not None and found.waiters:
            due, found.waiters = list(found.waiters), {}
            for waiter in due:
                waiter(False)

    def wait(self, ledger_id: int, previous: int, waiter: LacWaiter) -> None:
        """Call `waiter` when the LAC exceeds `previous`, which it must not yet, or the ledger is fenced."""
        self._followed[ledger_id].waiters[waiter] = previous

    def cancel(self, ledger_id: int, waiter: LacWaiter) -> None:
        """Remove the waiter; no effect if it was called."""
        found = self._followed.get(ledger_id)
        if found is not None:
            found.waiters.pop(waiter, None)
