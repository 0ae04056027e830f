"""Rows of the map of ledgers: which bookies have which fragments of a ledger, as JSON (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.console.cluster_ledgers import OPEN_END, BookieShare, LedgerTable, TableRow
from broker.console.cluster_loss import Harm, worst_harm

ROWS_MAX: Final = 100
SCANNED_MAX: Final = 20_000
"""Rows of the table that one answer goes through."""
FRAGMENTS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Choice of rows."""

    bookie: int | None = None
    """Number of a bookie that has copies; None: any; -1: one that no ledger names."""
    harm: Harm = Harm.NONE
    """State that a ledger has at least."""
    owner: str = ""
    """Part of the name of its owner."""

    def has(self, row: TableRow, table: LedgerTable, harm: Harm) -> bool:
        """Return whether a row is chosen."""
        if harm < self.harm:
            return False
        if self.bookie is not None and not any(self.bookie in fragment.members for fragment, _ in row.spans()):
            return False
        return not self.owner or self.owner in table.owners[row.owner].name


def row_json(row: TableRow, table: LedgerTable, harm: Harm, marked: Collection[int]) -> dict[str, Any]:
    """Return a row as JSON. Of very many fragments the last ones are shown, and all are counted."""
    layout = row.layout
    fragments = list(row.spans())
    return {
        "ledger": row.ledger_id,
        "state": "OPEN" if row.is_open else "CLOSED",
        "last": None if row.last == OPEN_END else row.last,
        "bytes": None if row.is_open else row.length,
        "owner": table.owners[row.owner].as_json(),
        "quorums": [layout.ensemble_size, layout.write_quorum, layout.ack_quorum],
        "fragments": [
            {"first": each.first, "last": None if last == OPEN_END else last, "bookies": _names(each.members, table)}
            for each, last in fragments[-FRAGMENTS_SHOWN:]
        ],
        "fragmentsTotal": len(fragments),
        "harm": harm.name,
        "marked": row.ledger_id in marked,
    }


def _names(members: tuple[int, ...], table: LedgerTable) -> list[str]:
    return [table.bookies[member] for member in members]


class RowScan:
    """Search for rows, in steps."""

    def __init__(self, table: LedgerTable, wanted: RowChoice, live: Collection[int], first: int, limit: int) -> None:
        self._table = table
        self._wanted = wanted
        self._live = live
        self._limit = limit
        self._end = min(len(table), first + SCANNED_MAX)
        self.place = first
        """Place of the next row to look at."""
        self.found: list[tuple[TableRow, Harm]] = []

    def step(self, rows: int) -> bool:
        """Look at some more rows; return False if the search has ended."""
        for _ in range(rows):
            if self.place >= self._end or len(self.found) >= self._limit:
                return False
            row = self._table.row(self.place)
            self.place += 1
            harm = worst_harm(row, self._live)
            if self._wanted.has(row, self._table, harm):
                self.found.append((row, harm))
        return True

    @property
    def next_place(self) -> int | None:
        """Return where to go on; None: all rows were looked at."""
        return self.place if self.place < len(self._table) else None


def shares_json(
    table: LedgerTable, shares: Mapping[int, BookieShare], states: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the share of each bookie as JSON: of those that are known, and of those that ledgers name.

    Args:
        states: writable, read-only or gone, by id. A bookie that only ledgers name is `unknown`.
    """
    by_id = {table.bookies[number]: share for number, share in shares.items()}
    found: list[dict[str, Any]] = []
    for bookie_id in sorted({*by_id, *states}):
        share = by_id.get(bookie_id, BookieShare())
        found.append(
            {
                "bookie": bookie_id,
                "state": states.get(bookie_id, "unknown"),
                "ledgers": share.ledgers,
                "open": share.open_ledgers,
                "fragments": share.fragments,
                "entries": share.entries,
                "bytes": share.bytes,
            }
        )
    return found
