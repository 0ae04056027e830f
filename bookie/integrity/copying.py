"""Copies from other bookies, put into a bookie's own storage."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from bookie.bookie import Bookie
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import WriteCacheFullError
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run


class Copier:
    """Writer of copies into the write cache, at the rate of quireDataIntegrityRateMb. Calls may overlap."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self._rate = bookie.config.integrity_rate_mb << 20
        self._free_at = 0.0
        """Time at which the rate allows more."""

    async def store(
        self, ledger_id: int, entries: Mapping[int, memoryview], target: DbLedgerStorage | None = None
    ) -> int:
        """Put verified entries into the write cache, over older copies of them; return their bytes.

        `target`: storage of the directory that has them; None: of the ledger's own. They are durable after the next
        checkpoint. OSError, BookieError.
        """
        storage = self._bookie.storage
        size = 0
        for run in runs_of(ledger_id, entries):
            while True:
                if storage.master_key(ledger_id) is None or ledger_id in storage.held_ledgers:
                    return size  # deleted in the meantime
                try:
                    (target or storage).add(run)
                    break
                except WriteCacheFullError:
                    await self._bookie.checkpoint()
            size += run.size
        await self._keep_to_rate(size)
        return size

    async def _keep_to_rate(self, size: int) -> None:
        if self._rate <= 0:
            await trio.lowlevel.checkpoint()
            return
        now = trio.current_time()
        start = max(self._free_at, now - 1.0)
        self._free_at = start + size / self._rate
        await trio.sleep_until(max(now, start))


def runs_of(ledger_id: int, entries: Mapping[int, Buffer]) -> list[Run]:
    """Return runs of consecutive entries, in order.

    >>> [(run.first, run.count) for run in runs_of(7, {5: b"c", 1: b"a", 2: b"b"})]
    [(1, 2), (5, 1)]
    """
    runs: list[list[tuple[int, Buffer]]] = []
    for entry_id in sorted(entries):
        if not runs or runs[-1][-1][0] + 1 != entry_id:
            runs.append([])
        runs[-1].append((entry_id, bytes(entries[entry_id])))
    return [Run.of(ledger_id, run) for run in runs]
