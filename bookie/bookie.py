"""A bookie put together: folders, journal, storage, and the loop that moves the mark.

Start      lock -> cookies -> losses (limbo/) -> journal checked -> storage opened -> journal replayed into it
           -> full flush -> lastMark -> new journal file -> ledgers into limbo after a loss -> serve
Checkpoint every flush interval, and when the write cache is half full: checkpoints.py
Stop       adds refused -> journal drained -> checkpoint -> storage closed -> DIRTY removed

Durability: an entry is durable when its journal group is synced, which is before it is acknowledged. lastMark never
names a position that the preceding flush did not cover. A cancelled or failed bookie skips all of Stop, as if killed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import trio

from bookie import folders
from bookie.adds import Adds, Passes
from bookie.checkpoints import Checkpoints
from bookie.config import BookieConfig
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.disks.watch import DiskWatch
from bookie.errors import (
    BookieError,
    JournalFailedError,
    StorageFailedError,
)
from bookie.fencing import FenceTable
from bookie.garbage_rounds import GarbageRounds
from bookie.journal.format import (
    ExplicitLac,
    Fence,
    LogMark,
)
from bookie.journal.group_writer import OnDurable
from bookie.journal.seal import JournalSeal
from bookie.journal.writer import Journal
from bookie.last_confirmed import LacTable
from bookie.limbo.epochs import Epochs
from bookie.limbo.losses import Losses
from bookie.reads import ReadLimit, ReadWorkers
from bookie.recovery import Start, recover, seal_path_of
from bookie.requests import check_fence, check_write_lac, lac_of_package
from bookie.settings.storages import storage_of
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
        self, world: World, config: BookieConfig, journal: Journal, storage: DbLedgerStorage, disks: DiskWatch
    ) -> None:
        self.world = world
        self.config = config
        self.journal = journal
        self.storage = storage
        self.fences = FenceTable()
        self.lacs = LacTable()
        self.timers = Timers()
        self.passes = Passes()
        self.adds = Adds(
            self,
            waiting_max=config.journal.queue_size_max,
            wait_s=config.add_wait_ms / 1000,
            entries_waiting_max=config.adds_waiting_max,
            in_progress_max=config.adds_in_progress_max,
        )
        self.long_polls = 0
        """Number of reads waiting for a LAC to move."""
        self.disks = disks
        self._told_read_only = config.force_read_only
        self.read_only = config.force_read_only or bool(disks.reason)
        """True if no adds are accepted except those of high priority (recovery and cursors).

        Changed by `set_read_only` and by full disks.
        """
        self.state_changed = trio.Event()
        """Set, and replaced, when `read_only` changes."""
        self.instance_id = ""
        """Instance id of the cluster."""
        self.failed = trio.Event()
        """Set when the journal or the storage can no longer be trusted. The server must stop and be restarted."""
        self.stats = BookieStats()
        self.rare_lines = RareLines()
        """Log lines about bad clients."""
        self.read_limit = ReadLimit(config.reads_in_progress_max)
        self._readers = self._workers("bookie read", config.read_workers)
        self._urgent_readers = self._workers("bookie urgent read", config.urgent_workers)
        self.job_failures = JobFailures()
        """Failures of background jobs by job name. A failed job is tried again."""
        self._checkpoints = Checkpoints(
            world,
            config,
            journal,
            storage,
            disks,
            self.stats,
            self.job_failures,
            on_released=self._flushed,
            on_failed=self._storage_failed,
        )
        self.garbage = GarbageRounds(
            world, config, [storage], disks, checkpoint=self.checkpoint, on_failed=self._storage_failed
        )
        self._stopping = False
        self._given_up = False
        self.total_bytes: Callable[[str], int] = lambda _: 0
        """Size in bytes of the file system of a folder, 0 if unknown; blocking. Only reported to clients."""
        journal.on_pass = self.adds.journal_pass_done
        journal.on_failed = self._journal_failed
        journal.on_no_room = disks.failed
        disks.unflushed = lambda: storage.unflushed_bytes
        disks.changed = self._room_changed
        storage.on_flush_due = self.request_flush
        storage.on_flushed = self._flushed
        storage.on_forgotten = journal.forget_keys
        if disks.reason:
            storage.end_log_later()

    def _workers(self, name: str, count: int) -> ReadWorkers:
        count = min(max(count, 1), READ_WORKERS_MAX)
        return ReadWorkers(
            self.world.offload,
            name=name,
            workers=count,
            waiting_max=count * self.config.reads_in_flight_max,
            after=self._reads_answered,
            sectors_read=self.world.disk.sectors_read,
        )

    # --- for sessions

    def request_flush(self) -> None:
        """Begin a checkpoint soon."""
        self._checkpoints.request()

    def fence(self, ledger_id: int, key: bytes | None, done: Callable[[Rc], None]) -> None:
        """Refuse further adds to the ledger except recovery's.

        `done` is called at once if the fence is refused or already durable. Otherwise it is called when the FENCE
        record is durable, whether written by this call or by an earlier one.
        """
        storage = self.storage
        known_key = storage.master_key(ledger_id) or None
        rc = check_fence(known_key, key)
        if rc is not Rc.OK or key is None or not self.fences.needs_wait(ledger_id, storage.is_fenced(ledger_id)):
            done(rc)
            return
        if not self.journal.has_room(0):
            done(Rc.TOO_MANY_REQUESTS)
            return
        if known_key is None:
            storage.set_master_key(ledger_id, key)
        storage.set_fenced(ledger_id)
        self.lacs.fenced(ledger_id)
        if not self.fences.wait(ledger_id, partial(_tell, done)):
            return
        self.stats.fences += 1
        written = partial(self.fences.written, ledger_id)
        try:
            self.journal.append(Fence(ledger_id), written, key)
        except JournalFailedError as error:
            written(error)

    def write_lac(self, ledger_id: int, key: bytes, package: bytes, on_durable: OnDurable) -> Rc:
        """Store an explicit LAC. A LAC behind the known one changes nothing.

        If this returns Rc.OK, `on_durable` is called when the LAC is on disk.
        """
        storage = self.storage
        known_key = storage.master_key(ledger_id) or None
        rc = check_write_lac(known_key, key, self.read_only, ledger_id, package)
        if rc is not Rc.OK:
            return rc
        if not self.journal.has_room(len(package)):
            return Rc.TOO_MANY_REQUESTS
        if self.journal.failed is not None:
            return Rc.IO
        if known_key is None:
            storage.set_master_key(ledger_id, key)
        known = storage.explicit_lac(ledger_id)
        if known is not None and lac_of_package(known) > lac_of_package(package):
            package = known
        storage.set_explicit_lac(ledger_id, package)
        self.lacs.raised(ledger_id, lac_of_package(package))
        self.journal.append(ExplicitLac(ledger_id, package), on_durable, key)
        self.stats.explicit_lacs += 1
        return rc

    def read_by_worker(
        self, job: Callable[[], Any], done: Callable[[Any, Rc], None], *, urgent: bool = False, count: int = 1
    ) -> bool:
        """Run a read that needs the disk, or a job that counts as `count` reads; return False if too many are in
        progress.

        Urgent reads have workers of their own.
        """
        if self._stopping:
            return False
        return (self._urgent_readers if urgent else self._readers).submit(job, done, count)

    def read_room(self, *, urgent: bool) -> int:
        """Return the number of reads that `read_by_worker` would accept now."""
        return 0 if self._stopping else (self._urgent_readers if urgent else self._readers).room

    def _reads_answered(self) -> None:
        self.passes.end()
        self.read_limit.freed()

    @property
    def reads_in_flight(self) -> int:
        """Return the number of reads that workers hold and have not answered."""
        return self._readers.waiting + self._urgent_readers.waiting

    @property
    def read_times(self) -> tuple[tuple[Times, ...], tuple[Times, ...]]:
        """Return the times of reads in workers that gave entries, and of the others."""
        workers = (self._readers, self._urgent_readers)
        return tuple(each.times for each in workers), tuple(each.times_failed for each in workers)

    def disk_space(self) -> tuple[int, int]:
        """Return the size in bytes of the entry logs' file system, and its free bytes. Blocking."""
        folder = self.config.ledger_directory
        free = self.world.disk.free_bytes(folder)
        return max(free, self.total_bytes(folder)), free

    # --- state

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    @property
    def last_mark(self) -> LogMark:
        """Position stored in the file lastMark."""
        return self._checkpoints.last_mark

    def set_read_only(self, read_only: bool) -> None:
        """Refuse or accept adds. A bookie configured as read-only, or with a full disk, stays read-only."""
        if not self.config.force_read_only:
            self._told_read_only = read_only
            self._set_state()

    def _set_state(self) -> None:
        read_only = self._told_read_only or self.disks.reason != ""
        if self._stopping or read_only == self.read_only:
            return
        log.info("read-only" if read_only else "writable")
        self.read_only = read_only
        self.state_changed.set()
        self.state_changed = trio.Event()

    def _room_changed(self) -> None:
        """React to a disk that became full or has room again.

        When it is full, a checkpoint and a round of garbage collection make room.
        """
        full = self.disks.reason != ""
        self.journal.economize(full)
        self._set_state()
        if full:
            self.storage.end_log_later()
            self.request_flush()
            self.garbage.hurry()

    # --- journal

    def _journal_failed(self, error: JournalFailedError) -> None:
        self.failed.set()

    # --- checkpoints

    def _flushed(self) -> None:
        self.adds.room_made()
        self.passes.end()

    def _storage_failed(self, error: StorageFailedError) -> None:
        if not self.failed.is_set():
            log.error("the storage has failed", reason=str(error))
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

    async def _open(self, start: Start) -> None:
        checkpoints = self._checkpoints
        await self.storage.open(has_served=start.has_served, has_seal=start.has_seal)
        recovered = await recover(self.world, self.config, self.storage, start.plan)
        end = recovered.end
        checkpoints.last_mark = start.plan.mark
        path = seal_path_of(self.config)
        seal = checkpoints.seal = await self.world.offload.run(
            partial(JournalSeal.open, self.world.disk, path), name="seal"
        )
        if recovered.no_room:
            self.disks.failed(f"the journal's records cannot be flushed: {recovered.no_room}")
        elif end is not None and (unmarked := await checkpoints.mark_replayed(end)):
            self.disks.failed(f"lastMark cannot be written: {unmarked}")
        await self.journal.open(end, seal)
        if end is None:
            # From here on a start without the journal is refused, even if this run never completes a checkpoint.
            await checkpoints.write_last_mark(self.journal.mark())

    def _start(self, nursery: trio.Nursery, metadata: MetadataStore, instance_id: str, epochs: Epochs) -> None:
        self.instance_id = instance_id
        nursery.start_soon(self._checkpoints.run, name="bookie checkpoints")
        jobs: dict[str, Callable[[], Awaitable[None]]] = {
            "timers": partial(self.timers.run, self.passes.end),
            "journal groups": self.journal.run,
            "journal syncs": self.journal.sync_often,
            "disks": self.disks.run,
            "epochs": epochs.run,
            "garbage collection": partial(self.garbage.run, metadata, instance_id),
        }
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
        self.read_only = True
        self._stopping = True
        self.adds.refuse_waiting()
        self.passes.end()
        self._checkpoints.stop()
        self.garbage.stop()
        await self.garbage.end()
        await self._checkpoints.ended()
        await self._readers.aclose()  # the jobs use what is closed below
        await self._urgent_readers.aclose()
        await self._checkpoints.close_journal()
        try:
            await self.checkpoint()
        except (OSError, StorageFailedError) as error:
            log.error("last checkpoint failed; the journal has all acknowledged entries", reason=str(error))
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
        start = await losses.plan()
        if disks is None:
            disks = DiskWatch(world, config)
            await world.offload.run(disks.make_room, name="disk room")
        await folders.mark_dirty(world, config)
        journal_config = replace(config.journal, preallocate=disks.journal_ahead)
        journal = Journal(world, f"{config.journal_directory}/current", journal_config)
        journal.economize(disks.reason != "")
        storage = storage_of(world, config)
        bookie = Bookie(world, config, journal, storage, disks)
        await bookie._open(start)
        if losses.reasons:
            await losses.into_limbo(bookie.storage)
            await folders.stamp_again(world, config, instance_id)
        await losses.settled()
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
        if not bookie.failed.is_set():
            await folders.unmark_dirty(world, config)
    finally:
        for lock in locks:
            lock.release()


def _tell(done: Callable[[Rc], None], error: BookieError | None) -> None:
    done(Rc.OK if error is None else Rc.IO)
