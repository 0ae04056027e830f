"""What the bookie knows of a ledger's last confirmed entry (LAC), and who waits for it to move. Pure.

Every entry carries the LAC that its writer knew, an explicit LAC comes by itself. Only ledgers that somebody asked about
are followed, so that an add of any other costs one look into a dictionary:

    follow     from now on adds raise it; what came before is not known yet
    learned    the storage's word is in: the greater of the last entry's LAC and the explicit one
    raised     an add or an explicit LAC told more: those who wait for it are called

The LAC never goes back here. It may be behind the writer's; it is never beyond what the writer has confirmed.
Source: BookKeeper's TransientLedgerInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

LacWaiter: TypeAlias = Callable[[bool], None]
"""Called once: True if the LAC has moved, False if the ledger was fenced, after which nobody need wait."""

NO_LAC: Final = -1
_UNKNOWN: Final = -2


class _Followed:
    __slots__ = ("is_known", "lac", "waiters")

    def __init__(self) -> None:
        self.lac = _UNKNOWN
        self.is_known = False
        self.waiters: dict[LacWaiter, int] = {}
        """The LAC that each waits to be passed."""


class LacTable:
    """`ledgers_max`: followed at once; the one followed for longest, and that nobody waits for, is forgotten for the next."""

    def __init__(self, ledgers_max: int = 10_000) -> None:
        self._ledgers_max = ledgers_max
        self._followed: dict[int, _Followed] = {}
        self.followed = self._followed.keys()
        """Ledgers whose adds must be told."""

    def known(self, ledger_id: int) -> int | None:
        """The LAC, NO_LAC if nothing is confirmed; None if the storage must be asked: `follow` first, and `learned` then."""
        found = self._followed.get(ledger_id)
        return found.lac if found is not None and found.is_known else None

    def follow(self, ledger_id: int) -> None:
        """Fine if it is followed already."""
        if ledger_id not in self._followed:
            if len(self._followed) >= self._ledgers_max:
                self._forget_one()
            self._followed[ledger_id] = _Followed()

    def _forget_one(self) -> None:
        oldest = next((ledger_id for ledger_id, found in self._followed.items() if not found.waiters), None)
        if oldest is not None:
            del self._followed[oldest]

    def learned(self, ledger_id: int, lac: int) -> None:
        """What the storage has."""
        found = self._followed.get(ledger_id)
        if found is not None:
            found.is_known = True
            self.raised(ledger_id, max(lac, NO_LAC))

    def raised(self, ledger_id: int, lac: int) -> None:
        """The ledger's writer has confirmed entries up to `lac`. Calls who waited for that."""
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
        """Its writer will confirm no more: calls everybody who waits."""
        found = self._followed.get(ledger_id)
        if found is not None and found.waiters:
            due, found.waiters = list(found.waiters), {}
            for waiter in due:
                waiter(False)

    def wait(self, ledger_id: int, previous: int, waiter: LacWaiter) -> None:
        """Call `waiter` when the LAC is beyond `previous`, which it must not be now, or the ledger is fenced."""
        self._followed[ledger_id].waiters[waiter] = previous

    def cancel(self, ledger_id: int, waiter: LacWaiter) -> None:
        """Do not call it any more; fine if it was called."""
        found = self._followed.get(ledger_id)
        if found is not None:
            found.waiters.pop(waiter, None)
