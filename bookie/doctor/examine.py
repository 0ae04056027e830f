"""Examination of all folders of a stopped bookie, without changing anything. Blocking.

    VERSION                each folder's cookie can be read, and all are the same
    lastMark, lastId       they are what they should be
    journals               every group, and the positions that headers and the seal name; the ones behind the mark are
                           needed
    locations/, ledgers/   the files against their witness and their own checksums, then every row
    entry logs             every entry that the index points to: it exists, it is that entry, it matches its digest
    forgottenFences        its checksum

Checks that startup makes too use the same code. A server makes the other checks only when it reads an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, TypeAlias

from bookie.config import BookieConfig
from bookie.cookie import VERSION_FILE
from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    decode_header,
    decode_last_id,
    log_id_of,
    log_name,
)
from bookie.db_ledger_storage.forgotten_fences import FILE_NAME, ForgottenFences
from bookie.db_ledger_storage.ledger_index import LedgerIndex
from bookie.doctor.entries import Damaged, EntryCheck
from bookie.errors import JournalDamagedError, StorageDamagedError
from bookie.folders import directories_of
from bookie.journal.format import LedgerKey
from bookie.journal.replay import Replay
from bookie.journal.seal import ReplayPlan
from bookie.limbo.epochs import EPOCH_FILE, read_epoch
from bookie.recovery import Starts, read_plans
from quire.metadata.cookies import decode_cookie
from quire.metadata.errors import MetadataError
from quire.wire.bookkeeper.run import Run
from quire.world.damage import Finding
from quire.world.doors import Disk, KeyValue
from quire.world.map_witness import check_map

Look: TypeAlias = Callable[[str], KeyValue]
"""Opens the map in a folder without changing it."""
Progress: TypeAlias = Callable[[str, int], None]
"""Reports progress: name of the items counted, and their number so far."""

_KEY: Final = Struct("!qq")
_ALL: Final = (_KEY.pack(0, 0), b"\x80")
_NAMED_MAX: Final = 5
"""Largest number of damaged entries of one log that are listed individually."""
_STEP: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """Remedies, one sentence for each kind of file."""

    journal: str
    storage: str
    """Remedy for entry logs and indexes."""
    cookie: str = "Copy the file from the bookie's other folder, which has the same one"
    mark: str = ""


@dataclass(slots=True)
class Examined:
    """Result of an examination.

    `entries`: number of entries in index and journal, by ledger, for ledgers with a key.
    """

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    entries: dict[int, int] = field(default_factory=dict)

    @property
    def damaged(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.loses]

    def lost(self, file: str, what: str, remedy: str) -> None:
        self.findings.append(Finding(file, what, remedy))

    def noted(self, file: str, what: str, remedy: str = "") -> None:
        self.findings.append(Finding(file, what, remedy, loses=False))


def examine(
    disk: Disk,
    look: Look,
    config: BookieConfig,
    *,
    remedies: Remedies,
    progress: Progress,
    existing: Container[int] | None = None,
) -> Examined:
    """Examine a bookie whose folders are locked by the caller.

    Args:
        config: the folders; the other values are not used.
        existing: the ledgers that have metadata. Damage to entries of others loses nothing: the ledger was deleted, and
            its entries wait for the garbage collection. None: not known, and every ledger counts.

    OSError if a folder cannot be read.
    """
    found = Examined()
    _Doctor(disk, look, config, remedies, found, progress, existing).run()
    return found


@dataclass(slots=True)
class _Doctor:
    disk: Disk
    look: Look
    config: BookieConfig
    remedies: Remedies
    found: Examined
    progress: Progress
    existing: Container[int] | None

    def run(self) -> None:
        folders = [f"{folder}/current" for folder in directories_of(self.config)]
        missing = [folder for folder in folders if not self.disk.exists(folder)]
        for folder in missing:
            self.found.lost(folder, "is missing: it was wiped, or is not mounted", self.remedies.storage)
        if missing:
            return
        self._cookies(folders)
        self._epochs(folders)
        starts = self._plans()
        journalled = self._journals(starts.plans)
        pairs = list(zip(self.config.ledger_directories, self.config.indexes, strict=True))
        examined = [
            _Directory(
                self.disk,
                self.look,
                f"{ledgers}/current",
                f"{index}/current",
                self.remedies,
                self.found,
                self.progress,
                self.existing,
                has_served=starts.served[number],
                has_seal=starts.sealed[number],
            )
            for number, (ledgers, index) in enumerate(pairs)
        ]
        known = [each.ledger_index() for each in examined]
        for number, each in enumerate(examined):
            each.locations(known[number], self._of_directory(number, known, journalled))
            each.entry_logs()

    def _of_directory(
        self, number: int, known: Sequence[set[int] | None], journalled: Mapping[int, list[tuple[int, int]]]
    ) -> Mapping[int, list[tuple[int, int]]]:
        """Return the journal's runs of the ledgers of one directory: those it has, and new ones by their id."""
        if len(known) == 1:
            return journalled
        elsewhere = {each for other in known if other is not None for each in other} - (known[number] or set())
        return {
            ledger_id: runs
            for ledger_id, runs in journalled.items()
            if ledger_id in (known[number] or ()) or (ledger_id % len(known) == number and ledger_id not in elsewhere)
        }

    # --- small files

    def _cookies(self, folders: Sequence[str]) -> None:
        cookies: dict[str, object] = {}
        for folder in folders:
            path = f"{folder}/{VERSION_FILE}"
            try:
                cookies[path] = decode_cookie(self.disk.read(path))
            except FileNotFoundError:
                self.found.lost(path, "is missing", self.remedies.cookie)
            except MetadataError as error:
                self.found.lost(path, f"is damaged: {error}", self.remedies.cookie)
            self.found.files += 1
        paths = list(cookies)
        for path in paths[1:]:
            if cookies[path] != cookies[paths[0]]:
                self.found.lost(path, f"is not the same as {paths[0]}: one of them is damaged", self.remedies.cookie)

    def _epochs(self, folders: Sequence[str]) -> None:
        """Compare the epochs of the folders: a start writes them one after the other, so they differ by one at most."""
        epochs = {folder: read_epoch(self.disk, folder) for folder in folders}
        newest = max([epoch for epoch in epochs.values() if epoch is not None], default=-1)
        for folder, epoch in epochs.items():
            if newest >= 0 and epoch is not None and epoch < newest - 1:
                path = f"{folder}/{EPOCH_FILE}"
                self.found.lost(path, "is missing or older than those of the others", self.remedies.storage)
            self.found.files += 1

    def _plans(self) -> Starts:
        """Return where a start would begin the replay of each journal, and up to where the journals are proved."""
        starts = read_plans(self.disk, self.config)
        self.found.files += 2 * len(starts.plans) * len(self.config.ledger_directories)
        for plan in starts.plans:
            self.found.findings.extend(plan.findings)
        return starts

    # --- journals

    def _journals(self, plans: Sequence[ReplayPlan]) -> dict[int, list[tuple[int, int]]]:
        """Return the records behind the marks by ledger: runs of entries (first, last), for ledgers whose key is there
        too.
        """
        runs: dict[int, list[tuple[int, int]]] = {}
        for folder, plan in zip(self.config.journal_directories, plans, strict=True):
            self._journal(f"{folder}/current", plan, runs)
        return runs

    def _journal(self, journal: str, plan: ReplayPlan, runs: dict[int, list[tuple[int, int]]]) -> None:
        behind = _LookingReplay(self.disk, journal, plan, self.found, self.remedies.journal)
        number = 0
        try:
            for records in behind.batches():
                for record in records:
                    number += 1
                    if isinstance(record, Run):
                        runs.setdefault(record.ledger_id, []).append((record.first, record.last))
                    elif isinstance(record, LedgerKey):
                        runs.setdefault(record.ledger_id, [])
                self.progress("journal records", number)
        except JournalDamagedError as error:
            what = f"is damaged at offset {error.offset}: {error.reason}"
            self.found.lost(error.path, what, self.remedies.journal)
        # Files before the mark are copies of stored entries: damage there loses nothing.
        self.found.files += sum(name.endswith(".txn") for name in self.disk.names(journal))


