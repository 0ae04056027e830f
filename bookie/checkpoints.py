"""Checkpoints of a bookie: what the journal has becomes durable in the storage, lastMark says so, and the journal is
cut.

    mark taken -> storage flushed -> the seal and lastMark written -> journal files before it deleted

One is made every flush interval, and when the write cache is half full. lastMark never names a place that the flush
before it did not cover.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from bookie.config import BookieConfig
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.disks.watch import DiskWatch
from bookie.errors import JournalFailedError, StorageFailedError
from bookie.journal.format import NO_MARK, LogMark, encode_last_mark
from bookie.journal.seal import JournalSeal
from bookie.journal.writer import Journal
from bookie.recovery import NO_ROOM, last_mark_path
from bookie.stats import BookieStats
from quire.service.background import JobFailures, job_backoff
from quire.service.log import get_logger
from quire.world.doors import NotSyncedError, World

log = get_logger(__name__)

RETRY_S: Final = 1.0
"""Seconds from a checkpoint that failed to the next try."""
LOGGED_EVERY_S: Final = 60.0
"""Seconds between two log lines about consecutive failed checkpoints."""


class Checkpoints:
    """Makes the checkpoints of one bookie.

    `on_released`: called when ledgers that were removed may be written again. `on_failed`: called when the storage can
    no longer be trusted; every time."""

    def __init__(
        self,
        world: World,
        config: BookieConfig,
        journal: Journal,
        storage: DbLedgerStorage,
        disks: DiskWatch,
        stats: BookieStats,
        job_failures: JobFailures,
        *,
        on_released: Callable[[], None],
        on_failed: Callable[[StorageFailedError], None],
    ) -> None:
        self._world = world
        self._config = config
        self._journal = journal
        self._storage = storage
        self._disks = disks
        self._stats = stats
        self._job_failures = job_failures
        self._on_released = on_released
        self._on_failed = on_failed
        self._making = trio.Lock()
        self._wanted = trio.Event()
        self._stop_wanted = trio.Event()
        self._journal_closed = False
        self._ended = trio.Event()
        self.seal: JournalSeal | None = None
        """The sealed copy of the mark. From the start on."""
        self.last_mark = NO_MARK
        """The position in the file lastMark."""

    def request(self) -> None:
        """Begin a checkpoint soon."""
        self._wanted.set()

    async def make(self) -> None:
        """Everything acknowledged until now is in the storage for good, and lastMark says so. OSError,
        StorageFailedError: lastMark stands where it stood."""
        try:
            await self._make()
        except StorageFailedError as error:
            self._on_failed(error)
            raise
        self._disks.flushed()

    async def _make(self) -> None:
        async with self._making:
            removed = self._storage.removed_ledgers()
            # The mark must pass every record of a removed ledger, including records not yet on disk.
            await self._force(drain=bool(removed))
            mark = self._journal.mark()
            await self._storage.flush()
            self._stats.checkpoints += 1
            moved = mark > self.last_mark
            if moved:
                await self.write_last_mark(mark)
            if removed:
                self._storage.release_ledgers(removed)
                self._on_released()
            if moved:
                await self._journal.checkpoint_complete(mark)

    async def _force(self, *, drain: bool = False) -> None:
        """Sync what was written without a sync; the mark waits for it.

        With `drain`, also wait until everything appended so far is on disk.
        """
        if (drain or self._journal.has_unsynced) and not self._journal_closed:
            synced = trio.Event()
            try:
                self._journal.force(-1, lambda _: synced.set())
            except JournalFailedError:
                return
            await synced.wait()

    async def write_last_mark(self, mark: LogMark) -> None:
        await self._world.offload.run(partial(self._write_mark_files, mark), name="last mark")
        self.last_mark = mark

    async def mark_replayed(self, mark: LogMark) -> str:
        """Write lastMark after a replay whose records are in the storage.

        Return why it cannot be written: there is no room. Then the older mark stays, and the next start replays these
        records again, which does no harm. Return "" otherwise.
        """
        try:
            await self.write_last_mark(mark)
        except OSError as error:
            if error.errno not in NO_ROOM or isinstance(error, NotSyncedError):
                raise
            return str(error)
        return ""

    def _write_mark_files(self, mark: LogMark) -> None:
        # Write the sealed copy first: startup uses it, and lastMark must never be ahead of it.
        assert self.seal is not None
        self.seal.write_mark(mark)
        self._world.disk.write_atomic(last_mark_path(self._config), encode_last_mark(mark))

    async def run(self) -> None:
        """Make checkpoints until `stop`."""
        try:
            await self._make_often()
        finally:
            self._ended.set()

    async def _make_often(self) -> None:
        backoff = job_backoff(self._world.rng)
        log_again = 0.0
        while not self._stop_wanted.is_set():
            with trio.move_on_after(self._config.flush_interval_ms / 1000):
                await self._wanted.wait()
            self._wanted = trio.Event()
            if self._stop_wanted.is_set():
                return
            try:
                await self.make()
            except StorageFailedError:
                return
            except OSError as error:
                if trio.current_time() >= log_again:
                    log.error("checkpoint failed, retrying", reason=str(error))
                    log_again = trio.current_time() + LOGGED_EVERY_S
                no_room = error.errno in NO_ROOM
                self._disks.flush_failed(f"a checkpoint failed: {error}", no_room=no_room)
                await trio.sleep(RETRY_S)
                self.request()
            except Exception:
                self._job_failures.add("checkpoint")
                self._disks.flush_failed("a checkpoint failed; see the log", no_room=False)
                with trio.move_on_after(backoff.next()):
                    await self._stop_wanted.wait()
            else:
                backoff.reset()
                log_again = 0.0

    def stop(self) -> None:
        """Begin no further checkpoint in `run`."""
        self._wanted.set()
        self._stop_wanted.set()

    async def ended(self) -> None:
        """Wait until `run` has returned."""
        await self._ended.wait()

    async def close_journal(self) -> None:
        """Sync and close the journal, behind which one last `make` may follow."""
        await self._force()
        self._journal_closed = True
        await self._journal.aclose()

    def close(self) -> None:
        if self.seal is not None:
            self.seal.close()
