"""Check of the rows of a location index: each leads to its entry, and the entry matches its digest. Blocking.

A row leads to its entry if the record at its location has a plausible size, the ids of the row, and a record behind it.
Rows change meanwhile: flushes and compaction move entries, and deletions drop them. So a suspicious row counts as
damaged only if it is still the same and fails once more.

Source: BookKeeper's SingleDirectoryDbLedgerStorage.localConsistencyCheck and EntryLogger.checkEntry; these do not know
digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bookie.db_ledger_storage.parts import StorageParts
from bookie.db_ledger_storage.region import CHAIN_RECORDS, ReadableLogs, WantedRegion, read_found
from bookie.errors import StorageDamagedError
from bookie.scrubber.cold_reads import ColdLogs
from quire.wire.bookkeeper.entry import Digest
from quire.wire.bookkeeper.errors import DigestMismatchError
from quire.wire.bookkeeper.run import Run

ROWS_PER_STEP: Final = 200
READ_BYTES: Final = 256 << 10
"""Bytes read at a time, if an entry is no longer than that."""
STEP_BYTES: Final = 512 << 10
"""Bytes after which a step ends."""


class DamagedEntry(NamedTuple):
    """An entry that cannot be read where its row points, or that does not match its digest."""

    ledger_id: int
    entry_id: int
    log_id: int
    """Log that the row names, -1 if the row itself is damaged."""
    reason: str


@dataclass(slots=True)
class CheckedRows:
    """Result of one step."""

    entries: int = 0
    bytes: int = 0
    verified: int = 0
    """Entries whose digest was verified."""
    damages: list[DamagedEntry] = field(default_factory=list)
    next_entry: int = -1
    """Entry to go on with, -1 at the end of the ledger."""


def check_rows(
    parts: StorageParts,
    ledger_id: int,
    first: int,
    rows_max: int,
    digest: Digest | None,
    bytes_max: int = STEP_BYTES,
) -> CheckedRows:
    """Check the next rows of a ledger from entry `first` on: at most `rows_max`, and none behind `bytes_max` bytes.

    `digest`: None if it is unknown.

    OSError: the index or a log cannot be read now.
    """
    done = CheckedRows()
    logs = _cold(parts)
    rows, done.next_entry = parts.locations.rows(ledger_id, first, min(rows_max, ROWS_PER_STEP))
    at = 0
    while at < len(rows):
        entry_id, location = rows[at]
        if done.bytes >= bytes_max:
            done.next_entry = entry_id
            break
        run, _ = _read(logs, ledger_id, _stretch(rows, at), min(READ_BYTES, bytes_max - done.bytes))
        if run is not None:
            done.bytes += run.size
            good, _ = _count_good(run, digest)
            done.entries += good
            done.verified += good if digest is not None else 0
            at += good
            if good == run.count:
                continue
            entry_id, location = rows[at]
        at += 1
        done.entries += 1
        again = _look_again(parts, ledger_id, entry_id, location, digest)
        if again:
            done.damages.append(DamagedEntry(ledger_id, entry_id, location >> 32 if location > 0 else -1, again))
    return done


def still_damaged(parts: StorageParts, ledger_id: int, entry_id: int, digest: Digest | None) -> str:
    """Return what is wrong with an entry now; empty if it is good, or gone. OSError."""
    location = parts.locations.get(ledger_id, entry_id)
    return _look_again(parts, ledger_id, entry_id, location, digest) if location else ""


def entries_before(parts: StorageParts, ledger_id: int, entry_id: int, digest: Digest | None) -> dict[int, memoryview]:
    """Return the good entries right before a damaged one, in its log.

    The size of an entry is proven by the records behind it. If the row of the damaged entry pointed elsewhere, its
    predecessors could not be read any more if its size is damaged: they have to be written again with it. OSError.
    """
    rows, _ = parts.locations.rows(ledger_id, max(0, entry_id - CHAIN_RECORDS), CHAIN_RECORDS + 1)
    rows = [row for row in rows if row[0] <= entry_id]
    found: dict[int, memoryview] = {}
    logs = _cold(parts)
    at = 0
    while at < len(rows) and rows[at][0] < entry_id:
        run, _ = _read(logs, ledger_id, _stretch(rows, at))
        good = 0 if run is None else _count_good(run, digest)[0]
        if run is not None:
            found |= {each: run.entry(each) for each in range(run.first, run.first + good)}
        at += max(good, 1)
    found.pop(entry_id, None)
    return found


def _stretch(rows: Sequence[tuple[int, int]], at: int) -> list[tuple[int, int]]:
    """Return the rows from `at` on whose entry ids follow each other."""
    end = at + 1
    while end < len(rows) and rows[end][0] == rows[end - 1][0] + 1 and rows[end][1] > 0:
        end += 1
    return list(rows[at:end])


def _cold(parts: StorageParts) -> ColdLogs:
    return ColdLogs(parts.world.disk, parts.folder, parts.logs)


def _read(
    logs: ReadableLogs, ledger_id: int, rows: list[tuple[int, int]], size: int = READ_BYTES
) -> tuple[Run | None, str]:
    wanted = WantedRegion(
        ledger_id=ledger_id,
        first=rows[0][0],
        stop=rows[-1][0] + 1,
        count=len(rows),
        size=size,
        ahead_count=0,
        ahead_size=0,
    )
    try:
        return read_found(logs, wanted, [location for _, location in rows]).run, ""
    except StorageDamagedError as error:
        return None, str(error)


def _count_good(run: Run, digest: Digest | None) -> tuple[int, str]:
    """Return the number of entries before the first one that does not match, and what is wrong with that."""
    if digest is None:
        return run.count, ""
    for number in range(run.count):
        entry_id = run.first + number
        try:
            digest.open(run.ledger_id, entry_id, run.entry(entry_id))
        except DigestMismatchError as error:
            return number, str(error)
    return run.count, ""


def _look_again(parts: StorageParts, ledger_id: int, entry_id: int, location: int, digest: Digest | None) -> str:
    """Return what is wrong with an entry, if its row is still the same and no newer copy waits for a flush."""
    logs = _cold(parts)
    for _ in range(2):
        run, reason = _read(logs, ledger_id, [(entry_id, location)])
        if run is not None:
            _, reason = _count_good(run, digest)
        if not reason:
            return ""
    if parts.cache.find(ledger_id, entry_id) is not None or parts.locations.get(ledger_id, entry_id) != location:
        return ""  # moved, written again or deleted: another step sees the new row
    return reason
