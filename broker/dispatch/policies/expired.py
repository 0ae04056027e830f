"""Choice of the ledgers of a log that are expired as a whole, by the time when they were closed. Pure.

A producer whose clock is ahead would otherwise keep a log from expiring. Source: Pulsar's
PersistentMessageExpiryMonitor.checkExpiryByLedgerClosureTime.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from managed_ledger.ledger_list import LedgerInfo
from quire.ledger.position import Position


def wholly_expired(ledgers: Sequence[LedgerInfo], mark_delete: Position, before_ms: int) -> Position | None:
    """Return the last entry of the ledgers, from that of the mark-delete position on, that were closed before a time;
    None if the first of them was not, or they have no entry.

    >>> log = [LedgerInfo(ledger_id=3, entries=5, closed_ms=10), LedgerInfo(ledger_id=7, entries=2, closed_ms=20)]
    >>> [wholly_expired(log, Position(3, 1), before) for before in (10, 11, 21)]
    [None, Position(ledger_id=3, entry_id=4), Position(ledger_id=7, entry_id=1)]
    """
    found: Position | None = None
    start = bisect_left(ledgers, mark_delete.ledger_id, key=lambda info: info.ledger_id)
    for at in range(start, len(ledgers)):
        info = ledgers[at]
        if not 0 < info.closed_ms < before_ms:
            break
        if info.entries:
            found = Position(info.ledger_id, info.last_entry_id)
    return found
