"""Limbo of the ledgers of one storage: flags in the rows of the ledger index, and one flag of the storage itself.

    row of a ledger       limbo: entries may be missing here, so "not here" proves nothing
    row -0xeefd           flags of the storage, int64; bit 0 says that ledgers must be checked

Source: BookKeeper's LedgerMetadataIndex, SingleDirectoryDbLedgerStorage (StorageState.NEEDS_INTEGRITY_CHECK).
"""

from __future__ import annotations

from typing import Final

from bookie.db_ledger_storage.ledger_index import LedgerIndex
from quire.world.doors import KeyValue

_FLAGS_KEY: Final = (-0xEEFD).to_bytes(8, "big", signed=True)
_NEEDS_CHECK: Final = 1


class LimboRows:
    """Limbo of one storage. All but the methods that block are called on the loop."""

    def __init__(self, ledgers: LedgerIndex, rows: KeyValue) -> None:
        self._ledgers = ledgers
        self._rows = rows
        self._in_limbo = dict.fromkeys([each for each in ledgers.known() if self._is_limbo(each)])

    def __len__(self) -> int:
        return len(self._in_limbo)

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._in_limbo and self._is_limbo(ledger_id)

    def _is_limbo(self, ledger_id: int) -> bool:
        state = self._ledgers.get(ledger_id)
        return state is not None and state.limbo

    def put(self, ledger_id: int, key: bytes) -> None:
        """Put a ledger into limbo, and fence it. `key`: its master key, if it is not known here; b"" if unknown.

        Durable after the next flush.
        """
        self._ledgers.set_limbo(ledger_id, key)
        self._in_limbo[ledger_id] = None

    def clear(self, ledger_id: int) -> None:
        """The ledger has all its entries, durably. No effect if it was deleted."""
        self._ledgers.clear_limbo(ledger_id)
        self._in_limbo.pop(ledger_id, None)

    def ledgers(self) -> list[int]:
        """Return the ledgers in limbo, the newest first. Deleted ones are left out."""
        for ledger_id in [each for each in self._in_limbo if not self._is_limbo(each)]:
            del self._in_limbo[ledger_id]
        return sorted(self._in_limbo, reverse=True)

    def needs_check(self) -> bool:
        """Return whether the storage's flag is set. Blocking."""
        return bool(self._flags() & _NEEDS_CHECK)

    def set_needs_check(self, *, needed: bool) -> None:
        """Set or clear the flag, durably. Blocking. OSError."""
        flags = self._flags()
        wanted = flags | _NEEDS_CHECK if needed else flags & ~_NEEDS_CHECK
        if wanted != flags:
            batch = self._rows.batch()
            batch.put(_FLAGS_KEY, wanted.to_bytes(8, "big", signed=True))
            self._rows.write(batch, sync=True)

    def _flags(self) -> int:
        value = self._rows.get(_FLAGS_KEY)
        return 0 if value is None or len(value) != 8 else int.from_bytes(value, "big", signed=True)
