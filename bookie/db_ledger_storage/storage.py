"""Entry storage of a bookie: the write path and the read path over the other modules of this package.

    add -> write cache -> (flush) -> entry log + location index
    read <- write cache, read cache, entry log by location, reading ahead

The loop calls what is sync and does not say "blocking"; reads are in entry_reader.py. The journal comes before all
this: an entry that is only here, in memory, is in the journal.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import trio

from bookie.db_ledger_storage import garbage_collector
from bookie.db_ledger_storage.alone import OneOfSeveral
from bookie.db_ledger_storage.compaction.compactor import LogCompactor
from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionResult
from bookie.db_ledger_storage.compaction.whole_files import WholeFiles
from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_reader import EntryReader
from bookie.db_ledger_storage.forgotten_fences import FILE_NAME, ForgottenFences
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.ledger_index import LedgerIndex, LedgerRow
from bookie.db_ledger_storage.ledger_removal import LedgerRemoval
from bookie.db_ledger_storage.limbo_rows import LimboRows
from bookie.db_ledger_storage.location_index import LocationIndex
from bookie.db_ledger_storage.log_map import FOLDER, LogMap, LogUsage
from bookie.db_ledger_storage.log_writing.flush import FlushJob, make_log_ahead
from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogStats
from bookie.db_ledger_storage.options import StorageOptions, StorageStats
from bookie.db_ledger_storage.parts import StorageParts, change_maps
from bookie.db_ledger_storage.read_cache import ReadCache
from bookie.db_ledger_storage.upkeep import Upkeep
from bookie.db_ledger_storage.write_cache import WriteCache
from bookie.errors import StorageDamagedError
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run
from quire.world.damage import DamagedError
from quire.world.doors import KeyValue, World

log = get_logger(__name__)


class DbLedgerStorage(OneOfSeveral):
    """Entries and ledger facts of one bookie directory.

    Stored in `<directory>/current`; the indexes in `<index_directory>/current`, if that is given.
    """

    def __init__(
        self,
        world: World,
        directory: str,
        options: StorageOptions | None = None,
        *,
        index_directory: str | None = None,
    ) -> None:
        self._world = world
        self._options = options or StorageOptions()
        self._current = f"{directory}/current"
        self._index_current = f"{index_directory or directory}/current"
        self.locations_path = f"{self._index_current}/locations"
        self._cache = WriteCache(self._options.write_cache_bytes_max)
        self._read_cache = ReadCache(self._options.read_cache_bytes_max)
        self._logs = EntryLogs(
            world.disk,
            self._current,
            size_max=self._options.log_size_max,
            sync_every=self._options.sync_every_bytes,
            page_cache=self._options.page_cache_bytes,
            ledger_logs=self._options.ledger_logs,
            reads=lambda: self.stats.disk_reads,
        )
        self.open_logs = self._logs.readers
        self._forgotten_fences = ForgottenFences(world.disk, f"{self._current}/{FILE_NAME}", world.clock.wall_ms)
        self._locations: LocationIndex
        self.limbo: LimboRows
        self.reader: EntryReader
        """From `open` on, as `limbo`."""
        self._is_new = True
        """True if the indexes may be created; otherwise they must exist."""
        self._removal = LedgerRemoval()
        self.held_ledgers: Collection[int] = self._removal.held
        """Forgotten ledgers that accept no adds before a checkpoint: see `release_ledgers`."""
        self.upkeep: Upkeep
        self.parts: StorageParts
        """From `open` on, as `upkeep`."""
        self._log_map: LogMap | None = None
        self._whole_files = WholeFiles(world.disk, self._current, self._logs, self._options.copies_sync_every)
        self._compactor: LogCompactor
        self._flush_lock = trio.Lock()
        self._collecting = trio.Lock()
        self._flush_at = self._options.flush_at_bytes
        self._flush_asked = False
        self._end_log = False
        self._end_copies = False
        self.on_flush_due: Callable[[], None] | None = None
        """Called once, synchronously, when the write cache is full enough for a flush, and once after each flush."""
        self.on_flushed: Callable[[], None] | None = None
        """Called when a flush has made room in the write cache."""
        self.on_forgotten: Callable[[Sequence[int]], None] | None = None
        """Called synchronously when ledgers are forgotten: any later record of such a ledger is its first."""
        self.stats = StorageStats()

    # ---------------------------------------------------------------------------------------------------- life

    async def open(self, *, has_served: bool = False, has_seal: bool = False) -> None:
        """Open the indexes, load the ledgers. StorageDamagedError if the ledger index cannot be read; OSError.

        `has_served`: the folder was in use before, and has its indexes; `has_seal`: and has its forgotten fences too,
        which older versions and BookKeeper do not write."""
        await self._world.offload.run(partial(self._open, has_served, has_seal), name="open storage")
        self.reader.now = trio.lowlevel.current_clock().current_time

    def _open(self, has_served: bool, has_seal: bool) -> None:
        self._is_new = not has_served
        self._world.disk.make_dirs(self._current)
        self._whole_files.start()
        self._logs.open()
        self._forgotten_fences.load(must_exist=has_seal)
        shapes = self._options.index_shapes(self._world.disk)
        ledger_rows = self._open_map("ledgers", shapes)
        self._ledgers = LedgerIndex(ledger_rows, self._forgotten_fences.__contains__)
        try:
            self._locations = LocationIndex(self._open_map("locations", shapes))
        except BaseException:
            ledger_rows.close()
            raise
        self.reader = EntryReader(
            self._cache, self._read_cache, self._logs, self._locations, self._ledgers, self._options, self.stats
        )
        try:
            self._prepare_upkeep()
            self._ledgers.load()
            self.limbo = LimboRows(self._ledgers, ledger_rows)
        except BaseException:
            self._close()
            raise

    def _prepare_upkeep(self) -> None:
        logs, locations = self._logs, self._locations
        noted = locations.log_ledgers
        logs.before_create = noted.begin
        logs.contents.noted = noted.read
        existing = set(logs.ids())
        noted.drop([log_id for log_id in noted.logs() if log_id not in existing])
        log_map = LogMap(logs.contents, self._open_log_map())
        self._log_map = log_map
        log_map.start(existing)
        self.parts = parts = StorageParts(
            world=self._world,
            folder=self._current,
            cache=self._cache,
            read_cache=self._read_cache,
            logs=logs,
            log_map=log_map,
            locations=locations,
            ledgers=self._ledgers,
            removal=self._removal,
            forgotten_fences=self._forgotten_fences,
            stats=self.stats,
            flushing=self._flush_lock,
        )
        self.upkeep = Upkeep(parts)
        self.upkeep.on_forgotten = self._forgotten
        self._compactor = LogCompactor(parts, self.upkeep, self._options.compaction, self._whole_files)

    def _open_log_map(self) -> KeyValue | None:
        """Open the map of the ledgers of each log; None if there is to be none, or if it is damaged."""
        if not self._options.keep_log_map:
            return None
        path = f"{self._options.log_map_folder or self._current}/{FOLDER}"
        self._world.disk.make_dirs(path.rpartition("/")[0])
        try:
            return self._world.key_value.open(path, create=True, cache_bytes=1 << 20)
        except DamagedError as error:
            log.warning("damaged, delete it; until then each log is read instead", folder=path, reason=str(error))
            return None

    def _forgotten(self, ledgers: Sequence[int]) -> None:
        if self.on_forgotten is not None:
            self.on_forgotten(ledgers)

    def _open_map(self, name: str, shapes: Mapping[str, Mapping[str, Any]]) -> KeyValue:
        """Open one of the two indexes.

        Once the bookie has served they are never created again: an empty index would make every entry absent.
        """
        path = f"{self._index_current}/{name}"
        try:
            map_ = self._world.key_value.open(path, create=self._is_new, **shapes[name])
        except FileNotFoundError as error:
            raise StorageDamagedError(
                f"{path} is missing, and the bookie has served before: restore it, or copy the bookie's ledgers "
                "from other bookies"
            ) from error
        for finding in map_.noticed:
            log.warning("found when an index was opened", file=finding.file, found=finding.what)
        return map_

    async def close(self) -> None:
        """Seal the entry log and close everything.

        Does not flush: entries held only by the write cache are in the journal.
        """
        async with self._flush_lock:
            await self._world.offload.run(self._close, name="close storage")

    def _close(self) -> None:
        try:
            self._logs.close()
        finally:
            if self._log_map is not None:
                self._log_map.close()
            self._locations.close()
            self._ledgers.close()

    # --------------------------------------------------------------------------------------------------- write

    def add(self, run: Run) -> None:
        """Add a run to the write cache. WriteCacheFullError if there is no room; then nothing was added."""
        self._cache.add(run)
        if self._removal.watching:
            self._removal.touched(run.ledger_id)
        read_cache = self._read_cache
        if read_cache.size or read_cache.arrived:
            read_cache.forget_overlap(run)
        if self._cache.active.size >= self._flush_at and not self._flush_asked:
            self._flush_asked = True
            if self.on_flush_due is not None:
                self.on_flush_due()

    @property
    def flush_due(self) -> bool:
        """Return whether the write cache is full enough for a flush to begin."""
        return self._cache.active.size >= self._flush_at or self._cache.flushing is not None

    @property
    def read_cache_bytes(self) -> int:
        """Return the cost of the runs in the read-ahead cache."""
        return self._read_cache.size

    @property
    def write_cache_bytes(self) -> int:
        """Return the cost of the write cache in bytes."""
        return self._cache.size

    @property
    def unflushed_bytes(self) -> int:
        """Return the bytes in the write cache that are not in an entry log yet."""
        return self._cache.size

    def end_log_later(self) -> None:
        """End the entry log with the next flush, so that entries added later do not prevent its deletion."""
        self._end_log = True

    async def flush(self) -> None:
        """Make everything that was added or set before this call durable in the entry log and the indexes.

        Afterwards the caller may move the journal's mark to its position before the call. OSError or
        StorageFailedError: nothing is certain, everything stays readable, and the next flush tries again.
        """
        async with self._flush_lock:
            await self._end_idle_logs()
            if self._removal.rows_left:
                await self.upkeep.delete_rows()  # before rows of a new life are written
            if self._cache.flushing is not None:
                await self._flush_table()  # the last flush failed to write these
            await self._flush_table()
            if self._options.log_ahead:
                await make_log_ahead(self._world.offload, self._logs)
            if self._end_log:
                self._end_log = False
                self._end_copies = True
                await self._world.offload.run(self._logs.end_active, name="end entry log")

    async def _flush_table(self) -> None:
        table = self._cache.begin_flush()
        ledgers = self._ledgers.take_dirty()
        self._flush_asked = False
        now = trio.lowlevel.current_clock().current_time
        job = FlushJob(parts=self.parts, table=table, ledgers=ledgers, now=now)
        done, began = False, trio.current_time()
        try:
            if table.entries or ledgers:
                await change_maps(self._world.offload, job.run, "flush")
            done = True
        finally:
            if not done:
                self._ledgers.mark_dirty(ledgers)
        self._cache.end_flush()
        if table.entries:
            self.stats.flushes += 1
            self.stats.flush_times.observe(1000 * (trio.current_time() - began))
            self.stats.flushed_entries += table.entries
            self.stats.flushed_bytes += table.size
            if self.on_flushed is not None:
                self.on_flushed()

    async def _end_idle_logs(self) -> None:
        """End the logs of ledgers that have had no entries for long. Not concurrently with a flush."""
        logs = self._logs.ledger_logs
        if logs is not None:
            logs.now = trio.current_time()
            if logs.has_idle():
                await self._world.offload.run(logs.end_idle, name="end idle logs")

    # -------------------------------------------------------------------------------------------------- ledgers

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """Return the state of a ledger besides its entries, None if it is unknown."""
        return self._ledgers.get(ledger_id)

    def master_key(self, ledger_id: int) -> bytes | None:
        """Return the master key of the ledger, None if the ledger is unknown; b"" if it is known without a key."""
        state = self._ledgers.get(ledger_id)
        return None if state is None else state.master_key

    def key_and_fence(self, ledger_id: int) -> tuple[bytes | None, bool]:
        """The key of the ledger, None if there is none; and as `is_fenced`. For each run that is added."""
        return self._ledgers.key_and_fence(ledger_id)

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        """Make the ledger known.

        Kept in memory until the next flush, as all changes below: the journal has them first.
        """
        self._removal.touched(ledger_id)
        self._ledgers.set_master_key(ledger_id, key)

    def is_fenced(self, ledger_id: int) -> bool:
        """Return whether the ledger is fenced, also for an unknown one that was fenced when it was deleted
        (forgotten_fences.py).
        """
        return self._ledgers.is_fenced(ledger_id)

    def set_fenced(self, ledger_id: int) -> None:
        """Fence the ledger permanently."""
        self._removal.touched(ledger_id)
        self._ledgers.set_fenced(ledger_id)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """Return the last explicit LAC package of the ledger."""
        state = self._ledgers.get(ledger_id)
        return None if state is None else state.explicit_lac

    def set_explicit_lac(self, ledger_id: int, package: bytes) -> None:
        self._removal.touched(ledger_id)
        self._ledgers.set_explicit_lac(ledger_id, package)

    def ledgers(self) -> list[int]:
        """Return the ids of all known ledgers, sorted."""
        return self._ledgers.ledgers()

    # -------------------------------------------------------------------------------------------------- garbage

    async def collect_garbage(
        self,
        live_ledgers: Callable[[], AsyncGenerator[int, None]],
        are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None,
        settle: Callable[[], Awaitable[None]] | None = None,
    ) -> Collected:
        """Delete the ledgers that are no longer live, and the entry logs that no ledger needs.

        `settle` makes a checkpoint. See garbage_collector.py.
        """
        async with self._collecting:
            async with self._flush_lock:
                await self._end_idle_logs()
            if self._end_copies:
                self._end_copies = False
                await self._compactor.end_log()
            await self._compactor.finish_pending()
            collected = await garbage_collector.collect(self.upkeep, live_ledgers, are_gone, settle, self.stats)
        self.stats.deleted_ledgers += len(collected.ledgers)
        self.stats.reclaimed_bytes += collected.bytes
        self.stats.failed_logs += len(collected.failed)
        return collected

    async def compact(
        self, kind: CompactionKind, threshold: float, max_s: float = 0, goes_on: Callable[[], bool] = lambda: True
    ) -> CompactionResult:
        """Move what is left in entry logs of which less than `threshold` is needed, and delete these; after a round of
        `collect_garbage`.

        `max_s`: seconds it may take; 0: no bound. `goes_on`: asked often; False ends it. StorageFailedError.
        """
        async with self._collecting:
            compacted = await self._compactor.compact(kind, threshold, max_s, goes_on)
        self.stats.compactions[kind] += 1
        self.stats.compacted_bytes += compacted.reclaimed_bytes
        if compacted.chosen:
            self.stats.compaction_ratio = len(compacted.logs) / compacted.chosen
        return compacted

    def healed(self, log_id: int) -> None:
        """Damaged entries of a log were written again elsewhere: compaction need no longer leave the log alone."""
        self._compactor.healed(log_id)

    async def compact_locations(self) -> None:
        """Compact the map of the location index: it is written anew without the rows that were deleted."""
        await self._world.offload.run(self._locations.compact, name="compact locations")
        self.stats.location_compactions += 1

    @property
    def ledger_log_stats(self) -> LedgerLogStats:
        """Counters of the logs of single ledgers."""
        return self._logs.ledger_stats

    def log_usages(self) -> list[LogUsage]:
        """Return how much of each entry log is needed, as of the last round of `collect_garbage`."""
        return [] if self._log_map is None else self._log_map.usages()

    def removed_ledgers(self) -> list[int]:
        """Return the held ledgers that a checkpoint starting now frees.

        Pass them to `release_ledgers` when lastMark is written.
        """
        return self._removal.removed

    def release_ledgers(self, ledgers: Iterable[int]) -> None:
        """Release these ledgers: the journal's mark has passed all their records from before they were forgotten."""
        self._removal.release(ledgers)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Forget a ledger and its entries; its bytes are freed when their entry logs are deleted."""
        await self.delete_ledgers([ledger_id])

    async def delete_ledgers(
        self, ledgers: list[int], are_gone: Callable[[list[int]], Awaitable[list[int]]] | None = None
    ) -> list[int]:
        """As `delete_ledger`, for many at once; return the deleted ones.

        Deletes those that `are_gone` confirms, if given, and that nothing touches from now on.

        OSError: a part of them may be forgotten; the next flush or round continues. StorageFailedError.
        """
        return await self.upkeep.delete_ledgers(ledgers, are_gone)

    async def local_ledgers(self) -> set[int]:
        """Return every ledger with any data here: known, with entries in the write cache, or with rows left by an
        earlier process.
        """
        async with aclosing(self.upkeep.local_ledgers()) as ranges:
            return {ledger_id async for ledgers in ranges for ledger_id in ledgers}
