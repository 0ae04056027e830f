"""Ledgers of each entry log, noted ahead of the rows that point into the log. Blocking.

A log may be deleted when no row of the location index points into it. To look through all rows takes minutes, so each
log has notes of the ledgers whose entries it may hold, in the map of the location index itself:

    key    int64 NOTES + log id, int64 number of the note     negative, so that no ledger's rows are among them
    value  n * (int64 ledger id, int64 bytes)

The first note, an empty one, is durable before the log's file exists. A row that points into a log is written after the
note that has its ledger, to the same map, which keeps the order of its writes over a crash. A log is never written
after a restart. So a log with notes has rows of noted ledgers alone, whatever else is damaged in it: when the rows of
all of them are gone for good, or all point elsewhere, the log may go.

The original reads rows by ledger and does not see these. Its logs have no notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct
from typing import Final

from quire.world.doors import KeyValue

NOTES: Final = -(1 << 40)
_KEY: Final = Struct("!qq")
_PAIR: Final = Struct("!qq")
_LEDGERS_PER_NOTE: Final = 4000
"""Packing a note of so many ledgers takes about half a millisecond."""


class LogLedgers:
    """Notes of the ledgers of each log. `begin` and `add` are not called at the same time."""

    def __init__(self, rows: KeyValue) -> None:
        self._rows = rows
        self._next: dict[int, int] = {}
        """Number of the next note of each log that was begun in this process."""

    def begin(self, log_id: int) -> None:
        """Note that a log is about to be created; durable on return."""
        batch = self._rows.batch()
        batch.delete_range(_key(log_id, 0), _key(log_id + 1, 0))
        batch.put(_key(log_id, 0), b"")
        self._rows.write(batch, sync=True)
        self._next[log_id] = 1

    def add(self, ledgers: Mapping[int, Mapping[int, int]]) -> None:
        """Note for each log the bytes of each ledger that were written to it. Written before the rows that follow.

        Logs that were not begun here have no notes: an incomplete note would be worse than none.
        """
        for log_id, sizes in ledgers.items():
            number = self._next.get(log_id)
            if number is None:
                continue
            pairs = iter(sizes.items())
            while some := list(islice(pairs, _LEDGERS_PER_NOTE)):
                batch = self._rows.batch()
                batch.put(_key(log_id, number), b"".join([_PAIR.pack(*pair) for pair in some]))
                self._rows.write(batch, sync=False)
                number += 1
            self._next[log_id] = number

    def resume(self, log_id: int) -> None:
        """Let `add` add to the notes of a log of an earlier process, if it has any."""
        if log_id not in self._next:
            last = next(self._rows.scan(_key(log_id, 0), _key(log_id + 1, 0), reverse=True), None)
            if last is not None:
                self._next[log_id] = _KEY.unpack(last[0])[1] + 1

    def read(self, log_id: int) -> dict[int, int] | None:
        """Return the noted ledgers of a log and their bytes; None if it has no notes, or if they are damaged."""
        found: dict[int, int] | None = None
        for _, value in self._rows.scan(_key(log_id, 0), _key(log_id + 1, 0)):
            if found is None:
                found = {}
            if len(value) % _PAIR.size:
                return None
            for ledger_id, size in _PAIR.iter_unpack(value):
                found[ledger_id] = found.get(ledger_id, 0) + size
        return found

    def logs(self) -> Iterator[int]:
        """Yield the ids of all logs that have notes, ascending."""
        log_id = 0
        while True:
            row = next(self._rows.scan(_key(log_id, 0), _END), None)
            if row is None:
                return
            log_id = _KEY.unpack(row[0])[0] - NOTES
            yield log_id
            log_id += 1

    def drop(self, logs: Iterable[int]) -> None:
        """Forget logs that are deleted. Not synced: notes of a log that does not exist do no harm."""
        batch = self._rows.batch()
        for log_id in logs:
            batch.delete_range(_key(log_id, 0), _key(log_id + 1, 0))
            self._next.pop(log_id, None)
        self._rows.write(batch, sync=False)


def _key(log_id: int, number: int) -> bytes:
    return _KEY.pack(NOTES + log_id, number)


_END: Final = _KEY.pack(NOTES + (1 << 31), 0)
"""Above every note."""
