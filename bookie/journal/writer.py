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

Space is reserved 16 MB ahead (posix_fallocate), so that fdatasync rarely has to commit a new file size. Measured on
ext4: 1.5 KB groups take 0.15 ms instead of 0.20 ms in a growing file; writing zeros instead of reserving gives 0.13 (64
KB groups: 0.17 instead of 0.26), but
stalls for 4 ms per 4 MB, 60 ms per 16 MB, and is slower in total from 256 KB on.

The journal is read only at startup, so it bypasses the page cache (`direct`), unless the configuration wants it kept
there or does not wait for the disk. Measured on ext4, CPU of a group of 64 KB 115 us instead of 140, of 3 MB 0.75 ms
instead of 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, NoReturn, TypeAlias

import trio

from bookie.errors import BookieError, JournalFailedError, JournalWriteError
from bookie.journal.format import (
    HEADER_SIZE,
    Force,
    LedgerKey,
    LogMark,
    Record,
    encode_header,
    file_name,
    group_size,
    seal_group,
)
from bookie.journal.replay import journal_ids
from bookie.journal.seal import JournalSeal
from bookie.run import Run
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Buffer
from quire.world.doors import Disk, File, Lane, NotSyncedError, World

log = get_logger(__name__)

OnDurable: TypeAlias = Callable[[BookieError | None], None]

GROUP_SIZE_MAX: Final = 4 << 20
"""A group is closed at the first run that passes this many bytes; a long queue is written as several, each synced."""

GROUP_WAIT_SIZE: Final = 512 << 10
"""Bytes that end the wait for more entries. Source: journalBufferedWritesThreshold."""

KEYS_REMEMBERED_MAX: Final = 1 << 16
"""Ledgers whose key record is known to be written.

Above this number they are forgotten, and a key may be written twice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Sizes in bytes."""

    file_size_max: int = 2048 << 20
    """journalMaxSizeMB: a group that would exceed it begins a new file."""
    preallocate: int = 16 << 20
    """journalPreAllocSizeMB; 0: none."""
    backups: int = 5
    """journalMaxBackups: old files kept before the mark."""
    queue_size_max: int = 64 << 20
    """journalMaxMemorySizeMb: bytes that may wait to be written."""
    group_wait_s: float = 0.0
    """journalMaxGroupWaitMSec: seconds to wait for more records before a group begins; GROUP_WAIT_SIZE bytes end the
    wait.
    """
    sync: bool = True
    """journalSyncData: false acknowledges records that the kernel has taken.

    A power cut then loses acknowledged entries of up to the last `sync_interval_s`. A force is synced nevertheless.
    """
    sync_interval_s: float = 1.0
    """journalPageCacheFlushIntervalMSec: without `sync`, seconds between two syncs."""
    remove_from_page_cache: bool = True
    """journalRemoveFromPageCache: bypass the page cache, or release synced pages."""


FORGET_STEP: Final = 4 << 20
"""Bytes after which the journal's pages are released."""

ITEM_OVERHEAD: Final = 400
"""Bytes that a waiting record costs besides its own: the queue's bound counts fences and forces too."""


class KeysForgotten(NamedTuple):
    """Note that the storage forgot these ledgers: their keys are written again before their next records.

    Never in a file.
    """

    ledgers: Sequence[int]
    ledger_id: int = -1

    def encode(self) -> bytes:
        return b""


class Item(NamedTuple):
    """Item waiting on the lane. `key` is the ledger's master key, written before its first record."""

    record: Record | KeysForgotten
    size: int
    key: bytes | None
    on_durable: OnDurable
    deferred: bool = False


class GroupResult(NamedTuple):
    """Result for the next `items` items.

    `mark` is the position up to which the journal is synced, None if they are not in it.
    """

    items: int
    mark: LogMark | None
    error: BookieError | None
    synced: bool = True


