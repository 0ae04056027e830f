"""Entry logs of one directory: one is written, all are read. Blocking. The format is in entry_log_format.py.

- A log is written by one flush after another, and never after a restart: each start takes a new id.
- Bytes left by a failed flush are cut off, and that log is not written again. After a failed sync the disk's content is
  unknown, so the flush is repeated in a new log.
- Only the newest pages stay in the machine's memory, as many as `PageWindow` says. Copying into recently freed memory
  costs a tenth of copying into long unused memory (64 KB: 15 us instead of 170, measured in a virtual machine). A new
  entry log is rarely read: readers that keep up are served from the caches.
- Reads run concurrently with the flush. A file that is deleted or evicted from the table of open files is closed by the
  last read of that log that began earlier (`_retire`). That needs no lock, because each dict operation is one step of
  the interpreter.
- A sealed log carries a checksum of its ledgers map, so that the map proves what the log holds. For any other log only
  the location index is certain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import Final, NamedTuple

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    LOG_ID_MAX,
    MAP_FIELDS_OFFSET,
    MAP_SEAL_OFFSET,
    POSITION_MAX,
    SIZE_LENGTH,
    Header,
    Scan,
    decode_header,
    decode_last_id,
    decode_ledgers_map,
    encode_header,
    encode_last_id,
    encode_ledgers_map,
    encode_map_fields,
    encode_map_seal,
    has_map_seal,
    log_id_of,
    log_name,
    pack_location,
)
from bookie.errors import StorageDamagedError, StorageFailedError
from bookie.run import Run
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Buffer
from quire.world.doors import Disk, File

_log = get_logger(__name__)

_WRITE_BYTES: Final = 2 << 20
"""Runs are gathered up to this many bytes for one vectored write..."""
_WRITE_PARTS: Final = 1000
"""...or this many buffers, whichever is reached first."""
OPEN_FILES_MAX: Final = 64
"""Logs that stay open for the next read."""
_SCANNED_LEDGERS_MAX: Final = 1 << 17
"""Ledgers remembered of logs without a map, which had to be scanned; 100 bytes each."""
_SCAN_STEP: Final = 2000
"""Records of such a log read in one step."""
_LAST_ID: Final = "lastId"
_IDS_AHEAD_MAX: Final = 1 << 28
"""Largest plausible distance of `lastId` from the newest existing log. A larger one is caused by a flipped bit."""
_ENDED_BYTES_MIN: Final = 1 << 20
"""A log with fewer bytes than this is not ended to free its room."""
_PAGES_TOGETHER: Final = 2 << 20
"""Bytes.

Pages are released up to a multiple of this or to the end of a log: a kernel keeps a large page if the range covers only
part of it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetadata:
    """Contents of a log that is no longer written. `ledgers`: ledger id to bytes, size fields included.

    `proven`: a checksum guards the ledgers map. A torn log can be read only up to the tear, and nothing guards the map
    of an original's log against a flipped bit. Before such a log is deleted, the location index is checked too.
    """

    log_id: int
    size: int
    ledgers: Mapping[int, int]
    proven: bool = False


class _FoundMap(NamedTuple):
    """Result of looking for a ledgers map.

    `ledgers` is None if there is no good map at `offset`; `proven` if its checksum is present and right.
    """

    offset: int
    ledgers: dict[int, int] | None
    proven: bool


