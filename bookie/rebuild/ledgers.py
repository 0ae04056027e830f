"""Rebuilding the ledger index from journals and entry logs. Blocking.

    1  a new index is written beside the old one: a row for every ledger in a journal file or an entry log
    2  the old index is renamed to ledgers.PREV-<time>, and the new one to ledgers

With several ledger folders, a ledger of the journals goes where the bookie would look for it: to the folder whose old
index or entry logs have it, which after an expansion is not that of its id, and otherwise to that of its id
(directories/routes.py). Step 1 is done for all folders before step 2.

Every ledger is fenced, since a lost fence would let two writers go on. The entries of ledgers that were deleted may
still be in the logs: garbage collection finds and removes such ledgers again.

The original leaves all keys empty and writes keys of 16 bytes. Here the master key and the explicit LAC of a ledger are
taken from the old index, if its row can be read, else from the journals, and the rows have their usual keys.

Source: BookKeeper's LedgersIndexRebuildOp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from bookie.db_ledger_storage.entry_log_format import Scan, log_id_of, log_name
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.directories.routes import Routes
from bookie.errors import JournalDamagedError, StorageDamagedError
from bookie.journal.format import NO_MARK, ExplicitLac, Force, LedgerKey
from bookie.journal.replay import Replay
from bookie.rebuild.trees import remove_tree, replace_folder
from quire.world.damage import DamagedError
from quire.world.doors import Disk, KeyValueMaker

REBUILT: Final = "ledgers.REBUILT"
_NAME: Final = "ledgers"
_ROWS_PER_BATCH: Final = 1000
_ALL: Final = (bytes(8), b"\x80")
_ID_MAX: Final = (1 << 63) - 1


@dataclass(slots=True)
class RebuiltLedgers:
    """Result of a rebuild. `backup`: where the old index is, "" if there was none."""

    ledgers: int = 0
    with_key: int = 0
    backup: str = ""
    notes: list[str] = field(default_factory=list)
    """Damage that was met, and passed over."""


Found = Callable[[int, str], None]
"""Called with each ledger and where it was found: `journal` or `entry log`."""


def rebuild_ledgers(
    disk: Disk,
    maps: KeyValueMaker,
    journals: Sequence[str],
    folders: Sequence[tuple[str, str]],
    stamp: str,
    *,
    found: Found = lambda ledger_id, where: None,
    progress: Callable[[str, int, int], None] = lambda log, done, total: None,
) -> list[RebuiltLedgers]:
    """Rebuild the indexes of a bookie; return the result of each folder. The first has the notes on the journals too.

    `folders`: each folder of entry logs, with that of its indexes. All are `current`, and locked by the caller.
    OSError: nothing was changed, or it is from a rename.
    """
    logs = [(number, log) for number, (ledgers, _) in enumerate(folders) for log in _log_names(disk, ledgers)]
    made = [_Rebuilding(index) for _, index in folders]
    for each in made:
        each.old = _old_rows(maps, each.index, each.result)
    for done, (number, log) in enumerate(logs, 1):
        for ledger_id in _from_log(disk, f"{folders[number][0]}/{log}", made[number].result):
            made[number].logged[ledger_id] = None
        progress(log, done, len(logs))
    routes = Routes(len(made), len(journals))
    routes.settle([each.old.keys() | each.logged.keys() for each in made])
    known = _Journalled()
    for journal in journals:
        _from_journal(disk, journal, known, lambda ledger_id: made[routes.directory(ledger_id)], found, made[0].result)
    for each in made:
        for ledger_id in each.logged:
            each.add(ledger_id, "entry log", found)
        each.finish(known)
        remove_tree(disk, f"{each.index}/{REBUILT}")
        _write(maps, f"{each.index}/{REBUILT}", each.rows)
    for each in made:
        each.result.backup = replace_folder(disk, each.index, _NAME, REBUILT, f"{_NAME}.PREV-{stamp}")
    return [each.result for each in made]


def _log_names(disk: Disk, ledgers: str) -> list[str]:
    return [log_name(log_id) for log_id in sorted(map(log_id_of, disk.names(ledgers))) if log_id >= 0]


@dataclass(slots=True)
class _Rebuilding:
    """The new index of one folder."""

    index: str
    old: dict[int, LedgerRow] = field(default_factory=dict)
    logged: dict[int, None] = field(default_factory=dict)
    """Ledgers with entries in the folder's logs."""
    rows: dict[int, LedgerRow] = field(default_factory=dict)
    result: RebuiltLedgers = field(default_factory=RebuiltLedgers)

    def add(self, ledger_id: int, where: str, found: Found) -> None:
        if ledger_id not in self.rows and 0 <= ledger_id <= _ID_MAX:
            self.rows[ledger_id] = replace(self.old.get(ledger_id, LedgerRow()), fenced=True)
            found(ledger_id, where)

    def finish(self, known: _Journalled) -> None:
        """Bring in the facts of the journals."""
        for ledger_id, row in self.rows.items():
            self.rows[ledger_id] = replace(
                row,
                master_key=known.keys.get(ledger_id, row.master_key),
                explicit_lac=known.lacs.get(ledger_id, row.explicit_lac),
            )
        self.result.ledgers = len(self.rows)
        self.result.with_key = sum(bool(row.master_key) for row in self.rows.values())


