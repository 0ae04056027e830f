"""Writing the journal: everything queued during the last sync becomes one group, with one write and one fdatasync.

    append() on the loop  ->  Lane  ->  GroupWriter.write() in a thread of its own  ->  _done() on the loop

Invariants:
- A callback gets None only after the fdatasync that covers its record, so an ack means that replay finds the record.
- A group is written only when the one before it is synced. So a bad group with a good one behind it is damage
  (replay.py). Exceptions: groups of deferred adds alone and, with journalSyncData=false, groups without a force are not
  synced. The trailers of later groups say so, and the next synced group syncs them first. A new file begins only when
  the file before it is synced completely.
- A deferred add is reported when the kernel has it. `force` is reported after a sync that covers all that was reported
  earlier.
- A failed write (disk full) fails only its group: the file is cut back, and the next group takes its place.
- An fdatasync that fails is final. The kernel may have thrown the pages away and the next fdatasync would succeed
  without them. So nothing is acknowledged any more, and only a restart can determine what is on disk.
- The mark covers only records that are durable and that the storage had before they were appended: callers of `append`
  add the record to the write cache first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

import trio

from bookie.errors import BookieError, JournalFailedError
from bookie.journal.config import JournalConfig
from bookie.journal.format import Force, LogMark, Record
from bookie.journal.group_writer import GroupResult, GroupWriter, Item, KeysForgotten, OnDurable
from bookie.journal.replay import journal_ids
from bookie.journal.seal import SealedEnd
from bookie.journal.spares import next_id, trim
from quire.service.log import get_logger
from quire.service.measuring.summaries import BOUNDS, SIZE_BOUNDS, Times
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Lane, World

log = get_logger(__name__)

ITEM_OVERHEAD: Final = 400
"""Bytes that a waiting record costs besides its own: the queue's bound counts fences and forces too."""


class JournalBatch(NamedTuple):
    """Items given to the journal's thread together."""

    arrived_at: float
    """Time of the event loop at which the pass began that brought them."""
    items: list[Item]


