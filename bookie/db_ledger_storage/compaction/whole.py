"""Copies of one log that count only when all of them are durable (useTransactionalCompaction).

    1. copies are written to <new>.log.compacting, which is sealed           rows point to the old log
    2. it gets the names <new>.log.<old>.compacted and <new>.log             it counts from the first name on
    3. its ledgers are noted, and rows that point into the old log are pointed to it; the index is synced
    4. if no row points into the old log, it is deleted
    5. the first name is removed

A crash before 2 leaves waste, which a start deletes. After it, steps 3 to 5 are done again, by the next round of
garbage collection: they read all they need from the new log, so they also finish what the original left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Final

import trio

from bookie.db_ledger_storage.compaction.copying import is_emptied
from bookie.db_ledger_storage.compaction.whole_files import WholeFiles
from bookie.db_ledger_storage.entry_log_format import Scan
from bookie.db_ledger_storage.location_index import ENTRY_ID_MAX
from bookie.db_ledger_storage.log_contents import LogMetadata
from bookie.db_ledger_storage.parts import BETWEEN_STEPS_S, StorageParts, change_maps
from bookie.db_ledger_storage.upkeep import Upkeep
from bookie.errors import BookieError, StorageFailedError
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run

log = get_logger(__name__)

MOVED_TOGETHER: Final = 500
"""Rows changed before the next flush may begin; about a millisecond."""
STILL_NEEDED: Final = "rows of the location index still point into it"


async def look_emptied(parts: StorageParts, upkeep: Upkeep, metadata: LogMetadata, check: Callable[[], None]) -> bool:
    """Return whether no row points into a log that is no longer written."""
    offload = parts.world.offload
    with closing(is_emptied(parts.locations, metadata.log_id, sorted(metadata.ledgers))) as looks:
        while (emptied := await offload.run(looks.__next__, name="compaction check")) is None:
            check()
            await trio.sleep(BETWEEN_STEPS_S)
    if emptied and not metadata.proven:
        # Nothing vouches for its list of ledgers: look through all rows.
        emptied = not await upkeep.logs_in_use([metadata.log_id])
    return emptied


class WholeCopies:
    """Writes copies of one log after another, and finishes what a crash or a stop left."""

    def __init__(self, parts: StorageParts, upkeep: Upkeep, files: WholeFiles) -> None:
        self._parts = parts
        self._upkeep = upkeep
        self._files = files
        self._offload = parts.world.offload
        self._has_waste = False

    async def begin(self) -> None:
        """Prepare for the copies of a log."""
        if self._has_waste:
            await self.discard()
        self._has_waste = True

    async def write(self, run: Run) -> None:
        """Write a copy. OSError: all copies of the log are lost; `discard` them."""
        writer = self._files.writer
        if writer.log is None:
            async with self._parts.flushing:  # only one may create logs
                await self._offload.run(writer.begin, name="compaction log")
        await self._offload.run(partial(writer.write, [run]), name="compaction write")

    async def discard(self) -> None:
        """Delete the copies written since `begin`."""
        await self._offload.run(self._files.discard, name="compaction discard")
        self._has_waste = False

    async def publish(self, log_id: int) -> int:
        """Let the copies of a log count; return the id of their log, -1 if there are none. OSError: `discard` them."""
        if self._files.writer.log is None:
            return -1
        new = await self._offload.run(partial(self._files.publish, log_id), name="compaction publish")
        self._has_waste = False
        return new

    async def finish(self, new: int, check: Callable[[], None]) -> tuple[str, int]:
        """Write the rows of a published log, and delete the one it was copied from.

        Return why that stays, "" if it does not, and the bytes freed. What `check` raises, and OSError, leave the rest
        to the next call.
        """
        parts, old = self._parts, self._files.pending[new]
        await self._offload.run(partial(self._files.give_name, new), name="compaction name")
        noted = parts.locations.log_ledgers
        metadata = await self._read_metadata(new)

        def note() -> None:
            noted.resume(new)
            noted.add({new: metadata.ledgers})

        async with parts.flushing:
            await change_maps(self._offload, note, "compaction notes")
        with closing(self._portions(new)) as portions:
            while portion := await self._offload.run(partial(next, portions, None), name="compaction read"):
                check()
                async with parts.flushing:
                    move = partial(parts.locations.move, old, portion, last=True)
                    await change_maps(self._offload, move, "compaction rows")
                await trio.lowlevel.checkpoint()
        await change_maps(self._offload, parts.locations.sync, "compaction index")
        reason, freed = "", 0
        if old in parts.logs.ids():
            if await look_emptied(parts, self._upkeep, await self._upkeep.log_metadata(old), check):
                freed = await self._upkeep.delete_log(old)
            else:
                reason = STILL_NEEDED
        await self._offload.run(partial(self._files.finish, new), name="compaction finish")
        return reason, freed

    async def _read_metadata(self, log_id: int) -> LogMetadata:
        with closing(self._parts.logs.contents.read(log_id)) as steps:
            while True:
                found = await self._offload.run(steps.__next__, name="entry log metadata")
                if found is not None:
                    return found
                await trio.sleep(BETWEEN_STEPS_S)

    def _portions(self, log_id: int) -> Generator[list[tuple[int, int, int]], None, None]:
        """Yield (ledger id, entry id, location) of all entries of a log, in portions."""
        with self._parts.logs.readers.reading(log_id) as file:
            scan = iter(Scan(file.pread, file.size()))
            while entries := list(islice(scan, MOVED_TOGETHER)):
                yield [
                    (each.ledger_id, each.entry_id, each.location(log_id))
                    for each in entries
                    if 0 <= each.entry_id <= ENTRY_ID_MAX
                ]

    async def finish_pending(self, check: Callable[[], None]) -> None:
        """Finish what an earlier process, a stop or a failure left. StorageFailedError."""
        for new, old in list(self._files.pending.items()):
            names = {"entry_log": f"{new:x}", "copied_from": f"{old:x}"}
            try:
                reason, _ = await self.finish(new, check)
            except StorageFailedError:
                raise
            except (OSError, BookieError) as error:
                log.warning(
                    "rows of a compacted entry log are not all written, trying again", **names, reason=str(error)
                )
                continue
            log.info("compacted entry log finished", **names, stays=reason)
