"""Read-ahead cache: runs of entries, bounded in bytes; the least recently used run is evicted first. Pure.

Only the loop changes the cache. Workers hand over the runs they read through `arrived`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from typing import Final

from bookie.db_ledger_storage.write_cache import run_cost
from quire.wire.bookkeeper.run import Run

_ARRIVED_MAX: Final = 16
"""Runs waiting to be taken in; above this the oldest is dropped.

A run is about StorageOptions.read_ahead_bytes long.
"""


class ReadCache:
    """Read-ahead runs by (ledger id, first entry id)."""

    __slots__ = ("_bytes_max", "_firsts", "_lasts", "_runs", "arrived", "size")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._runs: OrderedDict[tuple[int, int], Run] = OrderedDict()
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, int] = {}  # by ledger: an entry id not exceeded by any of its runs
        self.arrived: deque[Run] = deque(maxlen=_ARRIVED_MAX)
        """Runs read by workers; `find` moves them into the cache."""
        self.size = 0
        """Cost of the runs in bytes."""

    def put(self, run: Run) -> None:
        """Insert a run; evict others if there is no room."""
        cost = run_cost(run)
        if cost > self._bytes_max:
            return
        key = (run.ledger_id, run.first)
        old = self._runs.pop(key, None)
        if old is None:
            insort(self._firsts.setdefault(run.ledger_id, []), run.first)
        else:
            self.size -= run_cost(old)
        self._runs[key] = run
        self._lasts[run.ledger_id] = max(run.last, self._lasts.get(run.ledger_id, -1))
        self.size += cost
        while self.size > self._bytes_max:
            self._drop(next(iter(self._runs)))

    def _drop(self, key: tuple[int, int]) -> None:
        self.size -= run_cost(self._runs.pop(key))
        ledger_id, first = key
        firsts = self._firsts[ledger_id]
        del firsts[bisect_right(firsts, first) - 1]
        if not firsts:
            del self._firsts[ledger_id]
            del self._lasts[ledger_id]

    def _take_arrived(self) -> None:
        arrived = self.arrived
        while arrived:
            self.put(arrived.popleft())

    def find(self, ledger_id: int, entry_id: int) -> Run | None:
        """Return a run that holds the entry."""
        if self.arrived:
            self._take_arrived()
        firsts = self._firsts.get(ledger_id)
        if firsts is None:
            return None
        index = bisect_right(firsts, entry_id) - 1
        if index < 0:
            return None
        key = (ledger_id, firsts[index])
        run = self._runs[key]
        if entry_id > run.last:
            return None
        self._runs.move_to_end(key)
        return run

    def forget_overlap(self, run: Run) -> None:
        """Forget cached copies of entries that recovery is writing again."""
        self._take_arrived()
        if run.first <= self._lasts.get(run.ledger_id, -1):
            for first in list(self._firsts[run.ledger_id]):
                if first <= run.last and self._runs[(run.ledger_id, first)].last >= run.first:
                    self._drop((run.ledger_id, first))

    def drop_ledger(self, ledger_id: int) -> None:
        """Forget the ledger's entries."""
        self._take_arrived()
        for first in list(self._firsts.get(ledger_id, ())):
            self._drop((ledger_id, first))
