"""Position of an entry in a managed ledger: (ledger, entry), and the order of positions."""

from __future__ import annotations

from typing import NamedTuple

LATEST_ID = (1 << 63) - 1


class Position(NamedTuple):
    """Position in a managed ledger. Ordered by ledger id, then entry id. Entry -1 is "before the first entry"."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
LATEST = Position(LATEST_ID, LATEST_ID)
