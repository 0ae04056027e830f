"""Blocking reads that sessions pass to workers; they run in a worker's thread."""

from __future__ import annotations

from bookie.directories.storage import LedgerStorage
from bookie.errors import NoEntryError
from bookie.last_confirmed import NO_LAC
from bookie.reads import attempt
from bookie.requests import LAST_ENTRY, lac_of_entry, lac_of_package
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc


def read_entries(storage: LedgerStorage, places: list[tuple[int, int]]) -> list[tuple[Buffer | None, Rc]]:
    """Run `read_entry` for each (ledger id, entry id), with errors returned as codes. Blocking."""
    return [attempt(read_entry, storage, ledger_id, entry_id) for ledger_id, entry_id in places]


def read_entry(storage: LedgerStorage, ledger_id: int, entry_id: int) -> Buffer:
    """Read one entry, or the last one. Blocking. NoLedgerError, NoEntryError, StorageDamagedError, OSError."""
    return storage.reader.read_entry(
        ledger_id, storage.reader.last_entry_id(ledger_id) if entry_id == LAST_ENTRY else entry_id
    )


def read_if_here(storage: LedgerStorage, ledger_id: int, entry_id: int) -> list[Buffer]:
    """Read an entry into a list, which is empty if the entry is not here. Blocking. BookieError, OSError."""
    try:
        return [read_entry(storage, ledger_id, entry_id)]
    except NoEntryError:
        return []


def last_confirmed(storage: LedgerStorage, ledger_id: int) -> int:
    """Return the LAC known to the storage: the greater of the last entry's and the explicit one.

    Blocking. BookieError, OSError.
    """
    package = storage.explicit_lac(ledger_id)
    lac = NO_LAC if package is None else lac_of_package(package)
    try:
        return max(lac, lac_of_entry(read_entry(storage, ledger_id, LAST_ENTRY)))
    except NoEntryError:
        return lac
