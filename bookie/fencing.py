"""Fences that are not durable yet. Pure.

Why this is hard: a fence may be answered only when its record is durable. After an earlier answer, a crash could forget
the fence, and the old writer would continue beside the new owner. A ledger may be fenced in memory while its record is
still being written, so a second request must not be answered at once; it waits for the same record.
Source: BookKeeper's LedgerDescriptorImpl.fenceAndLogInJournal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bookie.errors import BookieError

Waiter: TypeAlias = Callable[[BookieError | None], None]


class FenceTable:
    """Fences whose record is not yet known to be durable, by ledger."""

    def __init__(self) -> None:
        self._waiters: dict[int, list[Waiter]] = {}
        self._lost: set[int] = set()

    def needs_wait(self, ledger_id: int, fenced: bool) -> bool:
        """Return whether the ledger lacks a durable fence record. `fenced`: whether the storage has it as fenced."""
        return not fenced or ledger_id in self._waiters or ledger_id in self._lost

    def wait(self, ledger_id: int, waiter: Waiter) -> bool:
        """Register `waiter` to be called when the record is durable or has failed.

        Return True if the caller must write the record.
        """
        waiters = self._waiters.get(ledger_id)
        if waiters is not None:
            waiters.append(waiter)
            return False
        self._waiters[ledger_id] = [waiter]
        return True

    def written(self, ledger_id: int, error: BookieError | None) -> None:
        """Call the waiters: the record is durable or has failed. The next fence writes another record."""
        if error is None:
            self._lost.discard(ledger_id)
        else:
            self._lost.add(ledger_id)
        for waiter in self._waiters.pop(ledger_id, []):
            waiter(error)
