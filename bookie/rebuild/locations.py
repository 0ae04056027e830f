"""Rebuilding the location index from the entry logs. Blocking.

    1  a new index is written beside the old one, from all records of all logs, in the order of the log ids
    2  the old index is renamed to locations.BACKUP-<time>, and the new one to locations

Only entries of ledgers in the ledger index get a row: others were deleted, and wait for garbage collection. Of an entry
that is in several logs, because it was compacted or replayed, the newest copy counts. Entries that are only in the
journal are replayed when the bookie starts.

Each log gets the notes of its ledgers too (log_ledgers.py): all rows that point into it are written here, so they are
known whole, also of a torn log. The garbage collection then looks through no rows of other ledgers.

A log that was not sealed ends where the bookie died, and may be torn there. A sealed log that cannot be read up to its
ledgers map is damaged: the entries behind the damage would lose their rows, so nothing is replaced.

Source: BookKeeper's LocationsIndexRebuildOp.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    SIZE_LENGTH,
    Scan,
    decode_header,
    log_id_of,
    log_name,
)
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.db_ledger_storage.log_ledgers import LogLedgers
from bookie.errors import StorageDamagedError
from bookie.rebuild.trees import remove_tree, replace_folder
from quire.world.doors import Disk, KeyValue, KeyValueMaker

REBUILT: Final = "locations.REBUILT"
_NAME: Final = "locations"
_ROWS_PER_BATCH: Final = 10_000
_KEY: Final = Struct("!qq")
_LOCATION: Final = Struct("!q")


@dataclass(slots=True)
class RebuiltLocations:
    """Result of a rebuild. `backup`: where the old index is, "" if there was none."""

    ledgers: int = 0
    """Ledgers in the ledger index."""
    logs: int = 0
    entries: int = 0
    left_out: int = 0
    """Entries of ledgers that are not in the ledger index."""
    backup: str = ""
    torn: list[str] = field(default_factory=list)
    """Logs that end in a torn record, with its offset."""


def rebuild_locations(
    disk: Disk,
    maps: KeyValueMaker,
    ledgers: str,
    index: str,
    stamp: str,
    progress: Callable[[str, int, int], None] = lambda log, done, total: None,
    *,
    skip_damaged: bool = False,
) -> RebuiltLocations:
    """Rebuild the index in `index` of the logs in `ledgers`, both folders `current`, which the caller has locked.

    `progress` is called after each log with its name, the number of logs done, and the total. StorageDamagedError if a
    sealed log is damaged (`skip_damaged`: it is read up to there), or the ledger index; OSError. Then nothing changed.
    """
    result = RebuiltLocations()
    known = _known(maps, index)
    result.ledgers = len(known)
    remove_tree(disk, f"{index}/{REBUILT}")
    log_ids = sorted(log_id for log_id in map(log_id_of, disk.names(ledgers)) if log_id >= 0)
    rows = maps.open(f"{index}/{REBUILT}")
    try:
        for log_id in log_ids:
            _add_log(disk, ledgers, log_id, known, rows, result, skip_damaged=skip_damaged)
            result.logs += 1
            progress(log_name(log_id), result.logs, len(log_ids))
        rows.write(rows.batch(), sync=True)
    except BaseException:
        rows.close()
        remove_tree(disk, f"{index}/{REBUILT}")
        raise
    rows.close()
    result.backup = replace_folder(disk, index, _NAME, REBUILT, f"{_NAME}.BACKUP-{stamp}")
    return result


def _known(maps: KeyValueMaker, index: str) -> set[int]:
    rows = maps.open(f"{index}/ledgers", create=False)
    try:
        ledgers = LedgerIndex(rows)
        ledgers.load()
        return set(ledgers.known())
    finally:
        rows.close()


def _add_log(
    disk: Disk,
    folder: str,
    log_id: int,
    known: set[int],
    rows: KeyValue,
    result: RebuiltLocations,
    *,
    skip_damaged: bool,
) -> None:
    path = f"{folder}/{log_name(log_id)}"
    sizes: dict[int, int] = {}
    with closing(disk.open(path, writable=False)) as file:
        scan = Scan(file.pread, file.size())
        batch, waiting = rows.batch(), 0
        for entry in scan:
            if entry.ledger_id not in known:
                result.left_out += 1
                continue
            batch.put(_KEY.pack(entry.ledger_id, entry.entry_id), _LOCATION.pack(entry.location(log_id)))
            sizes[entry.ledger_id] = sizes.get(entry.ledger_id, 0) + SIZE_LENGTH + entry.size
            result.entries += 1
            waiting += 1
            if waiting == _ROWS_PER_BATCH:
                rows.write(batch, sync=False)
                batch, waiting = rows.batch(), 0
        rows.write(batch, sync=False)
        notes = LogLedgers(rows)
        notes.begin(log_id)
        notes.add({log_id: sizes})
        if scan.torn_at < 0:
            return
        if _is_sealed(file.pread(HEADER_LENGTH, 0)) and not skip_damaged:
            raise StorageDamagedError(
                f"{path} is damaged at offset {scan.torn_at}: what is behind it cannot be found without the old index"
            )
        result.torn.append(f"{path}: {scan.torn_at}")


def _is_sealed(header: bytes) -> bool:
    try:
        return decode_header(header).has_map
    except StorageDamagedError:
        return False
