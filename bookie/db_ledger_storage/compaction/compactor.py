"""Compaction of one storage: copies what chosen logs still hold into logs of its own, and deletes them.

Each step leaves every entry readable, from its old or its new place:

    1. copies are written to a log that flushes do not write, and synced     rows point to the old log
    2. the ledgers of the copies are noted (log_ledgers.py)
    3. rows that still point into the old log are pointed to the copies, some at a time, and the index is synced
    4. if no row of any of its ledgers points into the old log, it is deleted

useTransactionalCompaction: the copies of one log have a log of their own, and no row is changed before all are durable
(whole.py).

Rows are changed while no flush and no deletion changes them, so what was written anew or deleted meanwhile stays as it
is. A crash loses a suffix of the changes of step 3 at most: the old log is still there. What a crash leaves of a copy
has notes and no rows; it is compacted away next time.

Unlike BookKeeper's EntryLogCompactor, which copies each entry of a living ledger and overwrites its row whatever that
says.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Final

import trio

from bookie.db_ledger_storage.compaction.choice import chosen
from bookie.db_ledger_storage.compaction.copying import EntryDamage, held_entries
from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionOptions, CompactionResult
from bookie.db_ledger_storage.compaction.throttle import CopyThrottle
from bookie.db_ledger_storage.compaction.whole import MOVED_TOGETHER, STILL_NEEDED, WholeCopies, look_emptied
from bookie.db_ledger_storage.compaction.whole_files import WholeFiles
from bookie.db_ledger_storage.entry_log_format import SIZE_LENGTH
from bookie.db_ledger_storage.log_contents import LogMetadata
from bookie.db_ledger_storage.log_map import LogUsage
from bookie.db_ledger_storage.log_writing.log_writer import OpenLog
from bookie.db_ledger_storage.parts import BETWEEN_STEPS_S, StorageParts, change_maps
from bookie.db_ledger_storage.upkeep import Upkeep
from bookie.errors import BookieError, StorageFailedError
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run

log = get_logger(__name__)

_COPIED_BYTES_MAX: Final = 32 << 20
"""Bytes copied before their rows are changed."""
_DAMAGED_LOGS_MAX: Final = 1000
_ROOM_MIN: Final = 256 << 10
"""Bytes that must be free besides those of the copies, for rows and notes..."""
_ROOM_PART: Final = 8
"""...and this part of the copies, if it is more."""
_PROGRESS_EVERY_S: Final = 60.0
DAMAGED: Final = "it holds entries that cannot be read"


class CompactionStopped(Exception):
    """The time of this compaction is over, or it was suspended."""


class LogCompactor:
    """Compacts the logs of one storage. One compaction runs at a time."""

    def __init__(
        self, parts: StorageParts, upkeep: Upkeep, options: CompactionOptions, whole_files: WholeFiles
    ) -> None:
        self._parts = parts
        self._upkeep = upkeep
        self._offload = parts.world.offload
        self.options = options
        self._throttle = CopyThrottle(options.rate)
        self._writer = parts.logs.writer(parts.logs.create, self._synced, sync_every=options.sync_every)
        self._copied: list[tuple[Run, int]] = []
        """Runs in the writer's log whose rows are not changed yet, with the location of their first size field."""
        self._copied_entries = 0
        self._copied_bytes = 0
        self._damaged: dict[int, None] = {}
        """Logs with entries that cannot be read. They are left alone until they are healed or the next start."""
        self._whole = WholeCopies(parts, upkeep, whole_files)

    def _synced(self, written: OpenLog, end: int) -> None:
        written.file.forget(0, end)  # copies of old entries must not push out pages of new ones

    async def compact(
        self, kind: CompactionKind, threshold: float, max_s: float, goes_on: Callable[[], bool] = lambda: True
    ) -> CompactionResult:
        """Compact the logs of which less than `threshold` is needed, for at most `max_s` seconds (0: no bound).

        `goes_on` is asked often; False ends the compaction. StorageFailedError.
        """
        done = CompactionResult(kind=kind)
        logs = chosen(self._known_usages(await self._upkeep.inactive_logs()), threshold, self.options.target_size)
        done.chosen = len(logs)
        end = trio.current_time() + max_s if max_s > 0 else float("inf")
        told_at = trio.current_time()

        def check() -> None:
            if not goes_on() or trio.current_time() >= end:
                raise CompactionStopped

        try:
            for index, usage in enumerate(logs):
                check()
                if trio.current_time() - told_at >= _PROGRESS_EVERY_S:
                    told_at = trio.current_time()
                    log.info("compaction goes on", kind=kind.value, done=index, of=len(logs))
                await self._compact_log(usage, done, check)
        except CompactionStopped:
            for usage in logs:
                if usage.log_id not in done.logs:
                    done.stayed.setdefault(usage.log_id, "the time of the compaction was over, or it was suspended")
        return done

    def _known_usages(self, logs: list[int]) -> Iterator[LogUsage]:
        for log_id in logs:
            usage = self._parts.log_map.usage(log_id)
            if usage is not None:
                yield usage

    async def _compact_log(self, usage: LogUsage, done: CompactionResult, check: Callable[[], None]) -> None:
        log_id = usage.log_id
        name = f"{log_id:x}"
        if log_id in self._damaged:
            done.stayed[log_id] = DAMAGED
            return
        try:
            needed = usage.remaining + max(_ROOM_MIN, usage.remaining // _ROOM_PART)
            free = await self._offload.run(self._free, name="compaction room")
            if free < needed:
                raise OSError(errno.ENOSPC, f"no room for its copies: {free} bytes are free, {needed} are needed")
            reason, freed = await self._empty(log_id, done, check)
        except StorageFailedError:
            raise
        except (OSError, BookieError) as error:
            self._drop_copies()
            done.stayed[log_id] = str(error)
            log.warning("entry log cannot be compacted, it stays", entry_log=name, reason=str(error))
            return
        except BaseException:
            self._drop_copies()
            raise
        if reason:
            done.stayed[log_id] = reason
            log.warning("entry log stays after compaction", entry_log=name, reason=reason)
            return
        done.logs.append(log_id)
        done.reclaimed_bytes += max(0, freed - usage.remaining)
        log.info("entry log compacted", entry_log=name, kind=done.kind.value, usage=round(usage.share, 3), bytes=freed)

    async def _empty(self, log_id: int, done: CompactionResult, check: Callable[[], None]) -> tuple[str, int]:
        """Move what rows point to in the log, and delete it; return why it stays, "" if it does not, and the bytes
        freed.
        """
        metadata = await self._upkeep.log_metadata(log_id)
        if self.options.whole:
            return await self._empty_whole(metadata, done, check)

        async def copy(run: Run) -> None:
            await self._copy(run, done)
            if self._copied_entries >= self.options.outstanding_max or self._copied_bytes >= _COPIED_BYTES_MAX:
                await self._move_rows(log_id)

        try:
            damages = await self._read(metadata, copy, check)
        except CompactionStopped:
            await self._move_rows(log_id)
            raise
        await self._move_rows(log_id)
        if damages:
            return f"{DAMAGED}: {damages}", 0
        if not await look_emptied(self._parts, self._upkeep, metadata, check):
            return STILL_NEEDED, 0
        return "", await self._upkeep.delete_log(log_id)

    async def _empty_whole(
        self, metadata: LogMetadata, done: CompactionResult, check: Callable[[], None]
    ) -> tuple[str, int]:
        whole = self._whole
        await whole.begin()

        async def copy(run: Run) -> None:
            await self._throttled(run)
            await whole.write(run)
            self._count(run, done)

        try:
            damages = await self._read(metadata, copy, check)
            if damages:
                await whole.discard()
                return f"{DAMAGED}: {damages}", 0
            new = await whole.publish(metadata.log_id)
        except (OSError, BookieError, CompactionStopped):
            with suppress(OSError):
                await whole.discard()
            raise
        if new >= 0:
            return await whole.finish(new, check)
        if not await look_emptied(self._parts, self._upkeep, metadata, check):
            return STILL_NEEDED, 0
        return "", await self._upkeep.delete_log(metadata.log_id)

    async def _read(
        self, metadata: LogMetadata, copy: Callable[[Run], Awaitable[None]], check: Callable[[], None]
    ) -> int:
        """Read what rows point to in a log; return the number of damaged entries."""
        parts, log_id = self._parts, metadata.log_id
        damages = 0
        with closing(held_entries(parts.logs, parts.locations, log_id, sorted(metadata.ledgers))) as steps:
            while (step := await self._offload.run(partial(next, steps, None), name="compaction read")) is not None:
                check()
                if step.damage is not None:
                    damages += 1
                    self._report(log_id, step.damage, damages)
                elif step.run is not None:
                    await copy(step.run)
                else:
                    await trio.sleep(BETWEEN_STEPS_S)
        if damages:
            self._leave_alone(log_id)
        return damages

    def _report(self, log_id: int, damage: EntryDamage, count: int) -> None:
        if count == 1:
            log.error(
                "an entry is damaged, its log stays; copy the ledger from other bookies",
                entry_log=f"{log_id:x}",
                ledger=damage.ledger_id,
                entry=damage.entry_id,
                reason=damage.reason,
            )

    def _leave_alone(self, log_id: int) -> None:
        if len(self._damaged) >= _DAMAGED_LOGS_MAX:
            del self._damaged[next(iter(self._damaged))]
        self._damaged[log_id] = None

    def healed(self, log_id: int) -> None:
        """Damaged entries of the log are good elsewhere: the next compaction tries it again."""
        self._damaged.pop(log_id, None)

    async def _throttled(self, run: Run) -> None:
        await trio.sleep(self._throttle.delay(trio.current_time(), run.size if self.options.by_bytes else run.count))

    def _count(self, run: Run, done: CompactionResult) -> None:
        done.entries += run.count
        done.copied_bytes += run.size

    async def _copy(self, run: Run, done: CompactionResult) -> None:
        await self._throttled(run)
        writer = self._writer
        if not writer.has_room(run.size):
            async with self._parts.flushing:  # only one may create logs
                await self._offload.run(self._begin_log, name="compaction log")
        self._copied += await self._offload.run(partial(writer.write, [run]), name="compaction write")
        self._copied_entries += run.count
        self._copied_bytes += run.size
        self._count(run, done)

    def _begin_log(self) -> None:
        self._writer.sync()  # before `end`, which never fails: it may drop what is not synced
        self._writer.end()
        self._writer.begin()

    async def _move_rows(self, log_id: int) -> None:
        """Point the rows of what was copied from the log to the copies; durable on return."""
        copied, self._copied = self._copied, []
        self._copied_entries = self._copied_bytes = 0
        if not copied:
            return
        parts = self._parts
        await self._offload.run(self._writer.sync, name="compaction sync")
        ledgers: dict[int, dict[int, int]] = {}
        for run, base in copied:
            sizes = ledgers.setdefault(base >> 32, {})
            sizes[run.ledger_id] = sizes.get(run.ledger_id, 0) + run.size
        async with parts.flushing:
            await change_maps(self._offload, partial(parts.locations.log_ledgers.add, ledgers), "compaction notes")
        for entries in _portions(copied):
            async with parts.flushing:
                await change_maps(self._offload, partial(parts.locations.move, log_id, entries), "compaction rows")
            await trio.lowlevel.checkpoint()
        await change_maps(self._offload, parts.locations.sync, "compaction index")

    def _free(self) -> int:
        return self._parts.world.disk.free_bytes(self._parts.folder)

    def _drop_copies(self) -> None:
        """Forget copies whose rows are not changed: they are waste in the writer's log."""
        self._copied = []
        self._copied_entries = self._copied_bytes = 0

    async def finish_pending(self) -> None:
        """Finish compactions that count and that a crash, a stop or a failure broke off. StorageFailedError."""
        await self._whole.finish_pending(lambda: None)

    async def end_log(self) -> None:
        """End the log of copies, so that it can be compacted or deleted. Not during a compaction."""
        await self._offload.run(self._writer.end, name="compaction log end")


def _portions(copied: list[tuple[Run, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield (ledger id, entry id, location) of all entries, in portions."""
    portion: list[tuple[int, int, int]] = []
    for run, base in copied:
        for entry_id, offset in enumerate(run.offsets, run.first):
            portion.append((run.ledger_id, entry_id, base + SIZE_LENGTH + offset))
            if len(portion) >= MOVED_TOGETHER:
                yield portion
                portion = []
    if portion:
        yield portion
