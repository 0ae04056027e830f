"""Strays: entries in a log that no row of the index leads to, although their ledger exists. Blocking.

A flush writes the rows of its entries last, so a log that is no longer written has none, unless the index has lost
rows, or the ledger was removed from this bookie and came back: the caller decides by the metadata. A read of an entry
without a row says that it is not here, and compaction would drop it, so its row has to be written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH, SIZE_LENGTH, Scan, ScannedEntry
from bookie.db_ledger_storage.parts import StorageParts
from bookie.integrity.expected import is_expected
from bookie.scrubber.cold_reads import PAGE, ColdLogs
from bookie.scrubber.pace import ROWS, STEP_BYTES
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.wire.bookkeeper.entry import Digest
from quire.wire.bookkeeper.errors import DigestMismatchError

RECORDS_PER_STEP: Final = ROWS
STRAYS_PER_STEP: Final = 50
STRAY_BYTES: Final = 8 << 20
"""Bytes of strays after which a step ends."""
_SCANNED_MIN: Final = 4
"""Records in a row from which on their rows are scanned."""


class Stray(NamedTuple):
    """An entry without a row."""

    ledger_id: int
    entry_id: int
    data: bytes


@dataclass(slots=True)
class ScannedStrays:
    """Result of one step."""

    records: int = 0
    strays: list[Stray] = field(default_factory=list)
    next_at: int = -1
    """Offset to go on at, -1 at the end of the log."""


def find_strays(
    parts: StorageParts, log_id: int, at: int = HEADER_LENGTH, bytes_max: int = STEP_BYTES
) -> ScannedStrays:
    """Look for strays among the next records of a log, from offset `at` on, in about `bytes_max` bytes.
    LogMissingError, OSError.

    The end of what can be read ends the scan: a torn log is none that was damaged.
    """
    done = ScannedStrays()
    logs = ColdLogs(parts.world.disk, parts.folder, parts.logs)
    size = 0
    with logs.reading(log_id) as file:
        end = logs.records_end(log_id, file)
        end = file.size() if end < 0 else end
        records = []
        chunk_size = max(PAGE, min(bytes_max, STEP_BYTES))  # a scan needs whole heads
        for record in islice(Scan(file.pread, end, start=at, chunk_size=chunk_size), RECORDS_PER_STEP):
            records.append(record)
            if _behind(record) >= at + bytes_max:
                break
        for record in _without_row(parts, records):
            data = file.pread(record.size, record.offset + SIZE_LENGTH)
            done.strays.append(Stray(record.ledger_id, record.entry_id, data))
            size += len(data)
            if len(done.strays) >= STRAYS_PER_STEP or size >= STRAY_BYTES:
                done.records = records.index(record) + 1
                done.next_at = _behind(record)
                return done
    done.records = len(records)
    if records and (len(records) == RECORDS_PER_STEP or _behind(records[-1]) >= at + bytes_max):
        done.next_at = _behind(records[-1])
    return done


def _behind(record: ScannedEntry) -> int:
    """Return the offset of the next record."""
    return record.offset + SIZE_LENGTH + record.size


def _without_row(parts: StorageParts, records: list[ScannedEntry]) -> Iterator[ScannedEntry]:
    """Yield the records that have no row, and need one.

    A flush sorts what it writes, so most records follow each other. One scan of the rows of those costs a fraction of
    as many questions.
    """
    at = 0
    while at < len(records):
        first = records[at]
        end = at + 1
        while end < len(records) and records[end].ledger_id == first.ledger_id and _follow(records, end):
            end += 1
        with_row: set[int] = set()
        if end - at >= _SCANNED_MIN:
            rows, _ = parts.locations.rows(first.ledger_id, first.entry_id, end - at)
            with_row = {entry_id for entry_id, location in rows if location > 0}
        for record in records[at:end]:
            if record.entry_id not in with_row and not _has_row(parts, record.ledger_id, record.entry_id):
                yield record
        at = end


def _follow(records: list[ScannedEntry], at: int) -> bool:
    return records[at].entry_id == records[at - 1].entry_id + 1


def _has_row(parts: StorageParts, ledger_id: int, entry_id: int) -> bool:
    """Return whether a row or a write cache has the entry, or its ledger is gone, so that it needs none."""
    if parts.ledgers.get(ledger_id) is None:
        return True
    locations = parts.locations
    # Asked twice: a flush that ends between the first and the second question takes it from the cache into the index.
    return bool(
        locations.get(ledger_id, entry_id)
        or parts.cache.find(ledger_id, entry_id) is not None
        or locations.get(ledger_id, entry_id)
        or parts.ledgers.get(ledger_id) is None
    )


def needed(
    strays: list[Stray], metadata: LedgerMetadata, bookie_id: str, digest: Digest | None
) -> tuple[dict[int, memoryview], list[int]]:
    """Return the strays of one ledger that the bookie should have: those that are intact, and ids of those that are not
    or may not be.
    """
    good: dict[int, memoryview] = {}
    bad: list[int] = []
    for stray in strays:
        if not is_expected(metadata, bookie_id, stray.entry_id):
            continue
        try:
            if digest is None:
                raise DigestMismatchError("its digest is unknown")
            digest.open(stray.ledger_id, stray.entry_id, memoryview(stray.data))
            good[stray.entry_id] = memoryview(stray.data)
        except DigestMismatchError:
            bad.append(stray.entry_id)
    return good, bad
