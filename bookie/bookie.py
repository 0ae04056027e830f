"""A bookie put together: folders, journal, storage, and the loop that moves the mark.

Start      lock -> cookies -> losses (limbo/) -> journal's files checked -> storage opened -> journal replayed into it
           -> full flush -> lastMark -> new journal file -> ledgers into limbo after a loss -> serve
Checkpoint every flush interval, and when the write cache is half full: checkpoints.py
Stop       adds refused -> journal drained -> checkpoint -> storage closed -> DIRTY removed

Durability: an entry is durable when its journal group is synced, which is before it is acknowledged. lastMark never
names a position that the preceding flush did not cover. A cancelled or failed bookie skips all of Stop, as if killed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import trio

from bookie import folders, ledger_facts
from bookie.adds import Passes
from bookie.checkpoints import Checkpoints
from bookie.config import BookieConfig
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.directories.adds import SpreadAdds, adds_of
from bookie.directories.assembly import Parts, parts
from bookie.directories.beside_adds import give_way_to_adds
from bookie.directories.readers import LedgerReadWorkers, SpreadReadWorkers
from bookie.disks.mode import Mode, status_at_start
from bookie.disks.partitions import check_partitions
from bookie.disks.status import BookieStatus
from bookie.disks.watch import DiskWatch
from bookie.errors import JournalFailedError, StorageFailedError
from bookie.fencing import FenceTable
from bookie.garbage_rounds import GarbageRounds
from bookie.journal.format import LogMark
from bookie.journal.group_writer import OnDurable
from bookie.last_confirmed import LacTable
from bookie.limbo.epochs import Epochs
from bookie.limbo.losses import Losses
from bookie.reads import ReadLimit, ReadWorkers
from bookie.recovery import Starts, recover
from bookie.stats import BookieStats
from bookie.timers import Timers
from quire.metadata.ledgers import read_instance_id
from quire.metadata.store import MetadataStore
from quire.service.background import JobFailures, keep_trying
from quire.service.log import get_logger
from quire.service.measuring.summaries import Times
from quire.service.neighbours.rare_lines import RareLines
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import GivenUpError, World

log = get_logger(__name__)

READ_WORKERS_MAX: Final = 64
STOP_MAX_S: Final = 60.0
"""Seconds a stop may take. After that the disk is considered dead, and the process ends as if killed."""


class Bookie:
    """Made by `open_bookie`. Everything here runs on the loop, unsynchronised.

    A server opens the sessions (`BookieSession(bookie, write)`), one for each connection.
    """

    def __init__(
        self, world: World, config: BookieConfig, parts: Parts, disks: DiskWatch, status: BookieStatus | None = None
    ) -> None:
        """`status`: its status when it stopped, if that is to be obeyed."""
        self.world = world
        self.config = config
        self._parts = parts
        self.journal = parts.journal
        self.storage = parts.storage
        self.directories = parts.directories
        """State of the ledger directories."""
        self.journals = parts.journals
        """State of the journal directories."""
        self.fences = FenceTable()
        self.lacs = LacTable()
        self.timers = Timers()
        self.passes = Passes()
        self.long_polls = 0
        """Number of reads waiting for a LAC to move."""
        self.disks = disks
        self.mode = Mode(world, config, disks, status)
        self.mode.on_change = self._mode_changed
        self.read_only = self.mode.read_only
        """True if no adds are accepted except those of high priority (recovery and cursors).

        Changed by `set_read_only`, by full disks and by flushes that fail.
        """
        self.instance_id = ""
        """Instance id of the cluster."""
        self.failed = trio.Event()
        """Set when the journal or the storage can no longer be trusted. The server must stop and be restarted."""
        self.stats = BookieStats()
        self.rare_lines = RareLines()
        """Log lines about bad clients."""
        self.read_limit = ReadLimit(config.reads_in_progress_max)
        self.adds = adds_of(self, config, parts.routes, parts.directories)
        self._readers = self._workers("bookie read", config.read_workers)
        self._urgent_readers = self._workers("bookie urgent read", config.urgent_workers)
        give_way_to_adds(self, self._readers.all)
        self._all_readers = (*self._readers.all, *self._urgent_readers.all)
        self.job_failures = JobFailures()
        """Failures of background jobs by job name. A failed job is tried again."""
        self._checkpoints = Checkpoints(
            world,
            config,
            self.journal.journals,
            self.storage.directories,
            self.directories,
            disks,
            self.stats,
            self.job_failures,
            on_released=self._flushed,
            on_failed=self._storage_failed,
        )
        self.garbage = GarbageRounds(
            world,
            config,
            self.storage.directories,
            self.directories,
            disks,
            checkpoint=self.checkpoint,
            on_failed=self._checkpoints.directory_failed,
        )
        self.stays_dirty = False
        """True if a stop could not write acknowledged entries that the journal does not have."""
        self._stopping = False
        self._given_up = False
        self.total_bytes: Callable[[str], int] = lambda _: 0
        """Size in bytes of the file system of a folder, 0 if unknown; blocking. Only reported to clients."""
        for index, journal in enumerate(self.journal.journals):
            journal.on_pass = self.adds.journal_pass_done
            journal.on_failed = partial(self._journal_failed, index)
            journal.on_no_room = disks.failed
            journal.on_begun = partial(self._checkpoints.journal_begun, index)
        for index, storage in enumerate(self.storage.directories):
            storage.on_flush_due = partial(self.request_flush, index)
            storage.on_flushed = self._flushed
            storage.on_forgotten = self.journal.forget_keys
        self.directories.changed = self._directory_changed
        disks.unflushed = lambda: self.storage.unflushed_bytes
        disks.changed = self._room_changed
        disks.free_room = self._free_room
        disks.directory_of = parts.routes.directory
        disks.is_usable = lambda number: not self.directories.reasons[number]
        disks.on_broken = self._checkpoints.directory_failed
        disks.measured = self._flushed  # adds that wait are carried out, or refused if the bookie is read-only now
        if disks.is_full:
            self.storage.end_log_later()

    def _workers(self, name: str, count: int) -> LedgerReadWorkers:
        count = min(max(count, 1), READ_WORKERS_MAX)
        made = self._parts
        if made.routes.directories == 1:
            return self._workers_of_one(name, count)
        share = -(-count // made.routes.directories)
        return SpreadReadWorkers(
            lambda index: self._workers_of_one(f"{name} {index}", share), made.routes, made.directories
        )

    def _workers_of_one(self, name: str, count: int) -> ReadWorkers:
        return ReadWorkers(
            self.world.offload,
            name=name,
            workers=count,
            waiting_max=count * self.config.reads_in_flight_max,
            after=self._reads_answered,
            sectors_read=self.world.disk.sectors_read,
        )

    # --- for sessions

    def request_flush(self, directory: int | None = None) -> None:
        """Begin a checkpoint soon, of one directory or of all."""
        self._checkpoints.request(directory)

    def force(self, ledger_id: int, done: OnDurable) -> None:
        """Call `done` when all that was acknowledged of the ledger is on disk. JournalFailedError: it is not called."""
        if self.config.journal_write:
            self.journal.of(ledger_id).force(ledger_id, done)
        else:
            directory = self._parts.routes.directory(ledger_id)
            self._checkpoints.forces.add(directory, done)
            self.request_flush(directory)

    def is_usable(self, ledger_id: int) -> bool:
        """Return whether the ledger's directory can be used."""
        return not self.directories.reasons[self._parts.routes.directory(ledger_id)]

    def fence(self, ledger_id: int, key: bytes | None, done: Callable[[Rc], None]) -> None:
        """Refuse further adds to the ledger except recovery's.

        `done` is called at once if the fence is refused or already durable. Otherwise it is called when the FENCE
        record is durable, whether written by this call or by an earlier one.
        """
        ledger_facts.fence(self, ledger_id, key, done)

    def write_lac(self, ledger_id: int, key: bytes, package: bytes, on_durable: OnDurable) -> Rc:
        """Store an explicit LAC. A LAC behind the known one changes nothing.

        If this returns Rc.OK, `on_durable` is called when the LAC is on disk.
        """
        return ledger_facts.write_lac(self, ledger_id, key, package, on_durable)

    def read_by_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Rc], None], ledger_id: int, *, urgent: bool, count: int = 1
    ) -> bool:
        """Run a read of a ledger that needs the disk, or a job that counts as `count` reads; return False if too many
        are in progress.

        Urgent reads have workers of their own.
        """
        if self._stopping:
            return False
        return (self._urgent_readers if urgent else self._readers).of(ledger_id).submit(job, done, count)

    def read_room(self, ledger_id: int, *, urgent: bool) -> int:
        """Return the number of reads of the ledger's directory that `read_by_worker` would accept now."""
        return 0 if self._stopping else (self._urgent_readers if urgent else self._readers).of(ledger_id).room

    def _reads_answered(self) -> None:
        self.passes.end()
        self.read_limit.freed()

    @property
    def reads_in_flight(self) -> int:
        """Return the number of reads that workers hold and have not answered."""
        return sum([each.waiting for each in self._all_readers])

    @property
    def read_times(self) -> tuple[tuple[Times, ...], tuple[Times, ...]]:
        """Return the times of reads in workers that gave entries, and of the others."""
        workers = self._all_readers
        return tuple(each.times for each in workers), tuple(each.times_failed for each in workers)

    def disk_space(self) -> tuple[int, int]:
        """Return the size in bytes of the entry logs' file systems, and their free bytes. Blocking.

        Of several directories on one disk each counts, as in the original.
        """
        size = free = 0
        for folder in self.config.ledger_directories:
            free_here = self.world.disk.free_bytes(folder)
            free += free_here
            size += max(free_here, self.total_bytes(folder))
        return size, free

    # --- state

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def last_mark(self) -> LogMark:
        """Position stored in the file lastMark, of the first journal."""
        return self._checkpoints.last_marks[0]

    @property
    def last_marks(self) -> list[LogMark]:
        """Positions stored in the files lastMark, by journal."""
        return self._checkpoints.last_marks

    @property
    def state_changed(self) -> trio.Event:
        """Return the event that is set, and replaced, when `read_only` changes."""
        return self.mode.changed

    def set_read_only(self, read_only: bool) -> None:
        """Refuse or accept adds. A bookie configured as read-only, or with a full disk, stays read-only."""
        self.mode.set(read_only)

    def _mode_changed(self) -> None:
        self.read_only = self.mode.read_only

    def _room_changed(self) -> None:
        """React to a disk that became full or has room again."""
        full = self.disks.is_full
        self.journal.economize(full)
        self.mode.update()
        if full:
            self.storage.end_log_later()

    def _free_room(self) -> None:
        """Make room on a full disk, by a checkpoint and a round of garbage collection."""
        self.request_flush()
        self.garbage.hurry()

    # --- journal

    def _journal_failed(self, index: int, error: JournalFailedError) -> None:
        if len(self.journal.journals) > 1:
            self.journals.failed(index, str(error))
        if self.journal.failed is not None:
            self.failed.set()

    # --- checkpoints

    def _flushed(self) -> None:
        self.adds.room_made()
        self.passes.end()

    def _storage_failed(self, error: StorageFailedError) -> None:
        if not self.failed.is_set():
            log.error("the storage has failed", reason=str(error))
            self.failed.set()

    def _directory_changed(self, index: int) -> None:
        """React to a directory that can no longer be used, or can be again."""
        if self.directories.reasons[index] and isinstance(self.adds, SpreadAdds):
            self.adds.refuse_waiting_of(index)
            self.passes.end()
        if self.directories.all_failed:
            self.failed.set()

    async def checkpoint(self) -> None:
        """Flush everything acknowledged so far to the storage and record it in lastMark.

        OSError, StorageFailedError: lastMark is unchanged.
        """
        await self._checkpoints.make()

    async def collect_garbage(self, metadata: MetadataStore, instance_id: str) -> Collected:
        """Delete data of deleted ledgers; a stop interrupts it.

        MetadataError, OSError, BookieError: nothing or only a part was deleted.
        """
        return await self.garbage.collect(metadata, instance_id)

    # --- start and stop

    async def _open(self, start: Starts) -> None:
        checkpoints = self._checkpoints
        await self._parts.open(start.served, start.sealed)
        recovered = await recover(self.world, self.config, self.storage, start.plans)
        await checkpoints.begin([plan.mark for plan in start.plans])
        for index, (journal, found) in enumerate(zip(self.journal.journals, recovered, strict=True)):
            if found.no_room:
                self.disks.failed(f"the journal's records cannot be flushed: {found.no_room}")
            elif found.end is not None and (unmarked := await checkpoints.mark_replayed(index, found.end)):
                self.disks.failed(f"lastMark cannot be written: {unmarked}")
            await journal.open(found.end, checkpoints.marks[index].end)
            if found.end is None:
                # From here on a start without the journal is refused, even if this run never completes a checkpoint.
                await checkpoints.write_last_mark(index, journal.mark())

    def _start(self, nursery: trio.Nursery, metadata: MetadataStore, instance_id: str, epochs: Epochs) -> None:
        self.instance_id = instance_id
        nursery.start_soon(self._checkpoints.run, name="bookie checkpoints")
        jobs: dict[str, Callable[[], Awaitable[None]]] = {
            "timers": partial(self.timers.run, self.passes.end),
            "disks": self.disks.run,
            "epochs": epochs.run,
            "garbage collection": partial(self.garbage.run, metadata, instance_id),
        }
        if self.mode.is_kept:
            jobs["mode"] = self.mode.keep
        for number, journal in enumerate(self.journal.journals):
            suffix = f" {number}" if number else ""
            jobs |= {f"journal groups{suffix}": journal.run, f"journal syncs{suffix}": journal.sync_often}
        for name, job in jobs.items():
            nursery.start_soon(keep_trying, name, job, self.job_failures, self.world.rng, name=f"bookie {name}")

    async def _stop_in_time(self) -> None:
        """Stop, with a deadline for a disk that does not answer."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up_late, name="bookie stop deadline")
            with suppress(GivenUpError):
                await self._stop()
            nursery.cancel_scope.cancel()
        if self._given_up:
            raise StorageFailedError("a disk does not answer, stop abandoned; the journal has all acknowledged entries")

    async def _give_up_late(self) -> None:
        await trio.sleep(STOP_MAX_S)
        log.error("stop abandoned, a disk does not answer", seconds=STOP_MAX_S)
        self._given_up = True
        self.world.offload.give_up()

    async def _stop(self) -> None:
        self.mode.stop()
        self._stopping = True
        self.adds.refuse_waiting()
        self.passes.end()
        self._checkpoints.stop()
        self.garbage.stop()
        await self.garbage.end()
        await self._checkpoints.ended()
        for readers in self._all_readers:
            await readers.aclose()  # the jobs use what is closed below
        await self._checkpoints.close_journals()
        try:
            await self.checkpoint()
        except (OSError, StorageFailedError) as error:
            self.stays_dirty = not self.config.journal_write
            remedy = "the other bookies have" if self.stays_dirty else "the journal has"
            log.error(f"last checkpoint failed; {remedy} all acknowledged entries", reason=str(error))
        await self.storage.close()
        self._checkpoints.close()


@asynccontextmanager
async def open_bookie(
    world: World, config: BookieConfig, metadata: MetadataStore, disks: DiskWatch | None = None
) -> AsyncGenerator[Bookie, None]:
    """Serve within the block; close cleanly at its end, or abandon the bookie (as if killed) if the block raises.

    `disks`: its disk watch, on which `make_room` was called; None: one is created.

    Raises: DirectoryInUseError, CookieMismatchError, JournalDamagedError, StorageDamagedError, OSError, MetadataError.
    """
    instance_id = await read_instance_id(metadata, config.ledgers_root)
    locks = await folders.lock(world, config)
    try:
        losses = Losses(world, config, metadata, folders.current_folders(config))
        await folders.check(world, config, metadata, instance_id, losses)
        await world.offload.run(partial(check_partitions, world.disk, config), name="partitions")
        start = await losses.plan()
        if disks is None:
            disks = DiskWatch(world, config)
            await world.offload.run(disks.make_room, name="disk room")
        await folders.mark_dirty(world, config)
        status = await status_at_start(world, config)
        bookie = Bookie(world, config, parts(world, config, disks), disks, status)
        await bookie._open(start)
        await losses.settle(bookie.storage, partial(folders.stamp_again, world, config, instance_id))
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            bookie._start(nursery, metadata, instance_id, losses.epochs)
            try:
                yield bookie
            except Exception as error:
                failure = error  # raised outside, so that the nursery does not wrap it
            else:
                await bookie._stop_in_time()
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        failed = bookie.failed.is_set() or bookie.directories.any_failed or bookie.journals.any_failed
        if not (failed or bookie.stays_dirty):
            await folders.unmark_dirty(world, config)
    finally:
        for lock in locks:
            lock.release()
