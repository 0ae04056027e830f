"""Conversion of index files to the two maps of DbLedgerStorage, after which its bookie starts on the folders. Blocking.

    1  every row of every index file is written to the maps         may be repeated: the same rows are written again
    2  the maps are synced and closed
    3  the index files are deleted                                   a bookie refuses to start while one is left

A conversion that is killed is begun anew, and loses nothing: before step 3 all index files are there, and in step 3 the
maps have all rows. The journal stays as it is. Entries that are only there are replayed when the bookie starts.

The original's storages share the entry logs of all ledger folders. DbLedgerStorage keeps each ledger in one folder,
chosen by its id unless one has it already, and looks for its entries in the logs of that folder only. So with several
ledger folders the entries that lie elsewhere are copied into a new log of the ledger's folder. (The original converts
the index alone, and cannot read those entries afterwards.)

A row that exists already, from a conversion by the original that was killed, is kept if it leads to its entry.

Source: BookKeeper's ConvertToDBStorageCommand, DbLedgerStorage.getLedgerStorage. It does not convert explicit LACs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_log_format import ENTRY_LENGTH_MIN, RECORD_HEAD, SIZE_LENGTH, log_name
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.interleaved.index_files import FoundIndex, LedgerIndexFile, delete_index_files, find_index_files, open_index
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import FRAME_MAX
from quire.world.doors import Disk, File, KeyValue, KeyValueMaker

_KEY: Final = Struct("!qq")
_LOCATION: Final = Struct("!q")
_POSITION: Final = 0xFFFFFFFF
_COPIED_BYTES: Final = 8 << 20
_OPEN_MAX: Final = 64


@dataclass(slots=True)
class ConvertedToDb:
    """Result of a conversion. `unfinished`: index files without a header, whose ledgers are in the journal."""

    ledgers: int = 0
    entries: int = 0
    copied: int = 0
    """Entries copied into a log of their ledger's folder."""
    copied_bytes: int = 0
    missing: int = 0
    """Entries of several folders that no log has: their rows are kept, and the journal may have them."""
    unfinished: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Target:
    """One folder of the DbLedgerStorage to be."""

    current: str
    locations: KeyValue
    ledgers: KeyValue
    logs: EntryLogs


def convert_to_db(
    disk: Disk,
    maps: KeyValueMaker,
    ledgers: Sequence[str],
    indexes: Sequence[str],
    progress: Callable[[int], None] = lambda ledgers: None,
) -> ConvertedToDb:
    """Convert the folders `current` of entry logs and indexes, which the caller has locked.

    StorageDamagedError if an index file is damaged: nothing was deleted. OSError.
    """
    result = ConvertedToDb()
    with ExitStack() as stack:
        targets = [_open_target(disk, maps, *pair, stack) for pair in zip(ledgers, indexes, strict=True)]
        logs = _Logs(disk, ledgers)
        stack.callback(logs.close)
        for found in find_index_files(disk, list(dict.fromkeys(indexes))):
            with closing((index := open_index(disk, found)).file):
                _convert(found, index, _target(targets, found.ledger_id), logs, result)
            progress(result.ledgers)
        for target in targets:
            _sync(target.locations)
            _sync(target.ledgers)
    for index_folder in dict.fromkeys(indexes):
        delete_index_files(disk, index_folder)
    return result


def _open_target(disk: Disk, maps: KeyValueMaker, current: str, index: str, stack: ExitStack) -> _Target:
    locations = maps.open(f"{index}/locations")
    stack.callback(locations.close)
    ledgers = maps.open(f"{index}/ledgers")
    stack.callback(ledgers.close)
    logs = EntryLogs(disk, current)
    logs.open()
    stack.callback(logs.close)
    return _Target(current, locations, ledgers, logs)


def _target(targets: Sequence[_Target], ledger_id: int) -> _Target:
    """Return the folder of a ledger: the one whose index has it already, before folders were added; else by its id."""
    own = targets[ledger_id % len(targets)]
    key = ledger_id.to_bytes(8, "big")
    return next((each for each in (own, *targets) if each.ledgers.get(key) is not None), own)


def _sync(rows: KeyValue) -> None:
    rows.write(rows.batch(), sync=True)


