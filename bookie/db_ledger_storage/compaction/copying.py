"""Copying of what one entry log still holds. Blocking, in small steps.

The index leads: an entry is copied if a row points to it in this log. So what was overwritten, deleted or never counted
is not read at all, and damage between two entries does no harm. Each entry is checked as a read of it is: size, ledger
id, entry id, and the record behind it. Its digest cannot be checked here: that takes the ledger's password.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.location_index import LocationIndex
from bookie.db_ledger_storage.region import WantedRegion, read_found
from bookie.errors import StorageDamagedError
from quire.wire.bookkeeper.run import Run

ROWS_PER_STEP: Final = 1000
"""Rows looked at in one step; about half a millisecond."""
READ_BYTES: Final = 512 << 10
"""Bytes read in one step, if the entries are no longer than that."""
READ_ENTRIES: Final = 1000


class EntryDamage(NamedTuple):
    """An entry that cannot be read."""

    ledger_id: int
    entry_id: int
    reason: str


class CopyStep(NamedTuple):
    """Result of one step: entries to copy, or damage; neither if it only looked through rows."""

    run: Run | None = None
    damage: EntryDamage | None = None


def held_entries(
    logs: EntryLogs, locations: LocationIndex, log_id: int, ledgers: Sequence[int]
) -> Generator[CopyStep, None, None]:
    """Read the entries of these ledgers to which rows point in log `log_id`, step by step.

    OSError: a read failed; whether the entry is damaged is not known.
    """
    for ledger_id in ledgers:
        first = 0
        while first >= 0:
            rows, first = locations.rows_in_log(ledger_id, first, log_id, ROWS_PER_STEP)
            yield CopyStep()
            for stretch in _stretches(rows):
                yield from _read(logs, ledger_id, stretch)


def _stretches(rows: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Split rows (entry id, location) where an entry id is missing."""
    begin = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or rows[index][0] != rows[index - 1][0] + 1:
            yield list(rows[begin:index])
            begin = index


def _read(logs: EntryLogs, ledger_id: int, rows: list[tuple[int, int]]) -> Iterator[CopyStep]:
    at = 0
    while at < len(rows):
        first = rows[at][0]
        wanted = WantedRegion(
            ledger_id=ledger_id,
            first=first,
            stop=rows[-1][0] + 1,
            count=READ_ENTRIES,
            size=READ_BYTES,
            ahead_count=0,
            ahead_size=0,
        )
        try:
            run = read_found(logs, wanted, [location for _, location in rows[at : at + READ_ENTRIES + 1]]).run
        except StorageDamagedError as error:
            yield CopyStep(damage=EntryDamage(ledger_id, first, str(error)))
            at += 1
            continue
        yield CopyStep(run)
        at += run.count


def is_emptied(locations: LocationIndex, log_id: int, ledgers: Sequence[int]) -> Generator[bool | None, None, None]:
    """Look whether no row of these ledgers points into the log: None after each step, and the answer at the end.

    Rows never begin to point into a log that is no longer written. So this may take its time.
    """
    for ledger_id in ledgers:
        first = 0
        while first >= 0:
            rows, first = locations.rows_in_log(ledger_id, first, log_id, ROWS_PER_STEP)
            if rows:
                yield False
                return
            yield None
    yield True
