"""Upkeep of a storage: removal of ledgers, usage of entry logs, removal of logs. garbage_collector.py decides."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import trio

from bookie.db_ledger_storage.local_ledgers import LocalLedgers
from bookie.db_ledger_storage.location_index import ROWS_PER_STEP
from bookie.db_ledger_storage.log_contents import LogMetadata
from bookie.db_ledger_storage.log_map import LogUsage
from bookie.db_ledger_storage.parts import BETWEEN_STEPS_S, StorageParts, change_maps
from quire.service.log import get_logger

log = get_logger(__name__)

_DELETED_TOGETHER: Final = 1000
"""Ledgers deleted before the next flush may begin."""


class Upkeep:
    """Removes ledgers and entry logs of one open storage."""

    def __init__(self, parts: StorageParts) -> None:
        self._parts = parts
        self._offload = parts.world.offload
        self.ledgers = LocalLedgers(parts)
        self.on_forgotten: Callable[[Sequence[int]], None] | None = None

    # -------------------------------------------------------------------------------------------------- ledgers

    async def delete_ledgers(
        self, ledgers: list[int], are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None
    ) -> list[int]:
        """Forget ledgers and their entries, of those that `are_gone` confirms, if given, and that nothing touches from
        now on; return them.

        OSError: a part of them may be forgotten; the next flush or round continues. StorageFailedError.
        """
        deleted: list[int] = []
        with self._parts.removal.watch(ledgers) as untouched:
            if are_gone is not None:
                ledgers = await are_gone(ledgers)
            for start in range(0, len(ledgers), _DELETED_TOGETHER):
                portion = ledgers[start : start + _DELETED_TOGETHER]
                async with self._parts.flushing:  # a running flush would write rows of the ledger after this
                    deleted += await self._delete_portion(portion, untouched)
        return deleted

    async def _delete_portion(self, ledgers: list[int], untouched: Collection[int]) -> list[int]:
        parts = self._parts
        # Save the fences first: they must outlive the rows.
        fenced = [ledger_id for ledger_id in ledgers if parts.ledgers.is_fenced(ledger_id)]
        if fenced:
            cached = {ledger_id for ledger_id in fenced if parts.cache.last_entry_id(ledger_id) >= 0}
            await self._offload.run(partial(self._remember_fences, fenced, cached), name="forgotten fences")
        gone = [ledger_id for ledger_id in ledgers if ledger_id in untouched]
        parts.removal.forgotten(gone)  # before they are forgotten: see `lives`
        for ledger_id in gone:
            parts.cache.drop_ledger(ledger_id)
            parts.read_cache.drop_ledger(ledger_id)
            parts.ledgers.forget(ledger_id)
            self.ledgers.forgotten(ledger_id)
        if self.on_forgotten is not None:
            self.on_forgotten(gone)
        await self.delete_rows()
        return gone

    def _remember_fences(self, fenced: list[int], cached: Collection[int]) -> None:
        parts = self._parts
        written = {each for each in fenced if each in cached or parts.locations.last_entry_id(each) >= 0}
        parts.forgotten_fences.add(fenced, written)
        parts.forgotten_fences.save()

    async def delete_rows(self) -> None:
        """Delete the rows of forgotten ledgers. Not concurrently with a flush."""
        parts = self._parts
        ledgers = parts.removal.rows_left

        def delete() -> None:
            # Entries first: a ledger without facts but with rows would look unknown.
            parts.locations.delete_ledgers(ledgers)
            parts.ledgers.delete_rows(ledgers)

        await change_maps(self._offload, delete, "delete ledgers")
        parts.removal.rows_deleted(ledgers)
        parts.log_map.epoch += 1

    def local_ledgers(self) -> AsyncGenerator[list[int], None]:
        """Yield every ledger with any data here, some at a time, all ascending: known, with entries in the write cache,
        or with rows left by an earlier process.
        """
        return self.ledgers.ranges()

    # ----------------------------------------------------------------------------------------------------- logs

    async def inactive_logs(self) -> list[int]:
        """Return entry logs that are no longer written and whose entries are all in the index."""
        async with self._parts.flushing:
            return self._parts.logs.inactive_ids()

    async def log_usage(self, log_id: int) -> LogUsage:
        """Return how much of an inactive log is needed. StorageDamagedError, OSError."""
        usage = self._parts.log_map.usage(log_id)
        if usage is None:
            await self.log_metadata(log_id)
            usage = next(each for each in self._parts.log_map.usages() if each.log_id == log_id)
        return usage

    async def log_metadata(self, log_id: int) -> LogMetadata:
        """Return which living ledgers an inactive log holds. StorageDamagedError, OSError."""
        with closing(self._parts.log_map.read(log_id, self.ledgers)) as steps:
            while True:
                found = await self._offload.run(steps.__next__, name="entry log metadata")
                if found is not None:
                    return found
                await trio.sleep(BETWEEN_STEPS_S)

    async def logs_in_use(self, logs: Collection[int]) -> set[int]:
        """Return those of `logs` to which a row of the location index points. Examines all rows, in steps.

        Only for logs whose ledgers are not proven, which older versions and the original wrote.
        """
        used: set[int] = set()
        asked = set(logs)
        start: bytes | None = b""
        while start is not None and asked:
            look = partial(self._parts.locations.logs_in_use_from, frozenset(asked), start, ROWS_PER_STEP)
            found, start = await self._offload.run(look, name="logs in use")
            self._parts.stats.garbage_steps += 1
            asked -= found
            used |= found
            await trio.sleep(BETWEEN_STEPS_S)
        return used

    async def delete_log(self, log_id: int) -> int:
        """Delete an inactive log; return the bytes freed."""
        parts = self._parts

        def delete() -> int:
            freed = parts.logs.delete(log_id)
            parts.log_map.forget(log_id)
            parts.locations.log_ledgers.drop([log_id])
            return freed

        return await self._offload.run(delete, name="delete entry log")