@dataclass(slots=True)
class _Directory:
    """One ledger directory with its indexes. Folders `current`."""

    disk: Disk
    look: Look
    ledgers: str
    index: str
    remedies: Remedies
    found: Examined
    progress: Progress
    existing: Container[int] | None
    has_served: bool
    has_seal: bool

    # --- indexes

    def _map(self, path: str) -> KeyValue | None:
        """Return the map, if its files are sound and it can be opened."""
        check = check_map(self.disk, path)
        self.found.files += len(self.disk.names(path)) if self.disk.exists(path) else 0
        for finding in check.findings:
            remedy = self.remedies.storage if finding.loses else finding.remedy
            self.found.findings.append(Finding(finding.file, finding.what, remedy, finding.loses))
        if check.damage is not None:
            return None
        if check.is_new:
            if self.has_served:
                self.found.lost(path, "is missing, and the bookie has served before", self.remedies.storage)
            else:
                self.found.noted(path, "has no map yet: the bookie has never completed a start")
            return None
        try:
            return self.look(path)
        except OSError as error:
            self.found.lost(path, f"cannot be opened: {error.strerror}", self.remedies.storage)
            return None

    def ledger_index(self) -> set[int] | None:
        """Return the ledgers that have a row; None if that cannot be determined."""
        path = f"{self.index}/ledgers"
        rows = self._map(path)
        if rows is None:
            return None
        try:
            index = LedgerIndex(rows)
            index.load()
            return set(index.ledgers())
        except (StorageDamagedError, OSError) as error:
            self.found.lost(path, f"is damaged: {error}", self.remedies.storage)
            return None
        finally:
            rows.close()

    def locations(self, known: set[int] | None, journalled: Mapping[int, list[tuple[int, int]]]) -> None:
        """Check that every row points to its entry."""
        path = f"{self.index}/locations"
        rows = self._map(path)
        if rows is None:
            return
        entries = EntryCheck(self.disk, self.ledgers)
        orphans: dict[int, None] = {}
        number = 0
        try:
            for key, value in rows.scan(*_ALL):
                number += 1
                if len(key) != _KEY.size or len(value) != 8:
                    self.found.lost(path, f"has a row of {len(key)} and {len(value)} bytes", self.remedies.storage)
                    continue
                ledger_id, entry_id = _KEY.unpack(key)
                if known is not None and ledger_id not in known and ledger_id not in journalled:
                    orphans[ledger_id] = None
                self.found.entries[ledger_id] = self.found.entries.get(ledger_id, 0) + 1
                entries.check(ledger_id, entry_id, int.from_bytes(value, "big"))
                if number % _STEP == 0:
                    self.progress("entries", number)
            for ledger_id, runs in journalled.items():
                if known is not None and (ledger_id in known or ledger_id in journalled):
                    self._count_journalled(rows, ledger_id, runs)
        except OSError as error:
            self.found.lost(path, f"is damaged: {error.strerror}", self.remedies.storage)
        finally:
            rows.close()
            entries.close()
        for ledger_id in orphans:
            what = f"has no row of ledger {ledger_id}, which has entries"
            self.found.lost(f"{self.index}/ledgers", what, self.remedies.storage)
        for log_id, damages in entries.damages():
            self._damaged_log(f"{self.ledgers}/{log_name(log_id)}", damages, journalled)

    def _damaged_log(
        self, file: str, damages: Sequence[Damaged], journalled: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Report damages of one log.

        The next start writes entries that are also in the journal again, so these are not lost; nor are those of
        deleted ledgers.
        """
        lost: list[Damaged] = []
        again: list[Damaged] = []
        deleted: list[Damaged] = []
        for each in damages:
            runs = journalled.get(each.ledger_id, ())
            if self.existing is not None and each.ledger_id not in self.existing:
                deleted.append(each)
            elif any(first <= each.entry_id <= last for first, last in runs):
                again.append(each)
            else:
                lost.append(each)
        if lost:
            self.found.lost(file, f"is damaged: {_named(lost)}", self.remedies.storage)
        if again:
            self.found.noted(file, f"is damaged: {_named(again)}; the journal has these, and a start writes them again")
        if deleted:
            self.found.noted(file, f"is damaged: {_named(deleted)}; their ledgers were deleted")

    def _count_journalled(self, rows: KeyValue, ledger_id: int, runs: list[tuple[int, int]]) -> None:
        seen: set[int] = set()
        for first, last in runs:
            for entry_id in range(first, last + 1):
                if entry_id not in seen and rows.get(_KEY.pack(ledger_id, entry_id)) is None:
                    self.found.entries[ledger_id] = self.found.entries.get(ledger_id, 0) + 1
                seen.add(entry_id)

    # --- entry logs

    def entry_logs(self) -> None:
        """Check the files that no index row points to: headers, lastId, forgottenFences."""
        newest = -1
        for name in self.disk.names(self.ledgers):
            log_id = log_id_of(name)
            if log_id < 0:
                continue
            newest = max(newest, log_id)
            self.found.files += 1
            with closing(self.disk.open(f"{self.ledgers}/{name}", writable=False)) as file:
                try:
                    decode_header(file.pread(HEADER_LENGTH, 0))
                except StorageDamagedError as error:
                    self.found.noted(
                        f"{self.ledgers}/{name}", f"has a damaged header: {error}. Its entries are found by the index"
                    )
        self._last_id(newest)
        self._fences()

    def _fences(self) -> None:
        path = f"{self.ledgers}/{FILE_NAME}"
        if not self.has_seal and not self.disk.exists(path):
            return  # a start creates it
        self.found.files += 1
        try:
            ForgottenFences(self.disk, path, lambda: 0).load(must_exist=True)
        except StorageDamagedError as error:
            what, _, remedy = str(error).removeprefix(f"{path} ").partition(": If ")
            self.found.lost(path, what, f"If {remedy}")

    def _last_id(self, newest: int) -> None:
        path = f"{self.ledgers}/lastId"
        if newest < 0 and not self.disk.exists(path):
            return
        self.found.files += 1
        try:
            last = decode_last_id(self.disk.read(path))
        except FileNotFoundError:
            self.found.noted(path, "is missing: the next entry log gets an id above all existing ones")
            return
        if last < newest:
            self.found.noted(path, f"is damaged: it says {last}, and there is {log_name(newest)}")


def _named(damages: Sequence[Damaged]) -> str:
    texts = list(dict.fromkeys(each.what for each in damages))
    more = len(texts) - _NAMED_MAX
    return "; ".join(texts[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")


class _LookingReplay(Replay):
    """Replay that records every damage and continues."""

    def __init__(self, disk: Disk, directory: str, plan: ReplayPlan, found: Examined, remedy: str) -> None:
        super().__init__(disk, directory, plan.mark, skip_invalid=True, promised=plan.promised, named=plan.named)
        self._found = found
        self._remedy = remedy

    def drop(self, path: str, offset: int, size: int) -> None:
        self._found.noted(path, f"has an unsynced tail, {size} bytes at offset {offset}: a start drops it")

    def give_up(self, path: str, offset: int, size: int, reason: str) -> None:
        self._found.lost(path, f"is damaged at offset {offset}: {reason}", self._remedy)
