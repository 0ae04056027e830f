"""Where each entry lies: (ledger id, entry id) to location, in the ordered map `current/locations`. Blocking.

    key    int64 ledger id, int64 entry id      big-endian, so that the order of the bytes is that of the numbers
    value  int64 location                       see entry_log_format.py

Source: BookKeeper's EntryLocationIndex.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct, unpack
from typing import Final

from bookie.db_ledger_storage.entry_log_format import SIZE_LENGTH
from bookie.errors import StorageDamagedError
from bookie.run import Run
from quire.world.doors import KeyValue

ROWS_PER_BATCH: Final = 1000
"""A batch holds the interpreter while it is applied, 0.15 us a row. One that begins with a longer run is as long as that."""
ENTRY_ID_MAX: Final = (1 << 63) - 1
_KEY: Final = Struct("!qq")
_LOCATION: Final = Struct("!q")
_SCAN_ROWS: Final = 128


class LocationIndex:
    """Rows of one bookie directory."""

    def __init__(self, rows: KeyValue) -> None:
        self._rows = rows

    def put(self, placed: Sequence[tuple[Run, int]]) -> None:
        """Note where entries lie, durably on return. Each run comes with the location of its first size field.

        The entries must be durable before: after a crash, a part of the rows may be there.
        """
        rows = self._rows
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

    def locations(self, ledger_id: int, first: int, stop: int, count_max: int, span_max: int) -> list[int]:
        """Locations of entries `first`, `first + 1`, ... as far as they follow each other without a hole.

        Ends before `stop`, after `count_max`, and soon after a location more than `span_max` bytes from the first one.
        Empty if `first` has no row.
        """
        found: list[int] = []
        scan = self._rows.scan(_KEY.pack(ledger_id, first), _KEY.pack(ledger_id, min(stop, ENTRY_ID_MAX)))
        while len(found) < count_max:
            wanted = min(_SCAN_ROWS, count_max - len(found))
            rows = list(islice(scan, wanted))
            if not rows:
                break
            values = b"".join([value for _, value in rows])
            if len(values) != 8 * len(rows):
                raise StorageDamagedError(f"ledger {ledger_id}: a row of the location index is not 8 bytes long")
            expected = first + len(found)
            if int.from_bytes(rows[-1][0][8:], "big") != expected + len(rows) - 1:
                # Sorted and distinct: a hole shows in the last key.
                together = _count_consecutive(rows, expected)
                found.extend(_unpack_locations(values[: 8 * together]))
                break
            found.extend(_unpack_locations(values))
            if len(rows) < wanted or not 0 <= found[-1] - found[0] <= span_max:
                break
        return found

    def get(self, ledger_id: int, entry_id: int) -> int:
        """The location of one entry, 0 if it has none."""
        value = self._rows.get(_KEY.pack(ledger_id, entry_id))
        return 0 if value is None else int.from_bytes(value, "big")

    def last_entry_id(self, ledger_id: int) -> int:
        """The highest entry id of the ledger, -1 if it has no rows."""
        scan = self._rows.scan(_KEY.pack(ledger_id, 0), _KEY.pack(ledger_id, ENTRY_ID_MAX), reverse=True)
        for key, _ in scan:
            return int.from_bytes(key[8:], "big")
        return -1

    def ranges(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """The ledger's entries as (first, last), ascending, as far as they follow each other."""
        first = last = -1
        for key, _ in self._rows.scan(_KEY.pack(ledger_id, 0), _KEY.pack(ledger_id, ENTRY_ID_MAX)):
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
        """Ids of the ledgers that have rows, sorted. One seek for each."""
        found: list[int] = []
        end = _KEY.pack(ENTRY_ID_MAX, ENTRY_ID_MAX)
        start = _KEY.pack(0, 0)
        while (row := next(self._rows.scan(start, end), None)) is not None:
            ledger_id = int.from_bytes(row[0][:8], "big")
            found.append(ledger_id)
            start = _KEY.pack(ledger_id + 1, 0)
        return found

    def logs_in_use(self, logs: Iterable[int]) -> set[int]:
        """Those of `logs` into which a row of any ledger leads. Reads all rows, unless it finds every log before."""
        asked = {log_id.to_bytes(4, "big"): log_id for log_id in logs}
        used: set[int] = set()
        if asked:
            for _, value in self._rows.scan(_KEY.pack(0, 0), _KEY.pack(ENTRY_ID_MAX, ENTRY_ID_MAX)):
                log_id = asked.pop(value[:4], -1)
                if log_id >= 0:
                    used.add(log_id)
                    if not asked:
                        break
        return used

    def delete_ledgers(self, ledgers: Sequence[int]) -> None:
        """Forget all rows of these ledgers, durably on return."""
        batch = self._rows.batch()
        for ledger_id in ledgers:
            batch.delete_range(_KEY.pack(ledger_id, 0), _KEY.pack(ledger_id, ENTRY_ID_MAX))
        self._rows.write(batch, sync=True)

    def compact(self) -> None:
        """Reclaim the space of deleted ledgers."""
        self._rows.compact()

    def close(self) -> None:
        self._rows.close()


def _unpack_locations(values: bytes) -> tuple[int, ...]:
    return unpack(f"!{len(values) // 8}q", values)


def _count_consecutive(rows: Sequence[tuple[bytes, bytes]], expected: int) -> int:
    for index, (key, _) in enumerate(rows):
        if int.from_bytes(key[8:], "big") != expected + index:
            return index
    return len(rows)