class JournalTimes:
    """Distributions in milliseconds, entries and bytes; `_failed`: of what could not be written."""

    __slots__ = (
        "adds",
        "adds_failed",
        "flushed_empty",
        "flushed_full",
        "flushed_waited",
        "group_bytes",
        "group_entries",
        "queued",
        "syncs",
        "syncs_failed",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.adds, self.adds_failed = Times(), Times()
        """Times of entries from their arrival until they are in the journal."""
        self.syncs, self.syncs_failed = Times(), Times()
        """Times of a write with its sync."""
        self.group_entries, self.group_bytes = Times(SIZE_BOUNDS), Times(SIZE_BOUNDS)
        self.written_bytes = 0
        self.queued = Times()
        """Times of entries from their arrival until the write of their pass began."""
        self.flushed_empty = self.flushed_full = self.flushed_waited = 0
        """Groups that were written because nothing more waited, they were large enough, or their time was over."""

    def passed(
        self, batches: Sequence[JournalBatch], results: Sequence[GroupResult], now: float, *, waits: bool = False
    ) -> None:
        """Note the groups that the thread has written, and how long their entries took. `waits`: groups begin at a
        time or a size, not when the thread is idle."""
        # As `Times.observe`, without its call for each number.
        failed = False
        for result in results:
            failed = failed or result.error is not None
            syncs = self.syncs if result.error is None else self.syncs_failed
            took_ms = 1000 * result.took_s
            syncs.counts[bisect_left(BOUNDS, took_ms)] += 1
            syncs.total += took_ms
            if result.size:
                self.group_bytes.counts[bisect_left(SIZE_BOUNDS, result.size)] += 1
                self.group_bytes.total += result.size
                self.written_bytes += result.size
            if not waits:
                self.flushed_full += result.is_full
                self.flushed_empty += not result.is_full
        adds, entries = self.adds_failed if failed else self.adds, 0
        began_at = results[0].began_at if results else now
        for arrived_at, items in batches:
            count = 0
            for item in items:
                if isinstance(item.record, Run):
                    count += item.record.count
            entries += count
            took_ms = 1000 * (now - arrived_at)
            adds.counts[bisect_left(BOUNDS, took_ms)] += count
            adds.total += took_ms * count
            queued_ms = max(0.0, 1000 * (began_at - arrived_at))
            self.queued.counts[bisect_left(BOUNDS, queued_ms)] += count
            self.queued.total += queued_ms * count
        groups = len(results) or 1
        self.group_entries.counts[bisect_left(SIZE_BOUNDS, entries / groups)] += groups
        self.group_entries.total += entries


class Journal:
    """Half of the writer on the event loop. `failed` is set permanently when a sync has failed.

    `on_pass`: called after the callbacks of a pass, so that answers can leave in one write."""

    def __init__(self, world: World, directory: str, config: JournalConfig) -> None:
        self._world = world
        self._directory = directory
        self._config = config
        self._writer = GroupWriter(world.disk, directory, config)
        self._lane: Lane[JournalBatch] | None = None
        self.times = JournalTimes()
        self._mark = LogMark(0, 0)
        self._bytes_before: dict[int, int] = {}
        """Bytes in earlier files, of each file that this process began and that is not deleted."""
        self.trimmed = LogMark(0, 0)
        """Mark up to which the files were deleted."""
        self.on_pass: Callable[[], None] = _nothing
        self.on_failed: Callable[[JournalFailedError], None] = _ignore
        self.on_no_room: Callable[[str], None] = _say_nothing
        """Called with the reason when a group could not be written."""
        self.on_begun: Callable[[], None] = _nothing
        """Called when a new file was begun."""
        self.failed: JournalFailedError | None = None
        self._waiting: list[Item] = []
        self._waiting_size = 0
        self._waiting_entries = 0
        self._held = False
        self._held_at = 0.0
        """Time of the event loop at which the last pass began that held records back."""
        self._wake = trio.Event()
        self.queued_bytes = 0
        """Bytes appended and not yet reported, overhead included."""
        self.queued_items = 0
        """Records given to the journal's thread and not yet reported. Counted by batch."""
        self.has_unsynced = False
        """True if deferred adds were reported that no sync has covered yet."""
        self.groups = 0
        self.write_failures = 0
        self.written_at = float("-inf")
        """Time of the event loop at which the journal's thread last reported records."""

    async def open(self, previous: LogMark | None, seal: SealedEnd | None = None) -> None:
        """Begin a new file after all existing ones; `previous` is the end of the journal found by replay (None: no
        journal).

        Raises: OSError, JournalFailedError.
        """
        self._writer.seal = seal

        self._writer.now = trio.lowlevel.current_clock().current_time

        def create() -> None:
            ids = journal_ids(self._world.disk, self._directory)
            file_id = next_id(self._world.disk, self._directory, self._world.clock.wall_ms())
            known = previous if previous is not None and ids and previous.file_id == ids[-1] else None
            self._writer.create(file_id, known)

        await self._world.offload.run(create, name="journal open")
        self._mark = self.trimmed = self._writer.mark
        self._bytes_before = {self._mark.file_id: 0}
        self._lane = self._world.offload.lane("journal", self._write, self._done)

    @property
    def journals(self) -> tuple[Journal, ...]:
        """Return all journals of the bookie: this one. See bookie/directories for several."""
        return (self,)

    def of(self, ledger_id: int) -> Journal:
        """Return the journal of the ledger."""
        return self

    @property
    def waiting_items(self) -> int:
        """Return the number of records that wait for the journal, or are being written."""
        return self.queued_items + len(self._waiting)

    @property
    def creations(self) -> Times:
        """Return the times of beginning files."""
        return self._writer.creations

    def has_room(self, size: int) -> bool:
        """Return whether `size` bytes more may be queued. One record above the bound is always accepted."""
        return self.queued_bytes == 0 or self.queued_bytes + size <= self._config.queue_size_max

    def append(
        self,
        record: Record | KeysForgotten,
        on_durable: OnDurable,
        key: bytes | None = None,
        deferred: bool = False,
    ) -> None:
        """Queue a record; `on_durable(None)` is called when it is on disk, `on_durable(error)` if it failed.

        With `key`, the ledger's master key is written before it, if this process has not written it yet or
        `forget_keys` was called. `deferred`: report it when the kernel has it; `force` makes it durable.

        The storage must have the record already (see `mark`). Raises JournalFailedError, and then calls nothing.
        """
        if self.failed is not None:
            raise self.failed
        assert self._lane is not None, "open comes first"
        size = record.size if isinstance(record, Run) else len(record.encode())
        self.queued_bytes += size + ITEM_OVERHEAD
        item = Item(record, size, key, on_durable, deferred)
        self._waiting.append(item)
        if self._config.group_wait_s:
            self._waiting_size += size
            self._waiting_entries += record.count if isinstance(record, Run) else 1
            self._wake.set()
        elif not self._held:
            self._release()

    def hold(self) -> None:
        """Hold back appended records until `let_go`, in the same pass, to wake the journal's thread only once for all
        of them.
        """
        self._held = True
        self._held_at = trio.current_time()

    def let_go(self) -> None:
        """End `hold`."""
        self._held = False
        if self._waiting and not self._config.group_wait_s:
            assert self._lane is not None
            self.queued_items += len(self._waiting)
            self._lane.put(JournalBatch(self._held_at, self._waiting))
            self._waiting = []

    def force(self, ledger_id: int, on_durable: OnDurable) -> None:
        """Call `on_durable` when everything reported so far is on disk. Raises as `append`."""
        self.append(Force(ledger_id), on_durable)

    def forget_keys(self, ledgers: Sequence[int]) -> None:
        """Forget the keys of these ledgers, as the storage has.

        The next append to such a ledger is the first of a new ledger and needs its key record. Otherwise a replay would
        take it for the rest of the deleted ledger.
        """
        if self.failed is None and self._lane is not None:
            self.append(KeysForgotten(ledgers), _whatever)

    async def sync_often(self) -> None:
        """Without `sync`, sync written records every `sync_interval_s` until cancelled.

        Source: BookKeeper's journalPageCacheFlushIntervalMSec.
        """
        while not self._config.sync:
            await trio.sleep(self._config.sync_interval_s)
            if self.has_unsynced and self.failed is None and self._lane is not None:
                self.force(-1, _whatever)

    async def run(self) -> None:
        """Begin groups at their time until cancelled; needed only with `group_wait_s`."""
        while True:
            await self._wake.wait()
            deadline = trio.current_time() + self._config.group_wait_s
            with trio.move_on_at(deadline):
                while not self._is_group():
                    self._wake = trio.Event()
                    await self._wake.wait()
            self._wake = trio.Event()
            if self._is_group():
                self.times.flushed_full += 1
            else:
                self.times.flushed_waited += 1
            self._release()

    def _is_group(self) -> bool:
        """Return whether enough is waiting to begin a group before its time."""
        most = self._config.group_entries
        return self._waiting_size >= self._config.group_bytes or 0 < most <= self._waiting_entries

    def _release(self) -> None:
        assert self._lane is not None
        items, self._waiting = self._waiting, []
        self._waiting_size = self._waiting_entries = 0
        if items:
            self.queued_items += len(items)
            self._lane.put(JournalBatch(trio.current_time(), items))

    def _write(self, batches: list[JournalBatch]) -> list[GroupResult]:
        return self._writer.write(list(chain.from_iterable([batch.items for batch in batches])))

    def _done(
        self, batches: list[JournalBatch], results: list[GroupResult] | None, error: BaseException | None
    ) -> None:
        items = list(chain.from_iterable([batch.items for batch in batches]))
        if results is None:
            # Our own code does not raise here. If it does, the content of the disk is unknown and the journal must
            # stop.
            failure = JournalFailedError(f"the journal's thread failed: {error!r}")
            results = [GroupResult(len(items), None, failure)]
        self.written_at = trio.current_time()
        self.times.passed(batches, results, self.written_at, waits=self._config.group_wait_s > 0)
        self.queued_items -= len(items)
        index = 0
        for count, mark, group_error, synced, *_ in results:
            if mark is not None:
                if mark.file_id != self._mark.file_id:
                    self._bytes_before[mark.file_id] = self._position(self._mark)
                    self.on_begun()
                self._mark = mark
                self.groups += 1
                self.has_unsynced = not synced
            elif isinstance(group_error, JournalFailedError):
                self._fail(group_error)
            else:
                self.write_failures += 1
                log.error("journal group not written, refusing its adds", reason=str(group_error))
                self.on_no_room(str(group_error))
            for item in items[index : index + count]:
                self.queued_bytes -= item.size + ITEM_OVERHEAD
                item.on_durable(group_error)
            index += count
        self.on_pass()

    def _fail(self, error: JournalFailedError) -> None:
        if self.failed is None:
            self.failed = error
            log.error("journal failed, acknowledging nothing more; restart the bookie", reason=str(error))
            self.on_failed(error)

    def mark(self) -> LogMark:
        """Return a position up to which everything is durable and in the storage's write cache, or further.

        Take it before a flush. When the flush is done, replay may start here.
        """
        return self._mark

    def _position(self, mark: LogMark) -> int:
        """Return the bytes that this process has written before the mark, headers included."""
        return self._bytes_before.get(mark.file_id, 0) + mark.offset

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that this process has written behind the last mark up to which the files were deleted."""
        return self._position(self._mark) - self._position(self.trimmed)

    def economize(self, on: bool) -> None:
        """Start or stop saving disk space, while the disk is full.

        The current file is ended once, so that the next checkpoint can delete it.
        """
        if on and not self._writer.economizes:
            self._writer.roll_wanted = True
        self._writer.economizes = on

    async def checkpoint_complete(self, mark: LogMark) -> None:
        """Delete the files before `mark`, which lastMark holds now, except the newest `backups` of them, and one to be
        reused. OSError.
        """

        def delete() -> None:
            economizes, config = self._writer.economizes, self._config
            trim(
                self._world.disk,
                self._directory,
                mark,
                backups=0 if economizes else config.backups,
                spare_size_min=config.file_size_max // 2 if config.reuse and not economizes else None,
            )

        await self._world.offload.run(delete, name="journal trim")
        self.trimmed = max(self.trimmed, mark)
        for file_id in [each for each in self._bytes_before if each < self.trimmed.file_id]:
            del self._bytes_before[file_id]

    async def aclose(self) -> None:
        """Write what is queued, report it, close the file."""
        lane = self._lane
        if lane is not None:
            self._release()
            self._lane = None
            await lane.aclose()
        await self._world.offload.run(self._writer.close, name="journal close")


def _nothing() -> None: ...


def _say_nothing(_: str) -> None: ...


def _whatever(_: BookieError | None) -> None: ...


def _ignore(_: JournalFailedError) -> None: ...
