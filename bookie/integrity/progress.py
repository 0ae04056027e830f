"""Progress of the data integrity check, for the log, metrics, HTTP and the shell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class IntegrityProgress:
    """Counters since the start of the bookie."""

    running: bool = False
    """True while ledgers are in limbo and the check works on them."""
    rounds: int = 0
    ledgers: int = 0
    """Ledgers that left limbo."""
    closed: int = 0
    """Ledgers that had to be closed for that."""
    entries: int = 0
    """Entries copied from other bookies."""
    bytes: int = 0
    last_failure: str = ""
    """Why a ledger stayed in limbo in the last round, or why the round ended early; empty if nothing failed."""

    lost: dict[int, None] = field(default_factory=dict)
    """Ledgers in limbo of which no member has some entry; each was logged once."""

    def copied(self, entries: int, size: int) -> None:
        self.entries += entries
        self.bytes += size

    def keep_lost(self, limbo: Collection[int]) -> None:
        """Forget ledgers that are not in limbo any more: they were brought back, or deleted and collected."""
        self.lost = dict.fromkeys(ledger_id for ledger_id in self.lost if ledger_id in limbo)

    def round_done(self, failure: str) -> None:
        self.rounds += 1
        self.last_failure = failure

    def failed(self, reason: str) -> None:
        self.last_failure = reason

    def counts(self) -> dict[str, int]:
        """Return the counters for a line of the log."""
        return {"ledgers": self.ledgers, "closed": self.closed, "copied": self.entries, "bytes": self.bytes}
