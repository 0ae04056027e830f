"""Location index: maps (ledger id, entry id) to a location, in the ordered map `current/locations`. Blocking.

    key    int64 ledger id, int64 entry id      big-endian, so that the order of the bytes is that of the numbers
    value  int64 location                       see entry_log_format.py

Source: BookKeeper's EntryLocationIndex. Keys of negative ids: log_ledgers.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct, unpack
from typing import Final

from bookie.db_ledger_storage.entry_log_format import SIZE_LENGTH
from bookie.db_ledger_storage.ledger_removal import id_ranges
from bookie.db_ledger_storage.log_ledgers import LogLedgers
from bookie.errors import StorageDamagedError
from quire.wire.bookkeeper.run import Run
from quire.world.doors import KeyValue

ROWS_PER_BATCH: Final = 1000
"""Rows per batch.

A batch holds the interpreter while it is applied, 0.15 us per row. If its first run is longer, the batch is as long as
that run.
"""
ENTRY_ID_MAX: Final = (1 << 63) - 1
"""The highest id that a key can have.

Adds above `quire.wire.bookkeeper.v2.ID_MAX` are refused, but an older bookie took them.
"""
_ALL: Final = (bytes(16), b"\x80")
"""Key range of every row with a ledger id >= 0: keys of negative ids start at its second key."""
_KEY: Final = Struct("!qq")
_LOCATION: Final = Struct("!q")
_SCAN_ROWS: Final = 128
ROWS_PER_STEP: Final = 1000
"""Rows examined in one step; about 0.5 ms of the interpreter."""


class LocationIndex:
    """Location index of one bookie directory."""

    def __init__(self, rows: KeyValue) -> None:
        self._rows = rows
        self.log_ledgers = LogLedgers(rows)

    def put(self, placed: Sequence[tuple[Run, int]]) -> None:
        """Store where entries lie; durable on return. Each run comes with the location of its first size field.

        The entries must be durable before this call: after a crash only some of the rows may exist.
        """
        rows = self._rows
        ledgers: dict[int, dict[int, int]] = {}
        for run, base in placed:
            sizes = ledgers.setdefault(base >> 32, {})
            sizes[run.ledger_id] = sizes.get(run.ledger_id, 0) + run.size
        self.log_ledgers.add(ledgers)
        pack_key = _KEY.pack
        pack_location = _LOCATION.pack
        batch = rows.batch()
        room = ROWS_PER_BATCH
        for run, base in placed:
            room -= run.count
            if room < 0:
                rows.write(batch, sync=False)
                batch = rows.batch()
                room = ROWS_PER_BATCH - run.count
            put = batch.put
            ledger_id = run.ledger_id
            base += SIZE_LENGTH  # the location of an entry is that of its ledger id, behind the size field
            for entry_id, offset in enumerate(run.offsets, run.first):
                put(pack_key(ledger_id, entry_id), pack_location(base + offset))
        rows.write(batch, sync=True)

    def locations(
        self,
        ledger_id: int,
        first: int,
        stop: int,
        count_max: int,
        span_max: int,
        *,
        ahead_count: int = 0,
        ahead_span: int = 0,
        dense: bool = False,
    ) -> list[int]:
        """Return the locations of entries `first`, `first + 1`, ... up to the first gap; empty if `first` has no row.

        Ends before `stop` (if above ENTRY_ID_MAX: at the end of the ledger). It also ends when there are `count_max`
        entries or soon after a location more than `span_max` bytes from the first one, if the same holds for
        `ahead_count` and `ahead_span`.

        `dense`: few gaps are expected, so that rows are read without their keys as far as that is enough.
        """
        bounds = ((count_max, span_max), (ahead_count, ahead_span))
        found: list[int] = []
        if dense:
            self._add_dense(found, ledger_id, first, stop, bounds)
            if first + len(found) >= stop or _rows_wanted(found, bounds) <= 0:
                return found
        end = _past(ledger_id) if stop > ENTRY_ID_MAX else _KEY.pack(ledger_id, stop)
        scan = self._rows.scan(_KEY.pack(ledger_id, first + len(found)), end)
        while (wanted := _rows_wanted(found, bounds)) > 0:
            rows = list(islice(scan, wanted))
            if not rows:
                break
            values = b"".join([value for _, value in rows])
            if len(values) != 8 * len(rows):
                raise StorageDamagedError(f"ledger {ledger_id}: a row of the location index is not 8 bytes long")
            expected = first + len(found)
            if int.from_bytes(rows[-1][0][8:], "big") != expected + len(rows) - 1:
                # The keys are sorted and distinct, so a gap shows in the last key.
                together = _count_consecutive(rows, expected)
                found.extend(_unpack_locations(values[: 8 * together]))
                break
            found.extend(_unpack_locations(values))
            if len(rows) < wanted:
                break
        return found

    def _add_dense(
        self, found: list[int], ledger_id: int, first: int, stop: int, bounds: Sequence[tuple[int, int]]
    ) -> None:
        """Append the locations of entries from `first` on, in pieces that have no gap; end before one that may have.

        The keys are not read. No two entries have one location. So if the last of n rows has the location of entry
        first + n - 1, these are the rows of the n entries.
        """
        while (wanted := min(_rows_wanted(found, bounds), stop - first - len(found))) > 0:
            expected = first + len(found)
            rows = self._rows.values(_KEY.pack(ledger_id, expected), wanted)
            values = b"".join(rows)
            if len(values) != 8 * wanted:
                return
            if self._rows.get(_KEY.pack(ledger_id, expected + wanted - 1)) != rows[-1]:
                return
            found.extend(_unpack_locations(values))

    def get(self, ledger_id: int, entry_id: int) -> int:
        """Return the location of one entry, 0 if it has none."""
        value = self._rows.get(_KEY.pack(ledger_id, entry_id))
        return 0 if value is None else int.from_bytes(value, "big")

    def last_entry_id(self, ledger_id: int) -> int:
        """Return the highest entry id of the ledger, -1 if it has no rows."""
        scan = self._rows.scan(_KEY.pack(ledger_id, 0), _past(ledger_id), reverse=True)
        for key, _ in scan:
            return int.from_bytes(key[8:], "big")
        return -1

    def ranges(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """Yield the ledger's entries as ranges (first, last) without gaps, ascending."""
        first = last = -1
        for key, _ in self._rows.scan(_KEY.pack(ledger_id, 0), _past(ledger_id)):
            entry_id = int.from_bytes(key[8:], "big")
            if entry_id != last + 1:
                if first >= 0:
                    yield first, last
                first = entry_id
            elif first < 0:
                first = entry_id
            last = entry_id
        if first >= 0:
            yield first, last

    def ledgers(self) -> list[int]:
        """Return the ids of the ledgers that have rows, sorted. Takes one seek for each."""
        return self.ledgers_from(0, None)

    def ledgers_from(self, first: int, count_max: int | None) -> list[int]:
        """As `ledgers`: the lowest `count_max` ids from `first` on."""
        some = ENTRY_ID_MAX if count_max is None else count_max
        found = self._rows.prefixes(_KEY.pack(first, 0), _ALL[1], 8, some)
        return [int.from_bytes(each, "big") for each in found]

    def has_rows(self, ledger_id: int) -> bool:
        """Return whether the ledger has rows."""
        return bool(self._rows.prefixes(_KEY.pack(ledger_id, 0), _past(ledger_id), 8, 1))

    def logs_in_use(self, logs: Iterable[int]) -> set[int]:
        """Return those of `logs` to which a row of any ledger points.

        Reads all rows, unless it finds every log earlier.
        """
        used: set[int] = set()
        asked = set(logs)
        start: bytes | None = _ALL[0]
        while start is not None and asked:
            found, start = self.logs_in_use_from(asked, start, ROWS_PER_STEP)
            asked -= found
            used |= found
        return used

    def logs_in_use_from(self, logs: Collection[int], start: bytes, rows_max: int) -> tuple[set[int], bytes | None]:
        """As `logs_in_use`, for at most `rows_max` rows from key `start` on.

        Also return the key to continue with, None at the end.
        """
        asked = {log_id.to_bytes(4, "big") for log_id in logs}
        rows = list(islice(self._rows.scan(start, _ALL[1]), rows_max))
        used = asked.intersection([value[:4] for _, value in rows])
        following = rows[-1][0] + b"\0" if len(rows) == rows_max else None
        return {int.from_bytes(log_id, "big") for log_id in used}, following

    def rows_in_log(self, ledger_id: int, first: int, log_id: int, rows_max: int) -> tuple[list[tuple[int, int]], int]:
        """Return the ledger's rows (entry id, location) that point into one log, of its next `rows_max` rows.

        Begins with entry `first`; also return the entry to continue with, -1 at the end of the ledger.
        """
        prefix = log_id.to_bytes(4, "big")
        rows = list(islice(self._rows.scan(_KEY.pack(ledger_id, first), _past(ledger_id)), rows_max))
        found = [
            (int.from_bytes(key[8:], "big"), int.from_bytes(value, "big"))
            for key, value in rows
            if value.startswith(prefix) and len(value) == 8
        ]
        last = int.from_bytes(rows[-1][0][8:], "big") if len(rows) == rows_max else ENTRY_ID_MAX
        return found, -1 if last == ENTRY_ID_MAX else last + 1

    def rows(self, ledger_id: int, first: int, rows_max: int) -> tuple[list[tuple[int, int]], int]:
        """Return the ledger's next `rows_max` rows (entry id, location) from entry `first` on; location -1 if a row is
        damaged. Also return the entry to continue with, -1 at the end of the ledger.
        """
        rows = list(islice(self._rows.scan(_KEY.pack(ledger_id, first), _past(ledger_id)), rows_max))
        found = [
            (int.from_bytes(key[8:], "big"), int.from_bytes(value, "big") if len(value) == 8 else -1)
            for key, value in rows
        ]
        last = found[-1][0] if len(rows) == rows_max else ENTRY_ID_MAX
        return found, -1 if last == ENTRY_ID_MAX else last + 1

    def move(self, log_id: int, entries: Sequence[tuple[int, int, int]], *, last: bool = False) -> int:
        """Point the rows of entries (ledger id, entry id, new location) there, if they still point into log `log_id`.

        Return how many did. Not synced, and not at the same time as `put` or `delete_ledgers`: a row that was deleted
        or written anew in the meantime stays as it is. The copies must be durable, and noted in `log_ledgers`.

        `last`: of several copies in one log, which come in the order of their locations, the last one counts.
        """
        prefix = log_id.to_bytes(4, "big")
        get, pack_key, batch = self._rows.get, _KEY.pack, self._rows.batch()
        moved = 0
        for ledger_id, entry_id, location in entries:
            key = pack_key(ledger_id, entry_id)
            value = get(key)
            if value is None:
                continue
            row = _LOCATION.pack(location)
            if value.startswith(prefix) or (last and value.startswith(row[:4]) and value < row):
                batch.put(key, row)
                moved += 1
        if moved:
            self._rows.write(batch, sync=False)
        return moved

    def sync(self) -> None:
        """Make everything that was written durable."""
        self._rows.write(self._rows.batch(), sync=True)

    def delete_ledgers(self, ledgers: Sequence[int]) -> None:
        """Delete all rows of these ledgers; durable on return."""
        batch = self._rows.batch()
        for first, last in id_ranges(ledgers):
            batch.delete_range(_KEY.pack(first, 0), _past(last))
        self._rows.write(batch, sync=True)

    def compact(self) -> None:
        """Reclaim the space of deleted ledgers."""
        self._rows.compact()

    def close(self) -> None:
        self._rows.close()


def _rows_wanted(found: list[int], bounds: Sequence[tuple[int, int]]) -> int:
    """Return how many rows to scan next; 0 if what is found reaches each bound (entries, bytes)."""
    span = found[-1] - found[0] if found else 0
    if span < 0:
        return 0
    wanted = 0
    for count_max, span_max in bounds:
        missing = count_max - len(found)
        if span <= span_max and missing > 0:
            if found:  # the rest of the bytes tells how many more entries fit, if they are as long as these
                missing = min(missing, (span_max - span) * len(found) // max(span, 1) + 2)
            wanted = max(wanted, missing)
    return min(_SCAN_ROWS, wanted)


def _past(ledger_id: int) -> bytes:
    """Return a key above every key of the ledger and not above those of the next one."""
    return _KEY.pack(ledger_id, ENTRY_ID_MAX) + b"\0"


def _unpack_locations(values: bytes) -> tuple[int, ...]:
    return unpack(f"!{len(values) // 8}q", values)


def _count_consecutive(rows: Sequence[tuple[bytes, bytes]], expected: int) -> int:
    for index, (key, _) in enumerate(rows):
        if int.from_bytes(key[8:], "big") != expected + index:
            return index
    return len(rows)