def _old_rows(maps: KeyValueMaker, index: str, result: RebuiltLedgers) -> dict[int, LedgerRow]:
    """Return the rows of the old index that can be read."""
    rows: dict[int, LedgerRow] = {}
    try:
        old = maps.open(f"{index}/{_NAME}", create=False)
    except BlockingIOError:
        raise
    except (OSError, DamagedError) as error:
        result.notes.append(f"the old index cannot be opened, keys come from the journals alone: {error}")
        return rows
    try:
        for key, value in old.scan(*_ALL):
            ledger_id = int.from_bytes(key[:8], "big")
            if len(key) == 8 or ledger_id not in rows:
                try:
                    rows[ledger_id] = LedgerRow.decode(value)
                except StorageDamagedError as error:
                    result.notes.append(f"ledger {ledger_id}: {error}")
    except OSError as error:
        result.notes.append(f"the old index can be read in part: {error}")
    finally:
        old.close()
    return rows


@dataclass(slots=True)
class _Journalled:
    """Facts of the journals by ledger, of all ledger folders."""

    keys: dict[int, bytes] = field(default_factory=dict)
    lacs: dict[int, bytes] = field(default_factory=dict)


def _from_journal(
    disk: Disk,
    journal: str,
    known: _Journalled,
    home: Callable[[int], _Rebuilding],
    found: Found,
    result: RebuiltLedgers,
) -> None:
    """Add the ledgers of all files of a journal, those that a replay no longer needs too, each to its folder."""
    reading = Replay(disk, journal, NO_MARK, skip_invalid=True, quiet=True)
    try:
        for batch in reading.batches():
            for record in batch:
                if isinstance(record, Force):
                    continue
                home(record.ledger_id).add(record.ledger_id, "journal", found)
                if isinstance(record, LedgerKey):
                    known.keys[record.ledger_id] = record.key
                elif isinstance(record, ExplicitLac):
                    known.lacs[record.ledger_id] = bytes(record.package)
    except JournalDamagedError as error:
        result.notes.append(f"{error.path} is damaged at offset {error.offset}: {error.reason}")


def _from_log(disk: Disk, path: str, result: RebuiltLedgers) -> Iterator[int]:
    with closing(disk.open(path, writable=False)) as file:
        scan = Scan(file.pread, file.size())
        for entry in scan:
            yield entry.ledger_id
        if scan.torn_at >= 0:
            result.notes.append(f"{path} is torn or damaged at offset {scan.torn_at}")


def _write(maps: KeyValueMaker, path: str, rows: dict[int, LedgerRow]) -> None:
    new = maps.open(path)
    try:
        batch, waiting = new.batch(), 0
        for ledger_id, row in rows.items():
            batch.put(ledger_id.to_bytes(8, "big"), row.encode())
            waiting += 1
            if waiting == _ROWS_PER_BATCH:
                new.write(batch, sync=False)
                batch, waiting = new.batch(), 0
        new.write(batch, sync=True)
    finally:
        new.close()
