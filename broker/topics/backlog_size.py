"""Size of a part of a topic's log."""

from __future__ import annotations

from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position


def size_behind(ledger: ManagedLedger, position: Position) -> int:
    """Return the bytes of payload behind a position: of whole ledgers exactly, of part of one by its mean entry.

    Source: the original's ManagedLedgerImpl.getEstimatedBacklogSize."""
    total = 0
    current = ledger.size - sum(info.size for info in ledger.ledgers)
    for info in reversed(ledger.ledgers):
        if info.ledger_id < position.ledger_id:
            break
        last = ledger.last_entry_of(info.ledger_id)
        entries = 0 if last is None else last + 1
        size = info.size or current
        behind = entries if info.ledger_id > position.ledger_id else max(0, entries - 1 - max(position.entry_id, -1))
        total += size * behind // entries if entries else 0
    return total
