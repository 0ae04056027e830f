"""Limbo of the ledgers of several ledger directories: in the index of each ledger's own."""

from __future__ import annotations

from collections.abc import Sequence

from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.routes import Routes


class SpreadLimbo:
    """As `LimboRows`, over several directories."""

    def __init__(self, storages: Sequence[DbLedgerStorage], routes: Routes) -> None:
        self._storages = storages
        self._routes = routes

    def __len__(self) -> int:
        return len(self.ledgers())

    def __contains__(self, ledger_id: int) -> bool:
        return any([ledger_id in storage.limbo for storage in self._storages])

    def put(self, ledger_id: int, key: bytes) -> None:
        """Put a ledger into limbo, and fence it, in its own directory."""
        self._storages[self._routes.directory(ledger_id)].limbo.put(ledger_id, key)

    def clear(self, ledger_id: int) -> None:
        """The ledger has all its entries, durably."""
        for storage in self._storages:
            if ledger_id in storage.limbo:
                storage.limbo.clear(ledger_id)

    def ledgers(self) -> list[int]:
        """Return the ledgers in limbo, the newest first."""
        return sorted({each for storage in self._storages for each in storage.limbo.ledgers()}, reverse=True)

    def needs_check(self) -> bool:
        """Return whether the flag of any directory is set. Blocking."""
        return any([storage.limbo.needs_check() for storage in self._storages])

    def set_needs_check(self, *, needed: bool) -> None:
        """Set or clear the flag of all directories, durably. Blocking. OSError."""
        for storage in self._storages:
            storage.limbo.set_needs_check(needed=needed)
