"""Which fences are on their way to the disk. Pure.

A fence is answered when its record is durable: an answer before would let a crash forget it, and the old writer would go on
beside the new owner. Whoever asks meanwhile waits for the same record.
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
        """Is the fence of a ledger that is `fenced` (by the storage's word) not durable yet, or not begun?"""
        return not fenced or ledger_id in self._waiters or ledger_id in self._lost

    def wait(self, ledger_id: int, waiter: Waiter) -> bool:
        """Call `waiter` when the record is durable, or has failed. True: the caller must write the record."""
        waiters = self._waiters.get(ledger_id)
        if waiters is not None:
            waiters.append(waiter)
            return False
        self._waiters[ledger_id] = [waiter]
        return True

    def written(self, ledger_id: int, error: BookieError | None) -> None:
        """The record is durable, or has failed: then the next fence writes another."""
        if error is None:
            self._lost.discard(ledger_id)
        else:
            self._lost.add(ledger_id)
        for waiter in self._waiters.pop(ledger_id, []):
            waiter(error)