class GroupWriter:
    """Blocking half of the writer: owns the open file. Called from one thread at a time."""

    def __init__(self, disk: Disk, directory: str, config: JournalConfig) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self.seal: JournalSeal | None = None
        """Seal that records the end of the synced journal."""
        self._file: File | None = None
        self._file_id = -1
        self._position = 0
        self._reserved = 0
        """End of the reserved space; preallocation is not tried again before this position."""
        self._forgotten = 0
        """End of the part of the file whose pages were released."""
        self._keys: set[int] = set()
        self._synced = -1
        """End of the synced part of the file, if unsynced bytes follow; -1 if none do."""
        self._failed: JournalFailedError | None = None
        self.economizes = False
        """True while the disk is full: no space is reserved ahead. Set from another thread."""
        self.roll_wanted = False
        """True to begin a new file with the next group, so that this one can be deleted. Set from another thread."""

    @property
    def mark(self) -> LogMark:
        """Return where the next group goes; while there are unsynced groups, where the first of them begins."""
        return LogMark(self._file_id, self._position if self._synced < 0 else self._synced)

    def create(self, file_id: int, previous: LogMark | None) -> None:
        """Begin file `file_id`: its header and its name are durable on return.

        OSError: nothing has changed. JournalFailedError: the seal may not have recorded it.
        """
        path = f"{self._directory}/{file_name(file_id)}"
        direct = self._config.sync and self._config.remove_from_page_cache
        file = self._disk.open(path, create=True, direct=direct)
        try:
            file.pwrite(encode_header(file_id, previous), 0)
            file.sync()
            self._disk.sync_dir(self._directory)
        except BaseException:
            file.close()
            self._disk.unlink(path)
            raise
        if self._file is not None:
            self._file.close()
        self._file = file
        self._file_id = file_id
        self._position = self._reserved = HEADER_SIZE
        self._forgotten = 0
        if self.seal is not None:
            self.seal.begun(self.mark)

    def write(self, items: list[Item]) -> list[GroupResult]:
        """Write the items as one group, or as several if they are many; return a result per group, in order."""
        results: list[GroupResult] = []
        start = 0
        size = 0
        for index, item in enumerate(items, 1):
            size += item.size
            if size >= GROUP_SIZE_MAX or index == len(items):
                results.append(self._write_group(items[start:index]))
                start, size = index, 0
        return results

    def _write_group(self, items: list[Item]) -> GroupResult:
        if self._failed is not None:
            return GroupResult(len(items), None, self._failed)
        parts, size, keys = self._gather(items)
        try:
            self._make_room(group_size(size))
            file = self._file
            assert file is not None, "create comes first"
            deferred = self._is_deferred(items)
            if not deferred and self._synced >= 0:
                self._sync(file)
            total = seal_group(parts, size, self._file_id, self._position, after_unsynced=self._synced >= 0)
            if deferred:
                self._write(file, parts)
                self._synced = self._position if self._synced < 0 else self._synced
            else:
                self._write_synced(file, parts)
        except JournalFailedError as error:
            self._failed = error
            return GroupResult(len(items), None, error)
        except JournalWriteError as error:
            return GroupResult(len(items), None, error)
        self._position += total
        if self.seal is not None and self._config.sync and not deferred:
            self.seal.reached(self.mark)
        if self._config.remove_from_page_cache and self._position - self._forgotten >= FORGET_STEP:
            # Where it went through the page cache after all: giving its pages back at once keeps the following writes
            # in memory that is warm. With page after page of new memory, copying into it was half of a bookie's CPU
            # time.
            file.forget(self._forgotten, self._position - self._forgotten)
            self._forgotten = self._position
        if len(self._keys) > KEYS_REMEMBERED_MAX:
            self._keys.clear()
        self._keys.update(keys)
        return GroupResult(len(items), self.mark, None, not deferred)

    def _is_deferred(self, items: list[Item]) -> bool:
        """Return whether the group may be reported before it is synced."""
        if self._config.sync:
            return items[0].deferred and all([item.deferred for item in items])
        return not any([type(item.record) is Force for item in items])

    def _gather(self, items: list[Item]) -> tuple[list[Buffer], int, set[int]]:
        """Return the group's parts, their size, and the ledgers whose key is in it."""
        parts: list[Buffer] = []
        size = 0
        written = self._keys
        keys: set[int] = set()
        for record, record_size, key, _, _ in items:
            ledger_id = record.ledger_id
            if key is not None and ledger_id not in written and ledger_id not in keys:
                keys.add(ledger_id)
                encoded = LedgerKey(ledger_id, key).encode()
                parts.append(encoded)
                size += len(encoded)
            if isinstance(record, Run):
                parts += record.parts
            elif isinstance(record, KeysForgotten):
                written.difference_update(record.ledgers)
                keys.difference_update(record.ledgers)
            else:
                parts.append(record.encode())
            size += record_size
        return parts, size, keys

    def _make_room(self, size: int) -> None:
        """Begin a new file if this one is full, and reserve space. JournalWriteError, JournalFailedError."""
        config = self._config
        full = self._position + size > config.file_size_max
        if (full or self.roll_wanted) and self._position > HEADER_SIZE:
            if self._synced >= 0:
                assert self._file is not None
                self._sync(self._file)  # the next file's header promises that this file is complete
            mark = self.mark
            try:
                self.create(mark.file_id + 1, mark)
            except OSError as error:
                if full:
                    raise JournalWriteError(f"cannot begin a new journal file: {error}") from error
            self.roll_wanted = False
        if config.preallocate and not self.economizes and self._position + size > self._reserved:
            start = max(self._position, self._reserved)
            length = self._position + size - start + config.preallocate
            self._reserved = start + length
            file = self._file
            assert file is not None
            try:
                file.preallocate(start, length)
            except OSError as error:
                # The write itself shows whether there is room for it.
                log.warning("journal space cannot be reserved", file=file_name(self._file_id), error=str(error))

    def _write_synced(self, file: File, parts: Sequence[Buffer]) -> None:
        try:
            file.pwritev_sync(parts, self._position)
        except NotSyncedError as error:
            raise JournalFailedError(f"the journal cannot be synced: {error}") from error
        except OSError as error:
            self._cut_back(file, error)

    def _sync(self, file: File) -> None:
        """Sync what was written without a sync."""
        try:
            file.sync()
        except OSError as error:
            raise JournalFailedError(f"the journal cannot be synced: {error}") from error
        self._synced = -1

    def _write(self, file: File, parts: Sequence[Buffer]) -> None:
        try:
            file.pwritev(parts, self._position)
        except OSError as error:
            self._cut_back(file, error)

    def _cut_back(self, file: File, error: OSError) -> NoReturn:
        """Remove all bytes of a group that could not be written."""
        try:
            file.truncate(self._position)
        except OSError as second:
            raise JournalFailedError(f"the journal cannot be cut back after {error}: {second}") from error
        self._reserved = self._position
        raise JournalWriteError(f"the journal cannot be written: {error}") from error

    def close(self) -> None:
        """Release the reserved space and close; what was written is on disk already."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if self._failed is None:
                file.truncate(self._position)
        except OSError as error:
            log.warning("reserved journal space cannot be released", file=file_name(self._file_id), error=str(error))
        file.close()


class Journal:
    """Half of the writer on the event loop. `failed` is set permanently when a sync has failed.

    `on_pass`: called after the callbacks of a pass, so that answers can leave in one write."""

    def __init__(self, world: World, directory: str, config: JournalConfig) -> None:
        self._world = world
        self._directory = directory
        self._config = config
        self._writer = GroupWriter(world.disk, directory, config)
        self._lane: Lane[list[Item]] | None = None
        self._mark = LogMark(0, 0)
        self.on_pass: Callable[[], None] = _nothing
        self.on_failed: Callable[[JournalFailedError], None] = _ignore
        self.on_no_room: Callable[[str], None] = _say_nothing
        """Called with the reason when a group could not be written."""
        self.failed: JournalFailedError | None = None
        self._waiting: list[Item] = []
        self._waiting_size = 0
        self._held = False
        self._wake = trio.Event()
        self.queued_bytes = 0
        """Bytes appended and not yet reported, overhead included."""
        self.has_unsynced = False
        """True if deferred adds were reported that no sync has covered yet."""
        self.groups = 0
        self.write_failures = 0

    async def open(self, previous: LogMark | None, seal: JournalSeal | None = None) -> None:
        """Begin a new file after all existing ones; `previous` is the end of the journal found by replay (None: no
        journal).

        Raises: OSError, JournalFailedError.
        """
        self._writer.seal = seal

        def create() -> None:
            ids = journal_ids(self._world.disk, self._directory)
            file_id = ids[-1] + 1 if ids else self._world.clock.wall_ms() + 1
            known = previous if previous is not None and ids and previous.file_id == ids[-1] else None
            self._writer.create(file_id, known)

        await self._world.offload.run(create, name="journal open")
        self._mark = self._writer.mark
        self._lane = self._world.offload.lane("journal", self._write, self._done)

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
            self._wake.set()
        elif not self._held:
            self._release()

    def hold(self) -> None:
        """Hold back appended records until `let_go`, in the same pass, to wake the journal's thread only once for all
        of them.
        """
        self._held = True

    def let_go(self) -> None:
        """End `hold`."""
        self._held = False
        if self._waiting and not self._config.group_wait_s:
            self._release()

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
                while self._waiting_size < GROUP_WAIT_SIZE:
                    self._wake = trio.Event()
                    await self._wake.wait()
            self._wake = trio.Event()
            self._release()

    def _release(self) -> None:
        assert self._lane is not None
        items, self._waiting, self._waiting_size = self._waiting, [], 0
        if items:
            self._lane.put(items)

    def _write(self, batches: list[list[Item]]) -> list[GroupResult]:
        return self._writer.write(list(chain.from_iterable(batches)))

    def _done(self, batches: list[list[Item]], results: list[GroupResult] | None, error: BaseException | None) -> None:
        items = list(chain.from_iterable(batches))
        if results is None:
            # Our own code does not raise here. If it does, the content of the disk is unknown and the journal must
            # stop.
            failure = JournalFailedError(f"the journal's thread failed: {error!r}")
            results = [GroupResult(len(items), None, failure)]
        index = 0
        for count, mark, group_error, synced in results:
            if mark is not None:
                self._mark = mark
                self.groups += 1
                self.has_unsynced = not synced
            elif isinstance(group_error, JournalFailedError):
                self._fail(group_error)
            else:
                self.write_failures += 1
                log.error("journal group not written, refusing its adds", error=str(group_error))
                self.on_no_room(str(group_error))
            for item in items[index : index + count]:
                self.queued_bytes -= item.size + ITEM_OVERHEAD
                item.on_durable(group_error)
            index += count
        self.on_pass()

    def _fail(self, error: JournalFailedError) -> None:
        if self.failed is None:
            self.failed = error
            log.error("journal failed, acknowledging nothing more; restart the bookie", error=str(error))
            self.on_failed(error)

    def mark(self) -> LogMark:
        """Return a position up to which everything is durable and in the storage's write cache, or further.

        Take it before a flush. When the flush is done, replay may start here.
        """
        return self._mark

    def economize(self, on: bool) -> None:
        """Start or stop saving disk space, while the disk is full.

        The current file is ended once, so that the next checkpoint can delete it.
        """
        if on and not self._writer.economizes:
            self._writer.roll_wanted = True
        self._writer.economizes = on

    async def checkpoint_complete(self, mark: LogMark) -> None:
        """Delete the files before `mark`, which lastMark holds now, except the newest `backups` of them. OSError."""

        def delete() -> None:
            old = [i for i in journal_ids(self._world.disk, self._directory) if i < mark.file_id]
            backups = 0 if self._writer.economizes else self._config.backups
            for file_id in old[: max(0, len(old) - backups)]:
                self._world.disk.unlink(f"{self._directory}/{file_name(file_id)}")

        await self._world.offload.run(delete, name="journal trim")

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