def _convert(found: FoundIndex, index: LedgerIndexFile, target: _Target, logs: _Logs, result: ConvertedToDb) -> None:
    if index.header is None:
        result.unfinished.append(index.path)
        return
    ledger_id, header = found.ledger_id, index.header
    key = ledger_id.to_bytes(8, "big")
    present = target.ledgers.get(key)
    for part in index.locations():
        copies = _Copies(target, ledger_id)
        batch = target.locations.batch()
        for entry_id, location in part:
            row = _KEY.pack(ledger_id, entry_id)
            # Rows are looked up only if there can be some: those of a new ledger are all new.
            old = None if present is None else target.locations.get(row)
            if old is not None and logs.leads_to(target.current, ledger_id, entry_id, int.from_bytes(old, "big")):
                continue
            if logs.is_in(target.current, location >> 32):
                batch.put(row, _LOCATION.pack(location))
                continue
            entry = logs.read(ledger_id, entry_id, location)
            if entry is None:
                result.missing += 1
                batch.put(row, _LOCATION.pack(location))
            else:
                copies.add(entry_id, entry)
        target.locations.write(batch, sync=False)
        copies.write()
        result.entries += len(part)
        result.copied += copies.count
        result.copied_bytes += copies.bytes
    facts = LedgerRow(master_key=header.master_key, fenced=header.fenced, explicit_lac=header.explicit_lac)
    if present is not None:
        facts = _merged(facts, LedgerRow.decode(present))
    batch = target.ledgers.batch()
    batch.put(key, facts.encode())
    target.ledgers.write(batch, sync=False)
    result.ledgers += 1


def _merged(found: LedgerRow, present: LedgerRow) -> LedgerRow:
    """Return the facts of a ledger that has a row already: a fence of either holds."""
    return LedgerRow(
        master_key=present.master_key or found.master_key,
        fenced=present.fenced or found.fenced,
        explicit_lac=present.explicit_lac or found.explicit_lac,
        limbo=present.limbo,
    )


class _Copies:
    """Entries of one ledger that are copied into a log of its folder."""

    def __init__(self, target: _Target, ledger_id: int) -> None:
        self._target = target
        self._ledger_id = ledger_id
        self._entries: list[tuple[int, bytes]] = []
        self._waiting = 0
        self.count = self.bytes = 0

    def add(self, entry_id: int, entry: bytes) -> None:
        self._entries.append((entry_id, entry))
        self._waiting += len(entry)
        if self._waiting >= _COPIED_BYTES:
            self.write()

    def write(self) -> None:
        """Write the entries, durably, then their rows."""
        if not self._entries:
            return
        runs = [Run.of(self._ledger_id, [each]) for each in self._entries]
        batch = self._target.locations.batch()
        for run, location in self._target.logs.append(runs):
            batch.put(_KEY.pack(self._ledger_id, run.first), _LOCATION.pack(location + SIZE_LENGTH))
        self._target.locations.write(batch, sync=False)
        self.count += len(self._entries)
        self.bytes += self._waiting
        self._entries, self._waiting = [], 0


class _Logs:
    """The entry logs of all folders, as the original's storages see them: one set of logs, by id."""

    def __init__(self, disk: Disk, folders: Sequence[str]) -> None:
        self._disk = disk
        self._folders = folders
        self._files: dict[str, File] = {}
        self._there: dict[tuple[str, int], bool] = {}

    def is_in(self, folder: str, log_id: int) -> bool:
        """Return whether a log is in that folder; with one folder every log is."""
        if len(self._folders) == 1:
            return True
        place = (folder, log_id)
        if place not in self._there:
            self._there[place] = self._disk.exists(f"{folder}/{log_name(log_id)}")
        return self._there[place]

    def leads_to(self, folder: str, ledger_id: int, entry_id: int, location: int) -> bool:
        """Return whether a location in the logs of one folder is that of the entry."""
        try:
            file = self._file(f"{folder}/{log_name(location >> 32)}")
        except FileNotFoundError:
            return False
        head = file.pread(RECORD_HEAD.size, (location & _POSITION) - SIZE_LENGTH)
        return len(head) == RECORD_HEAD.size and RECORD_HEAD.unpack(head)[1:] == (ledger_id, entry_id)

    def read(self, ledger_id: int, entry_id: int, location: int) -> bytes | None:
        """Return an entry from whichever folder has its log, None if it is in none."""
        name, position = log_name(location >> 32), (location & _POSITION) - SIZE_LENGTH
        for folder in self._folders:
            if self.leads_to(folder, ledger_id, entry_id, location):
                file = self._file(f"{folder}/{name}")
                size = RECORD_HEAD.unpack(file.pread(RECORD_HEAD.size, position))[0]
                if ENTRY_LENGTH_MIN <= size <= FRAME_MAX:
                    entry = file.pread(size, position + SIZE_LENGTH)
                    if len(entry) == size:
                        return entry
        return None

    def _file(self, path: str) -> File:
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= _OPEN_MAX:
                self._files.pop(next(iter(self._files))).close()
            file = self._files[path] = self._disk.open(path, writable=False)
        return file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
