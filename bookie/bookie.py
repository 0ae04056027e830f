"""A bookie put together: folders, journal, storage, and the loop that moves the mark.

Start      lock -> cookies -> storage opened -> journal replayed into it -> full flush -> lastMark -> new journal file -> serve
Checkpoint every flush interval, and when the write cache is half full:
           mark taken -> storage flushed -> lastMark written -> journal files before it deleted
Stop       adds refused -> journal drained -> checkpoint -> storage closed -> DIRTY removed

What is durable when: an entry when its journal group is synced, which is before it is acknowledged; lastMark never names a
place that the flush before it did not cover. A cancelled or failed bookie skips all of Stop, as if killed.

    <journal folder>/current/   VERSION, <hex>.txn
    <ledger folder>/current/    VERSION, lastMark, lastId, <hex>.log, ledgers/, locations/, DIRTY while it runs
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from bookie.config import BookieConfig
from bookie.cookie import check_cookies
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.storage import DbLedgerStorage, StorageOptions
from bookie.errors import (
    BookieError,
    CookieMismatchError,
    DirectoryInUseError,
    JournalFailedError,
    StorageFailedError,
    WriteCacheFullError,
)
from bookie.fencing import FenceTable, Waiter
from bookie.journal.format import (
    NO_MARK,
    ExplicitLac,
    Fence,
    LedgerKey,
    LogMark,
    Record,
    decode_last_mark,
    encode_last_mark,
)
from bookie.journal.replay import Replay
from bookie.journal.writer import Journal
from bookie.run import Run
from bookie.session import BookieSession, rc_of
from quire.metadata.bookies import Cookie
from quire.metadata.errors import MetadataError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, read_instance_id
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import DiskLock, World

log = get_logger(__name__)

LAST_MARK_FILE: Final = "lastMark"
DIRTY_FILE: Final = "DIRTY"
LOCK_FILE: Final = "quire.lock"
CHECKPOINT_RETRY_S: Final = 1.0
"""Seconds from a checkpoint that failed to the next try."""


@dataclass(slots=True)
class BookieStats:
    """Counts since start; plain numbers, read by the metrics at scrape time."""

    adds: int = 0
    """Entries taken into the write cache and the journal."""
    add_bytes: int = 0
    adds_refused: int = 0
    reads: int = 0
    """Read requests, batch reads counted once."""
    reads_cached: int = 0
    """Of these, answered from memory."""
    fences: int = 0
    journal_syncs: int = 0
    checkpoints: int = 0


class Bookie:
    """Made by `open_bookie`. Everything here runs on the loop, unsynchronised."""

    def __init__(self, world: World, config: BookieConfig, journal: Journal, storage: DbLedgerStorage) -> None:
        self.world = world
        self.config = config
        self.journal = journal
        self.storage = storage
        self.fences = FenceTable()
        self.read_only = False
        self.failed = trio.Event()
        """Set when the journal or the storage can no longer be trusted: stop serving and restart."""
        self.stats = BookieStats()
        self.reads_in_flight = 0
        self._reads_ended = trio.Event()
        self._dirty: list[BookieSession] = []
        self._flush_wanted = trio.Event()
        self._last_mark = NO_MARK
        self._stopping = False
        self._checkpoints_ended = trio.Event()
        self._nursery: trio.Nursery | None = None
        journal.on_pass = self._journal_pass_done
        journal.on_failed = self._journal_failed
        storage.on_flush_due = self.request_flush

    def session(self, write: Callable[[list[Buffer]], None]) -> BookieSession:
        """Serve one client, whose answers go to `write`: buffers that hold whole frames end to end."""
        return BookieSession(self, write)

    # --- for sessions

    def flush_later(self, session: BookieSession) -> None:
        """Send the session's answers when the journal's pass is over."""
        if not session.is_dirty:
            session.is_dirty = True
            self._dirty.append(session)

    def request_flush(self) -> None:
        """Begin a checkpoint soon."""
        self._flush_wanted.set()

    def fence(self, ledger_id: int, key: bytes, waiter: Waiter) -> None:
        """Write the FENCE record, or wait for the one that is on its way; `waiter` is called when it is durable."""
        if not self.fences.wait(ledger_id, waiter):
            return
        self.stats.fences += 1
        written = partial(self.fences.written, ledger_id)
        try:
            self.journal.append(Fence(ledger_id), written, key)
        except JournalFailedError as error:
            written(error)

    def read_by_worker(self, job: Callable[[], list[Buffer]], done: Callable[[list[Buffer] | None, Rc], None]) -> bool:
        """Run a read that needs the disk; False if too many are on their way."""
        if self.reads_in_flight >= self.config.reads_in_flight_max or self._nursery is None or self._stopping:
            return False
        self.reads_in_flight += 1
        self._nursery.start_soon(self._read, job, done, name="bookie read")
        return True

    async def _read(self, job: Callable[[], list[Buffer]], done: Callable[[list[Buffer] | None, Rc], None]) -> None:
        try:
            parts = await self.world.offload.run(job, name="bookie read")
        except (BookieError, OSError) as error:
            rc = rc_of(error)
            if rc is Rc.IO:
                log.error("read failed", error=str(error))
            done(None, rc)
        else:
            done(parts, Rc.OK)
        finally:
            self.reads_in_flight -= 1
            if not self.reads_in_flight:
                self._reads_ended.set()

    # --- journal

    def _journal_pass_done(self) -> None:
        self.stats.journal_syncs = self.journal.groups
        dirty, self._dirty = self._dirty, []
        for session in dirty:
            session.flush()

    def _journal_failed(self, error: JournalFailedError) -> None:
        self.failed.set()

    # --- checkpoints

    async def checkpoint(self) -> None:
        """Everything acknowledged until now is in the storage for good, and lastMark says so. OSError, StorageFailedError:
        lastMark stands where it stood. One at a time."""
        mark = self.journal.mark()
        await self.storage.flush()
        self.stats.checkpoints += 1
        if mark > self._last_mark:
            await self._write_last_mark(mark)
            await self.journal.checkpoint_complete(mark)

    async def _write_last_mark(self, mark: LogMark) -> None:
        path = f"{self.config.ledger_directory}/current/{LAST_MARK_FILE}"
        await self.world.offload.run(
            partial(self.world.disk.write_atomic, path, encode_last_mark(mark)), name="last mark"
        )
        self._last_mark = mark

    async def _checkpoint_loop(self) -> None:
        try:
            await self._checkpoint_often()
        finally:
            self._checkpoints_ended.set()

    async def _checkpoint_often(self) -> None:
        while not self._stopping:
            with trio.move_on_after(self.config.flush_interval_ms / 1000):
                await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            if self._stopping:
                return
            try:
                await self.checkpoint()
            except StorageFailedError as error:
                log.error("the storage has failed", error=str(error))
                self.failed.set()
                return
            except OSError as error:
                log.error("checkpoint failed, it will be tried again", error=str(error))
                await trio.sleep(CHECKPOINT_RETRY_S)

    # --- garbage

    async def collect_garbage(self, metadata: MetadataStore, instance_id: str) -> Collected:
        """Drop what belongs to deleted ledgers. MetadataError, OSError, BookieError: nothing or a part was dropped."""
        root = self.config.ledgers_root
        manager = LedgerManager(metadata, ids=SequenceLedgerIds(metadata, root), rng=self.world.rng, root=root)

        async def live_ledgers() -> set[int]:
            # A store that is not this cluster's, or empty, would call every ledger deleted.
            if await read_instance_id(metadata, root) != instance_id:
                raise CookieMismatchError(
                    f"the metadata store is not that of cluster {instance_id}: nothing is collected"
                )
            return {ledger_id async for ledger_id in manager.ledger_ids()}

        return await self.storage.collect_garbage(live_ledgers)

    async def _collect_often(self, metadata: MetadataStore, instance_id: str) -> None:
        while True:
            await trio.sleep(self.config.gc_wait_ms / 1000)
            try:
                collected = await self.collect_garbage(metadata, instance_id)
            except (MetadataError, BookieError, OSError) as error:
                log.warning("garbage collection failed, it will be tried again", error=str(error))
                continue
            if collected.ledgers or collected.logs:
                log.info(
                    "garbage collected",
                    ledgers=len(collected.ledgers),
                    logs=len(collected.logs),
                    bytes=collected.bytes,
                )

    # --- start and stop

    async def _replay(self) -> LogMark | None:
        """Put into the storage what the journal has behind lastMark; returns where it ends, None if there is no journal."""
        disk = self.world.disk
        run = self.world.offload.run
        mark = await run(self._read_last_mark, name="last mark")
        reading = Replay(disk, self._journal_folder, mark, self.config.skip_invalid_records)
        batches = reading.batches()
        while (records := await run(partial(next, batches, None), name="journal replay")) is not None:
            for record in records:
                await self._apply(record)
        self._last_mark = mark
        if reading.end == NO_MARK:
            return None
        if reading.records:
            log.info("journal replayed", records=reading.records, from_mark=str(mark), to_mark=str(reading.end))
        await self.storage.flush()
        if reading.end > mark:
            await self._write_last_mark(reading.end)
        return reading.end

    async def _apply(self, record: Record) -> None:
        storage = self.storage
        match record:
            case Run():
                if storage.master_key(record.ledger_id) is None:
                    # Its key is written before its first entry: the ledger has been deleted since.
                    log.info("journal record of a deleted ledger left out", ledger_id=record.ledger_id)
                    return
                try:
                    storage.add(record)
                except WriteCacheFullError:
                    await storage.flush()
                    storage.add(record)
            case LedgerKey(ledger_id, key):
                if storage.master_key(ledger_id) is None:
                    storage.set_master_key(ledger_id, key)
            case Fence(ledger_id):
                storage.set_fenced(ledger_id)
            case ExplicitLac(ledger_id, package):
                storage.set_explicit_lac(ledger_id, package)

    def _read_last_mark(self) -> LogMark:
        path = f"{self.config.ledger_directory}/current/{LAST_MARK_FILE}"
        try:
            mark = decode_last_mark(self.world.disk.read(path))
        except FileNotFoundError:
            return NO_MARK
        if mark is None:
            log.warning("lastMark is not 16 bytes long: every journal is replayed", file=path)
        return mark or NO_MARK

    @property
    def _journal_folder(self) -> str:
        return f"{self.config.journal_directory}/current"

    async def _open(self) -> None:
        await self.storage.open()
        await self.journal.open(await self._replay())

    def _start(self, nursery: trio.Nursery, metadata: MetadataStore, instance_id: str) -> None:
        self._nursery = nursery
        nursery.start_soon(self._checkpoint_loop, name="bookie checkpoints")
        nursery.start_soon(self.journal.run, name="journal groups")
        nursery.start_soon(self._collect_often, metadata, instance_id, name="bookie garbage")

    async def _stop(self) -> None:
        self.read_only = True
        self._stopping = True
        self._flush_wanted.set()
        await self._checkpoints_ended.wait()
        while self.reads_in_flight:  # they use what is closed below
            self._reads_ended = trio.Event()
            await self._reads_ended.wait()
        await self.journal.aclose()
        try:
            await self.checkpoint()
        except (OSError, StorageFailedError) as error:
            log.error("last checkpoint failed, the journal has everything", error=str(error))
        await self.storage.close()
        self._nursery = None


@asynccontextmanager
async def open_bookie(world: World, config: BookieConfig, metadata: MetadataStore) -> AsyncGenerator[Bookie, None]:
    """A bookie that serves within the block; closed cleanly at its end, abandoned (as if killed) if it is left by an
    exception. DirectoryInUseError, CookieMismatchError, JournalDamagedError, StorageDamagedError, OSError, MetadataError."""
    folders = (f"{config.journal_directory}/current", f"{config.ledger_directory}/current")
    instance_id = await read_instance_id(metadata, config.ledgers_root)
    locks = await world.offload.run(partial(_lock, world, config), name="bookie lock")
    try:
        cookie = Cookie(
            bookie_id=config.id,
            journal_directories=(_named(config.journal_directory, config.root),),
            ledger_directories=(_named(config.ledger_directory, config.root),),
            instance_id=instance_id,
        )
        await check_cookies(world, metadata, cookie, folders, ledgers_root=config.ledgers_root)
        dirty = f"{folders[1]}/{DIRTY_FILE}"
        await world.offload.run(partial(_mark_dirty, world, dirty), name="dirty")
        journal = Journal(world, folders[0], config.journal)
        bookie = Bookie(world, config, journal, _storage(world, config))
        await bookie._open()
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            bookie._start(nursery, metadata, instance_id)
            try:
                yield bookie
            except Exception as error:
                failure = error  # raised outside, so that the nursery does not wrap it
            else:
                await bookie._stop()
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not bookie.failed.is_set():
            await world.offload.run(partial(_unmark_dirty, world, dirty), name="dirty")
    finally:
        for lock in locks:
            lock.release()


def _storage(world: World, config: BookieConfig) -> DbLedgerStorage:
    write_cache = config.write_cache_mb << 20
    options = StorageOptions(
        write_cache_bytes_max=write_cache,
        flush_at_bytes=write_cache // 4,
        read_cache_bytes_max=config.read_cache_mb << 20,
        read_ahead_entries=config.read_ahead_entries,
        log_size_max=config.entry_log_size_max,
        block_cache_bytes=config.rocksdb_cache_bytes,
    )
    return DbLedgerStorage(world, config.ledger_directory, options)


def _named(folder: str, root: str) -> str:
    """A folder as the cookie names it."""
    return folder.removeprefix(root.rstrip("/") + "/") if root else folder


def _lock(world: World, config: BookieConfig) -> list[DiskLock]:
    locks: list[DiskLock] = []
    for folder in dict.fromkeys((config.journal_directory, config.ledger_directory)):
        world.disk.make_dirs(folder)
        try:
            locks.append(world.disk.lock(f"{folder}/{LOCK_FILE}"))
        except BlockingIOError as error:
            for lock in locks:
                lock.release()
            raise DirectoryInUseError(f"another process serves {folder}") from error
    return locks


def _mark_dirty(world: World, path: str) -> None:
    if world.disk.exists(path):
        log.info("the bookie was not shut down cleanly", file=path)
    world.disk.write_atomic(path, b"")


def _unmark_dirty(world: World, path: str) -> None:
    world.disk.unlink(path)
    world.disk.sync_dir(path.rpartition("/")[0])