class PageWindow:
    """Decide which pages may be released: all but those of the newest `size` bytes; none if `size` is 0. Pure.

    >>> window = PageWindow(4 << 20)
    >>> window.synced(0, 3 << 20), window.synced(0, 7 << 20), window.synced(1, 2 << 20)
    ([], [(0, 0, 2097152)], [(0, 2097152, 4194304)])
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: deque[tuple[int, int, int]] = deque()
        self._kept_bytes = 0

    def synced(self, log_id: int, end: int) -> list[tuple[int, int, int]]:
        """Record that log `log_id` is on disk up to byte `end`; logs come in order.

        Return the ranges (log id, first byte, end) that may be released now, oldest first, each once.
        """
        if not self._size:
            return []
        kept = self._kept
        start = 0
        if kept and kept[-1][0] == log_id:
            _, start, before = kept.pop()
            self._kept_bytes -= before - start
        kept.append((log_id, start, end))
        self._kept_bytes += end - start
        given: list[tuple[int, int, int]] = []
        while (excess := self._kept_bytes - self._size) > 0:
            oldest, start, stop = kept[0]
            if oldest != log_id and stop - start <= excess:
                kept.popleft()
            else:
                cut = (start + excess) // _PAGES_TOGETHER * _PAGES_TOGETHER
                if cut <= start:
                    break
                kept[0] = (oldest, cut, stop)
                stop = cut
            self._kept_bytes -= stop - start
            given.append((oldest, start, stop))
        return given


class _ActiveLog:
    """The log that is being written.

    `position` is where the next record goes; `safe` is the end of what earlier flushes made durable.
    """

    __slots__ = ("file", "ledgers", "log_id", "position", "safe", "safe_ledgers")

    def __init__(self, log_id: int, file: File) -> None:
        self.log_id = log_id
        self.file = file
        self.position = HEADER_LENGTH
        self.safe = HEADER_LENGTH
        self.ledgers: dict[int, int] = {}
        self.safe_ledgers: dict[int, int] = {}

    def seal(self) -> None:
        """Write the ledgers map and record it in the header; durable on return."""
        ledgers_map = encode_ledgers_map(self.ledgers)
        fields = encode_map_fields(self.position, len(self.ledgers))
        self.file.pwrite(ledgers_map, self.position)
        self.file.pwrite(encode_map_seal(fields, ledgers_map), MAP_SEAL_OFFSET)
        self.file.pwrite(fields, MAP_FIELDS_OFFSET)
        self.file.sync()


class EntryLogs:
    """Writer and reader of the `*.log` files of one folder.

    `size_max`: bytes after which a log is sealed. `sync_every`: bytes written between two syncs, so that a long flush
    does not delay the journal's syncs. `page_cache`: bytes of the newest pages to keep in the machine's memory; 0: the
    kernel decides.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        size_max: int = 1 << 30,
        sync_every: int = 32 << 20,
        page_cache: int = 0,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._size_max = min(size_max, POSITION_MAX)
        self._sync_every = sync_every
        self._pages = PageWindow(page_cache)
        self._log_ids: dict[int, None] = {}
        self._next_id = 0
        self._active: _ActiveLog | None = None
        self._scanned: dict[int, LogMetadata] = {}
        """Contents found by scanning logs without a map."""
        self._ends: dict[int, int] = {}
        self._files: dict[int, File] = {}
        self._reads: dict[int, int] = {}
        """Log id of each read in progress."""
        self._read_ids = count()
        self._retired: deque[tuple[File, frozenset[int]]] = deque()
        """Evicted files, each with the reads that may still use it."""

    # ---------------------------------------------------------------------------------------------------- life

    def open(self) -> None:
        """Find the existing logs. The next log gets an id above all of them and above `lastId`."""
        ids = sorted(log_id for log_id in map(log_id_of, self._disk.names(self._directory)) if log_id >= 0)
        self._log_ids = dict.fromkeys(ids)
        last = ids[-1] if ids else -1
        with suppress(FileNotFoundError):
            noted = decode_last_id(self._disk.read(self._path(_LAST_ID)))
            if noted < 0 or noted > last + _IDS_AHEAD_MAX:
                # lastId has no checksum. It only prevents ids of deleted logs from being reused.
                _log.warning("lastId is damaged, using the newest entry log", file=self._path(_LAST_ID), newest=last)
                noted = last
            last = max(last, noted)
        self._next_id = last + 1

    def close(self) -> None:
        """Seal the active log and close all files. No read may be in progress."""
        active, self._active = self._active, None
        try:
            if active is not None:
                active.seal()
        finally:
            if active is not None:
                active.file.close()
            for file in [*self._files.values(), *(file for file, _ in self._retired)]:
                file.close()
            self._files.clear()
            self._retired.clear()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    @property
    def active_id(self) -> int:
        """Id of the active log, -1 if there is none."""
        return -1 if self._active is None else self._active.log_id

    def inactive_ids(self) -> list[int]:
        """All other logs, sorted."""
        active = self.active_id
        return sorted(log_id for log_id in list(self._log_ids) if log_id != active)

    # --------------------------------------------------------------------------------------------------- write

    def append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        """Write runs in order; all durable on return. Return for each run the location of its first size field.

        OSError: none of them counts; the same call may be tried again.
        """
        try:
            placed = self._append(runs)
            if self._active is not None:
                self._sync(self._active)
        except (OSError, StorageFailedError):
            self._abandon()
            raise
        if self._active is not None:
            self._active.safe = self._active.position
            self._active.safe_ledgers = dict(self._active.ledgers)
        return placed

    def end_active(self) -> None:
        """Stop writing the active log, unless it is small, so that it can be deleted.

        Never fails: if its map finds no room it has none.
        """
        active = self._active
        if active is not None and active.position >= _ENDED_BYTES_MIN:
            try:
                self._seal_active(active)
            except OSError:
                self._abandon()

    def _append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        placed: list[tuple[Run, int]] = []
        log = self._active
        parts: list[Buffer] = []
        gathered = 0
        unsynced = 0
        for run in runs:
            size = run.size
            if log is None or (
                log.position + gathered + size > self._size_max and log.position + gathered > HEADER_LENGTH
            ):
                if log is not None:
                    self._write(log, parts)
                    parts, gathered, unsynced = [], 0, 0
                    self._seal_active(log)
                log = self._new_log()
            position = log.position + gathered
            if position + size > POSITION_MAX:
                raise StorageFailedError(f"a run of {size} bytes does not fit into an entry log")
            placed.append((run, pack_location(log.log_id, position)))
            log.ledgers[run.ledger_id] = log.ledgers.get(run.ledger_id, 0) + size
            parts.extend(run.parts)
            gathered += size
            if gathered >= _WRITE_BYTES or len(parts) >= _WRITE_PARTS:
                self._write(log, parts)
                unsynced += gathered
                parts, gathered = [], 0
                if unsynced >= self._sync_every:
                    self._sync(log)
                    unsynced = 0
        if log is not None:
            self._write(log, parts)
        return placed

    def _write(self, log: _ActiveLog, parts: list[Buffer]) -> None:
        if parts:
            log.position += log.file.pwritev(parts, log.position)

    def _sync(self, log: _ActiveLog) -> None:
        log.file.sync()
        self._forget(log.log_id, log.position, log.file)

    def _forget(self, log_id: int, end: int, file: File) -> None:
        """Release the pages that are outside the window, now that this log is synced up to `end`."""
        for old_id, start, stop in self._pages.synced(log_id, end):
            if old_id == log_id:
                file.forget(start, stop - start)
                continue
            with (
                suppress(OSError),  # the log may be gone meanwhile, and its pages with it
                closing(self._disk.open(self._path(log_name(old_id)), writable=False)) as old,
            ):
                old.forget(start, stop - start)

    def _new_log(self) -> _ActiveLog:
        log_id = self._next_id
        if log_id > LOG_ID_MAX:
            raise StorageFailedError("no entry log ids are left")
        self._disk.write_atomic(self._path(_LAST_ID), encode_last_id(log_id))
        self._next_id = log_id + 1
        path = self._path(log_name(log_id))
        file = self._disk.open(path, create=True)
        try:
            file.pwrite(encode_header(Header()), 0)
            self._disk.sync_dir(self._directory)
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(path)
            raise
        self._log_ids[log_id] = None
        self._active = _ActiveLog(log_id, file)
        return self._active

    def _seal_active(self, log: _ActiveLog) -> None:
        log.seal()
        self._forget(log.log_id, log.file.size(), log.file)
        log.file.close()
        self._ends[log.log_id] = log.position
        self._active = None

    def _abandon(self) -> None:
        """Abandon the active log: cut off what the failed flush wrote, leave it without a map, never write it again."""
        log, self._active = self._active, None
        if log is None:
            return
        empty = log.safe == HEADER_LENGTH
        with suppress(OSError):
            log.file.truncate(log.safe)
        log.file.close()
        # If the cut fails: no index row points there, and the entries are in the journal.
        self._remember(LogMetadata(log_id=log.log_id, size=log.safe, ledgers=log.safe_ledgers))
        self._ends[log.log_id] = log.safe
        if empty:
            with suppress(OSError):
                self.delete(log.log_id)

    # ---------------------------------------------------------------------------------------------------- read

    @contextmanager
    def reading(self, log_id: int) -> Iterator[File]:
        """The log, open until the block ends. StorageDamagedError if it is not there."""
        read_id = self.begin_read(log_id)
        try:
            yield self.file(log_id)
        finally:
            self.end_read(read_id)

    def begin_read(self, log_id: int) -> int:
        """As `reading`, without the cost of a context: the log's file is not closed before `end_read`."""
        read_id = next(self._read_ids)
        self._reads[read_id] = log_id
        return read_id

    def end_read(self, read_id: int) -> None:
        """End the read that `begin_read` returned. Close the evicted files that no other read uses."""
        del self._reads[read_id]
        if self._retired:
            self._close_retired()

    def file(self, log_id: int) -> File:
        """Return the file of the log, between `begin_read` and `end_read`. StorageDamagedError."""
        file = self._files.get(log_id)
        if file is not None:
            return file
        try:
            opened = self._disk.open(self._path(log_name(log_id)), writable=False)
        except FileNotFoundError as error:
            raise StorageDamagedError(f"entry log {log_name(log_id)} is missing") from error
        file = self._files.setdefault(log_id, opened)
        if file is not opened:
            opened.close()  # another worker was faster
        elif len(self._files) > OPEN_FILES_MAX:
            with suppress(StopIteration, RuntimeError):
                self._retire(next(each for each in self._files if each != log_id))
        return file

    def records_end(self, log_id: int, file: File) -> int:
        """Return the end of the log's durable records, in bytes from its start; -1 if unknown.

        A log that was not sealed may be torn behind its last indexed entry.
        """
        active = self._active
        if active is not None and active.log_id == log_id:
            return active.safe
        end = self._ends.get(log_id)
        if end is None:
            found = self._ledgers_map(file)
            end = self._ends[log_id] = -1 if found.ledgers is None else found.offset
        return end

    def _ledgers_map(self, file: File) -> _FoundMap:
        """Return the ledgers map of a log, if it has a good one."""
        with suppress(StorageDamagedError):
            head = file.pread(HEADER_LENGTH, 0)
            header = decode_header(head)
            size = file.size()
            if header.has_map and HEADER_LENGTH <= header.map_offset < size:
                data = file.pread(size - header.map_offset, header.map_offset)
                ledgers = decode_ledgers_map(data, header.ledgers)
                return _FoundMap(header.map_offset, ledgers, has_map_seal(head, data))
        return _FoundMap(0, None, False)

    def _retire(self, log_id: int) -> None:
        file = self._files.pop(log_id, None)
        if file is not None:
            # Remove it from the table first: a read that is not in this list can then no longer find the file.
            reads = frozenset(read_id for read_id, read in list(self._reads.items()) if read == log_id)
            self._retired.append((file, reads))

    def _close_retired(self) -> None:
        """Close the evicted files that no read uses any more.

        Any worker may call this at any time: a file taken out of the queue belongs to one worker.
        """
        retired = self._retired
        for _ in range(len(retired)):
            try:
                file, reads = retired.popleft()
            except IndexError:
                return  # other workers were faster
            if reads.isdisjoint(list(self._reads)):
                file.close()
            else:
                retired.append((file, reads))

    # ------------------------------------------------------------------------------------------------- contents

    def metadata(self, log_id: int) -> LogMetadata:
        """Return the contents of a log that is no longer written. StorageDamagedError if it is missing, OSError."""
        return next(found for found in self.read_metadata(log_id) if found is not None)

    def read_metadata(self, log_id: int) -> Generator[LogMetadata | None, None, None]:
        """As `metadata`, from the ledgers map or by scanning the log, in steps of a few milliseconds.

        Yield None after each step and the result at the end. The table of open files is not changed: it belongs to
        entry reads.
        """
        known = self._scanned.get(log_id)
        if known is not None:
            yield known
            return
        try:
            file = self._disk.open(self._path(log_name(log_id)), writable=False)
        except FileNotFoundError as error:
            raise StorageDamagedError(f"entry log {log_name(log_id)} is missing") from error
        with closing(file):
            size = file.size()
            found = self._ledgers_map(file)
            if found.ledgers is not None:
                yield LogMetadata(log_id=log_id, size=size, ledgers=found.ledgers, proven=found.proven)
                return
            # A log without a map is not empty: it was being written when its bookie died.
            ledgers: dict[int, int] = {}
            scan = iter(Scan(file.pread, size))
            while step := list(islice(scan, _SCAN_STEP)):
                for entry in step:
                    ledgers[entry.ledger_id] = ledgers.get(entry.ledger_id, 0) + SIZE_LENGTH + entry.size
                yield None
        yield self._remember(LogMetadata(log_id=log_id, size=size, ledgers=ledgers))

    def _remember(self, metadata: LogMetadata) -> LogMetadata:
        """Remember the contents of a log without a map; forget the oldest ones beyond the bound."""
        scanned = self._scanned
        scanned[metadata.log_id] = metadata
        ledgers = sum([len(each.ledgers) for each in scanned.values()])
        while ledgers > _SCANNED_LEDGERS_MAX and len(scanned) > 1:
            ledgers -= len(scanned.pop(next(iter(scanned))).ledgers)
        return metadata

    def delete(self, log_id: int) -> int:
        """Delete a log that is no longer written; return the bytes freed."""
        assert log_id != self.active_id, "the active log cannot be deleted"
        path = self._path(log_name(log_id))
        freed = 0
        with suppress(FileNotFoundError):
            file = self._disk.open(path, writable=False)
            freed = file.size()
            file.close()
            self._disk.unlink(path)
        self._log_ids.pop(log_id, None)
        self._scanned.pop(log_id, None)
        self._ends.pop(log_id, None)
        self._retire(log_id)
        self._close_retired()
        return freed
