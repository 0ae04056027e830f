"""Role of a storage in a bookie of several directories, also when it is the only one.

See bookie/directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from bookie.db_ledger_storage.forgotten_fences import ForgottenFences
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.db_ledger_storage.ledger_removal import LedgerRemoval
from bookie.db_ledger_storage.write_cache import WriteCache

Self = TypeVar("Self", bound="OneOfSeveral")


class OneOfSeveral:
    """Base of the storage."""

    _cache: WriteCache
    _ledgers: LedgerIndex
    _forgotten_fences: ForgottenFences
    _removal: LedgerRemoval

    @property
    def directories(self: Self) -> tuple[Self, ...]:
        """Return the storages of all directories: this one."""
        return (self,)

    def of(self: Self, ledger_id: int) -> Self:
        """Return the storage of the ledger's directory."""
        return self

    def by_directory(self, places: list[tuple[int, int]]) -> Sequence[list[tuple[int, int]]]:
        """Return the (ledger id, entry id) in groups, each of one directory."""
        return (places,)

    def known_ledgers(self) -> list[int]:
        """Return the ids of all known ledgers, unsorted."""
        return self._ledgers.known()

    def remembered_fences(self) -> list[int]:
        """Return the ids of the ledgers that were forgotten while fenced (forgotten_fences.py)."""
        return self._forgotten_fences.ledgers()

    def unflushed_ledgers(self) -> set[int]:
        """Return the ids of the ledgers of which something is only in memory. Not while a flush runs."""
        return {*self._cache.ledgers(), *self._ledgers.dirty_ledgers, *self._removal.held}
