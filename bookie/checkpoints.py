"""Checkpoints of a bookie: what the journals have becomes durable in the storages, lastMark says so, and the journals
are cut.

    marks taken -> a directory flushed -> its seals and lastMarks written -> journal files before them deleted

Each directory is flushed every flush interval, and when its write cache is half full. lastMark never names a place that
a flush of every directory has not covered (directories/barrier.py).

With one directory and one journal an error of the disk is an error of the bookie. With several the directory alone
fails (directories/health.py), and no wait for one of them holds up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio

from bookie.config import BookieConfig
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.backlog import JournalBacklog
from bookie.directories.barrier import MarkBarrier, Round
from bookie.directories.detached import LOOK_S, Detached
from bookie.directories.forces import Forces
from bookie.directories.health import STALLED_AFTER_S, DirectoryHealth
from bookie.directories.marks import JournalMarks
from bookie.disks.watch import DiskWatch
from bookie.errors import JournalFailedError, StorageFailedError
from bookie.journal.format import NO_MARK, LogMark
from bookie.journal.writer import Journal
from bookie.recovery import NO_ROOM
from bookie.retries import retrying
from bookie.stats import BookieStats
from quire.service.background import JobFailures
from quire.service.log import get_logger
from quire.world.doors import NotSyncedError, World

log = get_logger(__name__)


class Checkpoints:
    """Makes the checkpoints of one bookie.

    `on_released`: called when removed ledgers may be written again. `on_failed`: called if the only storage has failed.
    """

    def __init__(
        self,
        world: World,
        config: BookieConfig,
        journals: Sequence[Journal],
        storages: Sequence[DbLedgerStorage],
        health: DirectoryHealth,
        disks: DiskWatch,
        stats: BookieStats,
        job_failures: JobFailures,
        *,
        on_released: Callable[[], None],
        on_failed: Callable[[StorageFailedError], None],
    ) -> None:
        self._world = world
        self._config = config
        self._journals = journals
        self._storages = storages
        self._health = health
        self._isolates = len(storages) > 1
        self._detaches = self._isolates or len(journals) > 1
        self._disks = disks
        self._stats = stats
        self._job_failures = job_failures
        self._on_released = on_released
        self._on_failed = on_failed
        self._flushing = [trio.Lock() for _ in storages]
        self._wanted = [trio.Event() for _ in storages]
        self._detached = Detached(health, watches=self._isolates)
        self.forces = Forces(len(storages))
        self._moving = trio.Lock()
        self._move_wanted = trio.Event()
        self._stop_wanted = trio.Event()
        self._journals_closed = False
        self._ended = trio.Event()
        self._trimming: set[int] = set()
        self._removed: dict[tuple[int, int], LogMark] = {}
        """Position that the mark must reach before a removed ledger is released, by directory and ledger."""
        self.marks = [
            JournalMarks(world.disk, config, journal, lambda index: not health.reasons[index])
            for journal in range(len(journals))
        ]
        self.last_marks = [NO_MARK] * len(journals)
        """The positions in the files lastMark, by journal."""
        self._barrier = MarkBarrier(len(storages), self.last_marks)
        patience_s = max(STALLED_AFTER_S, 2 * config.flush_interval_ms / 1000)
        self._backlogs = [
            JournalBacklog(folder, config.journal.file_size_max, patience_s, config.journal_backlog_mb << 20)
            for folder in config.journal_directories
        ]

    # --- start

    async def begin(self, marks: Sequence[LogMark]) -> None:
        """Open the seals. `marks`: where the replay of each journal began. OSError."""
        self.last_marks = list(marks)
        self._barrier = MarkBarrier(len(self._storages), marks)
        for each in self.marks:
            await self._world.offload.run(each.open, name="seal")

    async def mark_replayed(self, journal: int, mark: LogMark) -> str:
        """Write lastMark after a replay whose records are in the storage.

        Return why it cannot be written: there is no room. Then the older mark stays, and the next start replays these
        records again, which does no harm. Return "" otherwise.
        """
        for directory in range(len(self._storages)):
            self._barrier.replayed(directory, journal, mark)
        try:
            await self.write_last_mark(journal, mark)
        except OSError as error:
            if error.errno not in NO_ROOM or isinstance(error, NotSyncedError):
                raise
            return str(error)
        return ""

    # --- one checkpoint

    def request(self, directory: int | None = None) -> None:
        """As `Bookie.request_flush`."""
        for wanted in self._wanted if directory is None else self._wanted[directory : directory + 1]:
            wanted.set()

    async def make(self) -> None:
        """Everything acknowledged until now is in the storage for good, and lastMark says so. OSError,
        StorageFailedError: lastMark stands where it stood. Directories that cannot be used are left out."""
        directories = self._health.usable
        if not directories:
            raise StorageFailedError("no ledger directory can be used")
        now = await self._prepare(directories)
        if len(directories) == 1:
            await self._flush(directories[0], now)
        else:
            await self._flush_all(directories, now)
        await self._move()

    async def _flush_all(self, directories: Sequence[int], now: Round) -> None:
        """Flush directories at the same time. Those that turn out not to answer are not waited for.

        OSError, StorageFailedError: of the first that failed.
        """
        errors: list[OSError | StorageFailedError] = []
        waiting = set(directories)
        ended = trio.Event()

        async def flush(directory: int) -> None:
            nonlocal ended
            try:
                await self._flush(directory, now)
            except (OSError, StorageFailedError) as error:
                errors.append(error)
            waiting.discard(directory)
            ended.set()

        async def flush_each(nursery: trio.Nursery) -> None:
            nonlocal ended
            for directory in directories:
                nursery.start_soon(flush, directory, name="checkpoint of a directory")
            while any(not self._health.reasons[directory] for directory in waiting):
                ended = trio.Event()
                with trio.move_on_after(LOOK_S):
                    await ended.wait()

        if self._detached.nursery is not None:
            await flush_each(self._detached.nursery)
        else:
            async with trio.open_nursery() as nursery:
                await flush_each(nursery)
        if errors:
            raise errors[0]

    async def _prepare(self, directories: Sequence[int]) -> Round:
        held = self._removed
        removed = {
            directory: [each for each in self._storages[directory].removed_ledgers() if (directory, each) not in held]
            for directory in directories
        }
        # The mark must pass every record of a removed ledger, including records not yet on disk.
        drained = await self._force(drain=any(removed.values()))
        marks = [journal.mark() for journal in self._journals]
        return Round(marks, removed if drained else {})

    async def _force(self, *, drain: bool = False) -> bool:
        """Sync what was written without a sync; the mark waits for it.

        With `drain`, also wait until everything appended so far is on disk. Return whether that is so of all journals
        that have not failed; a journal that does not answer is not waited for if there are several.
        """
        if self._journals_closed:
            return True
        waiting: list[trio.Event] = []
        for journal in self._journals:
            if drain or journal.has_unsynced:
                synced = trio.Event()
                try:
                    journal.force(-1, partial(_set, synced))
                except JournalFailedError:
                    continue
                waiting.append(synced)
        with trio.move_on_after(float("inf") if len(self._journals) == 1 else STALLED_AFTER_S):
            for synced in waiting:
                await synced.wait()
        return all(synced.is_set() for synced in waiting)

    async def _flush(self, directory: int, now: Round) -> None:
        """Flush a directory. OSError, StorageFailedError: it is not certain what is on its disk."""
        storage = self._storages[directory]
        async with self._flushing[directory]:
            if self._health.is_final(directory):
                self.forces.refuse(directory, self._health.reasons[directory])
                return
            try:
                await self._detached.busy(directory, partial(self.forces.flush, directory, storage))
            except StorageFailedError as error:
                self.directory_failed(directory, error, is_idle=True)
                if not self._isolates or self._health.all_failed:
                    raise
                return
            except OSError as error:
                if not self._isolates or (error.errno in NO_ROOM and not isinstance(error, NotSyncedError)):
                    raise
                self.directory_failed(directory, error, is_idle=True)
                return
        self._stats.checkpoints += 1
        self._barrier.flushed(directory, now.marks)
        for ledger_id in now.removed.get(directory, ()):
            journal = ledger_id % len(self._journals)
            if self._journals[journal].failed is None:
                self._removed[directory, ledger_id] = now.marks[journal]

    def directory_failed(self, directory: int, error: Exception, *, is_idle: bool = False) -> None:
        """Take a directory out of service, or the bookie if it has no other. `is_idle`: no flush of it runs."""
        if not self._isolates:
            if isinstance(error, StorageFailedError):
                self._on_failed(error)
            return
        journals = range(len(self._journals))
        needed = set(journals)
        if is_idle or not self._flushing[directory].locked():
            needed = {ledger_id % len(journals) for ledger_id in self._storages[directory].unflushed_ledgers()}
        self._barrier.failed(directory, needed)
        self._health.failed(directory, str(error))

    # --- marks

    async def _move(self) -> None:
        """Move the marks as far as all directories have flushed, and release what that frees. OSError."""
        async with self._moving:
            moved: list[int] = []
            for index in range(len(self._journals)):
                mark = self._barrier.mark(index)
                if mark > self.last_marks[index]:
                    await self.write_last_mark(index, mark)
                    if self.last_marks[index] == mark:
                        moved.append(index)
            self._release()
            for index in moved:
                await self._trim(index)

    def _release(self) -> None:
        """Release the removed ledgers of which the marks have passed all records."""
        freed: dict[int, list[int]] = {}
        for (directory, ledger_id), mark in list(self._removed.items()):
            if self.last_marks[ledger_id % len(self._journals)] >= mark:
                del self._removed[directory, ledger_id]
                freed.setdefault(directory, []).append(ledger_id)
        for directory, ledgers in freed.items():
            self._storages[directory].release_ledgers(ledgers)
        if freed:
            self._on_released()

    async def write_last_mark(self, journal: int, mark: LogMark) -> None:
        """Write lastMark to all directories that can be used.

        A directory that fails for another reason than a lack of room fails. OSError: none has the mark for certain.
        """
        written: list[int] = []
        errors: list[OSError] = []
        for directory in self._health.usable:
            write = partial(self._write_mark, directory, journal, mark, written, errors)
            await self._detached.unless_stalled(write, directory)
        if written:
            self.last_marks[journal] = mark
        elif errors:
            raise errors[0]

    async def _write_mark(
        self, directory: int, journal: int, mark: LogMark, written: list[int], errors: list[OSError]
    ) -> None:
        write = partial(self.marks[journal].write, directory, mark)
        try:
            await self._world.offload.run(write, name="last mark")
        except OSError as error:
            if not self._isolates:
                raise
            if error.errno not in NO_ROOM:
                self.directory_failed(directory, error)
            errors.append(error)  # the marks of the other directories are enough: the greatest counts
        else:
            written.append(directory)

    async def _trim(self, index: int) -> None:
        """Delete the files of a journal before its mark. OSError."""
        if index in self._trimming:
            return
        self._trimming.add(index)

        async def trim() -> None:
            try:
                await self._journals[index].checkpoint_complete(self.last_marks[index])
            except OSError as error:
                if len(self._journals) == 1:
                    raise
                log.warning("files of a journal before its mark not deleted", journal=index, reason=str(error))
            finally:
                self._trimming.discard(index)

        await self._detached.unless_stalled(trim)

    # --- always

    async def run(self) -> None:
        """Make checkpoints until `stop`."""
        try:
            if not self._detaches:
                await self._make_often(0)
                return
            async with trio.open_nursery() as nursery:
                self._detached.nursery = nursery
                for each in self.marks:
                    each.syncs_itself = False
                nursery.start_soon(self._detached.watch, name="bookie directories")
                nursery.start_soon(self._move_often, name="bookie marks")
                async with trio.open_nursery() as loops:
                    for directory in range(len(self._storages)):
                        loops.start_soon(self._make_often, directory, name=f"bookie checkpoints {directory}")
                self._leave()
                nursery.cancel_scope.cancel()
        finally:
            self._leave()
            self._ended.set()

    def _leave(self) -> None:
        """Detach no more work."""
        self._detached.nursery = None
        for each in self.marks:
            each.syncs_itself = True

    def journal_begun(self, journal: int) -> None:
        """Sync the seals of a journal that has begun a new file, each apart, unless its thread has done so."""
        if self._detached.nursery is not None and self._isolates:
            for directory in self._health.usable:
                self._detached.nursery.start_soon(self._sync_seal, journal, directory, name="journal seal")

    async def _sync_seal(self, journal: int, directory: int) -> None:
        sync = partial(self._world.offload.run, partial(self.marks[journal].sync, directory), name="journal seal")
        try:
            await self._detached.busy(directory, sync)
        except OSError as error:
            self.directory_failed(directory, error)

    async def _move_often(self) -> None:
        """Move the marks after flushes. A task of its own, so that a disk that hangs here delays no flush."""
        retry = retrying(self._world.rng, self._disks, self._job_failures, self._stop_wanted)
        while True:
            await self._move_wanted.wait()
            self._move_wanted = trio.Event()
            if not await retry(self._move):
                self._move_wanted.set()

    async def _make_often(self, directory: int) -> None:
        only = directory if self._isolates else None
        retry = retrying(self._world.rng, self._disks, self._job_failures, self._stop_wanted, directory=only)
        while not self._stop_wanted.is_set():
            with trio.move_on_after(self._config.flush_interval_ms / 1000):
                await self._wanted[directory].wait()
            self._wanted[directory] = trio.Event()
            if self._stop_wanted.is_set() or self._health.is_final(directory):
                return
            try:
                if not await retry(partial(self._make_one, directory)):
                    self.request(directory)
            except StorageFailedError:
                return

    async def _make_one(self, directory: int) -> None:
        if not self._detaches:
            await self.make()
            return
        await self._flush(directory, await self._prepare((directory,)))
        self._move_wanted.set()
        self._look_at_backlogs()

    def _look_at_backlogs(self) -> None:
        folders = self._config.ledger_directories
        for index, (backlog, journal) in enumerate(zip(self._backlogs, self._journals, strict=True)):
            holding = [folders[each] for each in self._barrier.holding(index)]
            backlog.look(journal.backlog_bytes, journal.trimmed, holding, trio.current_time())
            full = backlog.why_full(journal.backlog_bytes, holding)
            if full:
                self._disks.flush_failed(backlog, full, no_room=False)
            else:
                self._disks.flushed(backlog)

    # --- stop

    def stop(self) -> None:
        """Begin no further checkpoint in `run`."""
        self._stop_wanted.set()
        self.request()

    async def ended(self) -> None:
        """Wait until `run` has returned."""
        await self._ended.wait()

    async def close_journals(self) -> None:
        """Sync and close the journals, behind which one last `make` may follow."""
        await self._force()
        self._journals_closed = True
        for journal in self._journals:
            await journal.aclose()

    def close(self) -> None:
        for each in self.marks:
            each.close()


def _set(event: trio.Event, _: object) -> None:
    event.set()
