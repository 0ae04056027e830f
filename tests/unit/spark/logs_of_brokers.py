"""A log of a broker: it grows, rolls, is trimmed and opened again, and has internalStats."""

from __future__ import annotations

from quire.spark.planning.logs import PartitionLog

NAME = "persistent://public/default/x-partition-0"
SIZE = 100
"""Bytes of every entry."""


def log_of(*ledgers: tuple[int, int], last: tuple[int, int] | None = None, name: str = NAME) -> PartitionLog:
    """Return a log of (ledger, entries), the last one open; `last` confirmed entry if it is in none of them."""
    return PartitionLog.from_internal_stats(name, stats_of(*ledgers, last=last), settled=True)


def log_from(text: str) -> PartitionLog:
    """Return the log of a text of ledgers, such as `2:10,3:0`, or `6:0!5:99` with the last confirmed entry behind."""
    ledgers, _, last = text.partition("!")
    pairs = [pair(each) for each in ledgers.split(",")]
    return log_of(*pairs, last=pair(last) if last else None)


def pair(text: str) -> tuple[int, int]:
    """Return the two numbers of `ledger:entry`."""
    one, _, other = text.partition(":")
    return int(one), int(other)


def stats_of(*ledgers: tuple[int, int], last: tuple[int, int] | None = None) -> dict[str, object]:
    """Return the internalStats of the original, in which the open ledger has 0 entries and 0 bytes."""
    ids = [ledger_id for ledger_id, entries in ledgers if entries] or [ledgers[-1][0]]
    confirmed = last or (ids[-1], dict(ledgers)[ids[-1]] - 1)
    listed = [{"ledgerId": each, "entries": entries, "size": entries * SIZE} for each, entries in ledgers[:-1]]
    open_entries = ledgers[-1][1] if ledgers else 0
    return {
        "numberOfEntries": sum(entries for _, entries in ledgers),
        "currentLedgerEntries": open_entries,
        "currentLedgerSize": open_entries * SIZE,
        "lastConfirmedEntry": f"{confirmed[0]}:{confirmed[1]}",
        "state": "LedgerOpened",
        "ledgers": [*listed, *({"ledgerId": each, "entries": 0, "size": 0} for each, _ in ledgers[-1:])],
    }


class Broker:
    """One log and one subscription on it; no retention."""

    def __init__(self) -> None:
        self._next_id = 5
        self.ledgers: list[list[int]] = []
        """Ledgers as [id, entries]; the last one is open."""
        self.confirmed = (-1, -1)
        self.mark_delete: tuple[int, int] | None = None
        self.restart()

    def append(self, entries: int) -> list[tuple[int, int]]:
        """Append entries; return their ids."""
        ledger = self.ledgers[-1]
        ids = [(ledger[0], ledger[1] + number) for number in range(entries)]
        ledger[1] += entries
        self.confirmed = ids[-1] if ids else self.confirmed
        return ids

    def roll(self) -> None:
        """Begin another ledger. Some ids are skipped, because they belong to the whole cluster."""
        self._open()
        self.trim()

    def restart(self) -> None:
        """Open the log at another broker: empty ledgers are dropped, cursors in deleted ledgers move to the start."""
        self.ledgers = [ledger for ledger in self.ledgers if ledger[1]]
        self._open()
        closed = self.ledgers[:-1]
        self.confirmed = (closed[-1][0], closed[-1][1] - 1) if closed else (self.ledgers[-1][0], -1)
        if self.mark_delete is not None and self.mark_delete[0] not in [ledger[0] for ledger in self.ledgers]:
            self.mark_delete = (self.ledgers[0][0], -1)
        self.trim()

    def trim(self) -> None:
        while self.mark_delete is not None and len(self.ledgers) > 1:
            ledger_id, entries = self.ledgers[0]
            if self.mark_delete < (ledger_id, entries - 1):
                break
            del self.ledgers[0]

    def acknowledge(self, mark_delete: tuple[int, int]) -> None:
        self.mark_delete = max(mark_delete, self.mark_delete or mark_delete)
        self.trim()

    def log(self) -> PartitionLog:
        return log_of(*((each, entries) for each, entries in self.ledgers), last=self.confirmed)

    def _open(self) -> None:
        if self.ledgers and not self.ledgers[-1][1]:
            del self.ledgers[-1]
        self.ledgers.append([self._next_id, 0])
        self._next_id += 3
