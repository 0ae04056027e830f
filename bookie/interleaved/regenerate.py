"""Index files made anew from the entry logs, for ledgers whose index files were lost or are damaged. Blocking.

A file replaces the ledger's earlier one, in whichever folder that is. Its ledger is fenced, because the old file may
have had a fence. Of an entry that is in several logs the newest copy counts.

Source: BookKeeper's InterleavedStorageRegenerateIndexOp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from bookie.db_ledger_storage.entry_log_format import Scan, log_id_of, log_name
from bookie.interleaved.index_file import IndexHeader, index_path
from bookie.interleaved.index_files import FoundIndex, sync_folders, write_index
from quire.world.doors import Disk


@dataclass(slots=True)
class Regenerated:
    """Result: locations by entry of each ledger, and logs that end in a torn record, with its offset."""

    entries: dict[int, dict[int, int]]
    torn: list[str] = field(default_factory=list)


def regenerate(
    disk: Disk,
    ledgers: Sequence[str],
    indexes: Sequence[str],
    ledger_ids: Sequence[int],
    master_key: bytes,
    progress: Callable[[int], None] = lambda logs: None,
    *,
    dry_run: bool = False,
) -> Regenerated:
    """Write the index files of these ledgers; those without entries get none. Folders are `current`, and locked.

    StorageDamagedError for an entry id that no index file can have; OSError.
    """
    result = Regenerated({ledger_id: {} for ledger_id in ledger_ids})
    logs = [
        (log_id, folder)
        for folder in dict.fromkeys(ledgers)
        for log_id in map(log_id_of, disk.names(folder))
        if log_id >= 0
    ]
    for done, (log_id, folder) in enumerate(sorted(logs), 1):
        path = f"{folder}/{log_name(log_id)}"
        with closing(disk.open(path, writable=False)) as file:
            scan = Scan(file.pread, file.size())
            for entry in scan:
                found = result.entries.get(entry.ledger_id)
                if found is not None:
                    found[entry.entry_id] = entry.location(log_id)
            if scan.torn_at >= 0:
                result.torn.append(f"{path}: {scan.torn_at}")
        progress(done)
    if dry_run:
        return result
    header = IndexHeader(master_key=master_key, fenced=True)
    written: dict[str, None] = {}
    for ledger_id, entries in result.entries.items():
        if entries:
            there = [folder for folder in indexes if disk.exists(f"{folder}/{index_path(ledger_id)}")]
            folder = there[0] if there else indexes[ledger_id % len(indexes)]
            write_index(disk, FoundIndex(ledger_id, folder), header, iter([sorted(entries.items())]))
            written[folder] = None
    for folder in written:
        sync_folders(disk, folder)
    return result
