"""The blocking half of writing the journal: one group, one write, one fdatasync. See writer.py for what holds.

Space is reserved 16 MB ahead (posix_fallocate), so that fdatasync rarely has to commit a new file size. Measured on
ext4: 1.5 KB groups take 0.15 ms instead of 0.20 ms in a growing file; writing zeros instead of reserving gives 0.13 (64
KB groups: 0.17 instead of 0.26), but
stalls for 4 ms per 4 MB, 60 ms per 16 MB, and is slower in total from 256 KB on.

In a reused file (spares.py) groups of 64 KB took a median of 0.16 to 0.19 ms instead of 0.34 to 0.63 on a busy ext4.
Groups of 1 KB showed no difference that other load of the disk did not exceed.

The journal is read only at startup, so it bypasses the page cache (`direct`), unless the configuration wants it kept
there or does not wait for the disk. Measured on ext4, CPU of a group of 64 KB 115 us instead of 140, of 3 MB 0.75 ms
instead of 1.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn, TypeAlias

from bookie.errors import BookieError, JournalFailedError, JournalWriteError
from bookie.journal.config import JournalConfig
from bookie.journal.format import (
    HEADER_SIZE,
    Force,
    LedgerKey,
    LogMark,
    Record,
    file_name,
)
from bookie.journal.seal import SealedEnd, group_size, seal_group
from bookie.journal.spares import TERMINATOR, begin_file
from quire.service.log import get_logger
from quire.service.measuring.summaries import Times
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Disk, File, NotSyncedError

log = get_logger(__name__)

OnDurable: TypeAlias = Callable[[BookieError | None], None]

GROUP_SIZE_MAX: Final = 4 << 20
"""A group is closed at the first run that passes this many bytes; a long queue is written as several, each synced."""

KEYS_REMEMBERED_MAX: Final = 1 << 16
"""Ledgers whose key record is known to be written.

Above this number they are forgotten, and a key may be written twice.
"""

FORGET_STEP: Final = 4 << 20
"""Bytes after which the journal's pages are released."""


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
    size: int = 0
    """Bytes written."""
    took_s: float = 0.0
    """Time of the write and its sync, in seconds."""
    began_at: float = 0.0
    """Time of the event loop at which the write began."""
    is_full: bool = False
    """True if the group was ended by its size, and other items of the same pass were left to the next."""


class GroupWriter:
    """Blocking half of the writer: owns the open file. Called from one thread at a time."""

    def __init__(self, disk: Disk, directory: str, config: JournalConfig) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self.seal: SealedEnd | None = None
        """Seal that records the end of the synced journal."""
        self._file: File | None = None
        self._file_id = -1
        self._position = 0
        self._reserved = 0
        """End of the reserved space; preallocation is not tried again before this position."""
        self._stale_end = 0
        """End of the old content of a reused file; there is none behind the position unless this is larger."""
        self._forgotten = 0
        """End of the part of the file whose pages were released."""
        self._keys: set[int] = set()
        self._synced = -1
        """End of the synced part of the file, if unsynced bytes follow; -1 if none do."""
        self._failed: JournalFailedError | None = None
        self.now: Callable[[], float] = float
        """Clock of the event loop, in seconds; it may be read in any thread."""
        self.creations = Times()
        """Times of beginning a file, in milliseconds. Changed in the journal's thread."""
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
        began = self.now()
        direct = self._config.sync and self._config.remove_from_page_cache
        begun = begin_file(self._disk, self._directory, file_id, previous, direct=direct, reuse=self._config.reuse)
        if self._file is not None:
            if self._stale_end > self._position:
                self._cut_tail(self._file)
            self._file.close()
        self._file = begun.file
        self._file_id = file_id
        self._position = HEADER_SIZE
        self._reserved = self._stale_end = begun.stale_end
        self._forgotten = 0
        if self.seal is not None:
            self.seal.begun(self.mark)
        self.creations.observe(1000 * (self.now() - began))

    def write(self, items: list[Item]) -> list[GroupResult]:
        """Write the items as one group, or as several if they are many; return a result per group, in order."""
        results: list[GroupResult] = []
        start = 0
        size = 0
        for index, item in enumerate(items, 1):
            size += item.size
            if size >= GROUP_SIZE_MAX or index == len(items):
                result = self._write_group(items[start:index])
                results.append(result._replace(is_full=True) if size >= GROUP_SIZE_MAX else result)
                start, size = index, 0
        return results

    def _write_group(self, items: list[Item]) -> GroupResult:
        if self._failed is not None:
            return GroupResult(len(items), None, self._failed)
        parts, size, keys = self._gather(items)
        began = self.now()
        try:
            total = group_size(size)
            self._make_room(total)
            file = self._file
            assert file is not None, "create comes first"
            deferred = self._is_deferred(items)
            if not deferred and self._synced >= 0:
                self._sync(file)
            seal_group(parts, size, total, self._file_id, self._position, after_unsynced=self._synced >= 0)
            if self._position + total < self._stale_end:
                parts.append(TERMINATOR)
            if deferred:
                self._write(file, parts)
                self._synced = self._position if self._synced < 0 else self._synced
            else:
                self._write_synced(file, parts)
        except JournalFailedError as error:
            self._failed = error
            return GroupResult(len(items), None, error, took_s=self.now() - began, began_at=began)
        except JournalWriteError as error:
            return GroupResult(len(items), None, error, took_s=self.now() - began, began_at=began)
        took_s = self.now() - began
        self._position += total
        mark = self.mark
        if self.seal is not None and self._config.sync and not deferred:
            self.seal.reached(mark)
        if self._config.remove_from_page_cache and self._position - self._forgotten >= FORGET_STEP:
            # Where it went through the page cache after all: giving its pages back at once keeps the following writes
            # in memory that is warm. With page after page of new memory, copying into it was half of a bookie's CPU
            # time.
            file.forget(self._forgotten, self._position - self._forgotten)
            self._forgotten = self._position
        if len(self._keys) > KEYS_REMEMBERED_MAX:
            self._keys.clear()
        self._keys.update(keys)
        return GroupResult(len(items), mark, None, not deferred, total, took_s, began)

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
                log.warning("journal space cannot be reserved", file=file_name(self._file_id), reason=str(error))

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
        self._reserved = self._stale_end = self._position
        raise JournalWriteError(f"the journal cannot be written: {error}") from error

    def close(self) -> None:
        """Release the reserved space and close; what was written is on disk already."""
        file, self._file = self._file, None
        if file is None:
            return
        if self._failed is None:
            self._cut_tail(file)
        file.close()

    def _cut_tail(self, file: File) -> None:
        """Release what follows the last group: reserved space, and old groups of a reused file."""
        try:
            file.truncate(self._position)
        except OSError as error:
            log.warning("reserved journal space cannot be released", file=file_name(self._file_id), reason=str(error))
