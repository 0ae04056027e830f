"""Conversion of the two maps of DbLedgerStorage to index files, for a bookie of the original with Sorted- or
InterleavedLedgerStorage. Blocking.

    1  an index file is written for every ledger                 may be repeated: the files are replaced
    2  ledgers/ is renamed to ledgers.backup/
    3  locations/ is renamed to locations.backup/

A conversion that is killed is begun anew, and loses nothing: the maps are only renamed. After step 2 no bookie with
DbLedgerStorage starts, and the next conversion continues with step 3.

The journal stays as it is: the original's bookie replays it.

Source: BookKeeper's ConvertToInterleavedStorageCommand. It does not convert explicit LACs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.errors import BookieError
from bookie.interleaved.index_file import IndexHeader
from bookie.interleaved.index_files import FoundIndex, sync_folders, write_index
from quire.world.doors import Disk, KeyValue, KeyValueMaker

BACKUP: Final = ".backup"
_KEY: Final = Struct("!qq")
_ENTRY_ID_MAX: Final = (1 << 63) - 1
_PART: Final = 4096


class NotConvertibleError(BookieError):
    """The folders hold something that index files cannot express. Final: the message has the remedy."""


@dataclass(slots=True)
class ConvertedFromDb:
    """Result of a conversion."""

    ledgers: int = 0
    entries: int = 0


def convert_from_db(
    disk: Disk, maps: KeyValueMaker, index: str, progress: Callable[[int], None] = lambda ledgers: None
) -> ConvertedFromDb:
    """Convert the folder `current` of the indexes, which the caller has locked.

    NotConvertibleError: nothing was changed. StorageDamagedError, OSError: the maps were not changed.
    """
    result = ConvertedFromDb()
    names = disk.names(index)
    if "ledgers" in names:
        taken = [f"{name}{BACKUP}" for name in ("ledgers", "locations") if f"{name}{BACKUP}" in names]
        if taken:
            raise NotConvertibleError(
                f"{index} has {' and '.join(taken)} of an earlier conversion: delete or move these folders first"
            )
        _write_files(disk, maps, index, result, progress)
        disk.rename(f"{index}/ledgers", f"{index}/ledgers{BACKUP}")
        disk.sync_dir(index)
    elif f"ledgers{BACKUP}" not in names:
        raise NotConvertibleError(f"{index} has no folder `ledgers`: its index is not that of DbLedgerStorage")
    if "locations" in names:
        disk.rename(f"{index}/locations", f"{index}/locations{BACKUP}")
        disk.sync_dir(index)
    return result


def _write_files(
    disk: Disk, maps: KeyValueMaker, index: str, result: ConvertedFromDb, progress: Callable[[int], None]
) -> None:
    rows = maps.open(f"{index}/ledgers", create=False)
    try:
        ledgers = LedgerIndex(rows)
        ledgers.load()
    finally:
        rows.close()
    limbo = [ledger_id for ledger_id in ledgers.known() if (row := ledgers.get(ledger_id)) is not None and row.limbo]
    if limbo:
        raise NotConvertibleError(
            f"ledger {limbo[0]} and {len(limbo) - 1} others are in limbo, which index files cannot express: start the "
            "bookie until its integrity check is done"
        )
    locations = maps.open(f"{index}/locations", create=False)
    try:
        for ledger_id in ledgers.ledgers():
            row = ledgers.get(ledger_id)
            assert row is not None
            header = IndexHeader(master_key=row.master_key, fenced=row.fenced, explicit_lac=row.explicit_lac)
            found = FoundIndex(ledger_id, index)
            result.entries += write_index(disk, found, header, _entries(locations, ledger_id))
            result.ledgers += 1
            progress(result.ledgers)
    finally:
        locations.close()
    sync_folders(disk, index)


def _entries(rows: KeyValue, ledger_id: int) -> Iterator[list[tuple[int, int]]]:
    part: list[tuple[int, int]] = []
    for key, value in rows.scan(_KEY.pack(ledger_id, 0), _KEY.pack(ledger_id, _ENTRY_ID_MAX) + b"\0"):
        part.append((int.from_bytes(key[8:], "big"), int.from_bytes(value, "big")))
        if len(part) == _PART:
            yield part
            part = []
    if part:
        yield part
