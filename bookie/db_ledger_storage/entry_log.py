"""The entry logs of one directory: the one that is written, and all that are read. Blocking; format in entry_log_format.py.

- A log is written by one flush after another, and never after a restart: each start takes a new id.
- What a failed flush left behind is cut off, and that log is not written again: after a failed sync nobody knows what
  is on the disk, so the flush is done over in a new log.
- Only the newest pages stay in the machine's memory, as many as `PageWindow` says. Copying into memory that was given back a
  moment ago costs a tenth of copying into memory that nobody has touched for long (64 KB: 15 us instead of 170, measured in
  a virtual machine), and an entry log is hardly read soon: who keeps up is served before the disk is asked.
- Readers run beside the flush. A file that is dropped or pushed out of the table of open files is closed by the last of the
  reads of that log which had begun before (`_retire`), without a lock: each step on a dict is one step of the interpreter.
- A sealed log carries a checksum of its ledgers map, so that the map proves what the log holds. Of any other log only the
  location index knows for sure.
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
"""...or this many buffers."""
OPEN_FILES_MAX: Final = 64
"""Logs that stay open for the next read."""
_SCANNED_LEDGERS_MAX: Final = 1 << 17
"""Ledgers that are remembered of logs without a map, which had to be read record by record; 100 bytes each."""
_SCAN_STEP: Final = 2000
"""Records of such a log that are read in one step."""
_LAST_ID: Final = "lastId"
_IDS_AHEAD_MAX: Final = 1 << 28
"""Entry logs that may have been made since the newest one that is there: more are a bit that flipped."""
_ENDED_BYTES_MIN: Final = 1 << 20
"""A log with less in it is not ended for the room that it takes."""
_PAGES_TOGETHER: Final = 2 << 20
"""Bytes; pages are given back up to a multiple of it, or to the end of a log: a kernel keeps large pages that a range cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMetadata:
    """What a log that is not written any more holds. `ledgers`: ledger id to bytes, size fields included.

    `proven`: a checksum guards the ledgers map. A torn log is read only to the tear, and nothing guards the map of a log of
    the original against a flipped bit: before such a log is dropped, the location index is asked too.
    """

    log_id: int
    size: int
    ledgers: Mapping[int, int]
    proven: bool = False


class _FoundMap(NamedTuple):
    """`ledgers` is None if there is no good map at `offset`; `proven` if its checksum is there and right."""

    offset: int
    ledgers: dict[int, int] | None
    proven: bool


class PageWindow:
    """Which pages may be given back: all but those of the newest `size` bytes; none at all if that is 0. Pure.

    >>> window = PageWindow(4 << 20)
    >>> window.synced(0, 3 << 20), window.synced(0, 7 << 20), window.synced(1, 2 << 20)
    ([], [(0, 0, 2097152)], [(0, 2097152, 4194304)])
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: deque[tuple[int, int, int]] = deque()
        self._kept_bytes = 0

    def synced(self, log_id: int, end: int) -> list[tuple[int, int, int]]:
        """Log `log_id` is on the disk up to byte `end`; logs come one after the other. The ranges (log id, first byte, end)
        that may be given back now, oldest first, each once."""
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
    """The log that is being written. `position` is where the next record goes; `safe` is the end of what earlier flushes made durable."""

    __slots__ = ("file", "ledgers", "log_id", "position", "safe", "safe_ledgers")

    def __init__(self, log_id: int, file: File) -> None:
        self.log_id = log_id
        self.file = file
        self.position = HEADER_LENGTH
        self.safe = HEADER_LENGTH
        self.ledgers: dict[int, int] = {}
        self.safe_ledgers: dict[int, int] = {}

    def seal(self) -> None:
        """Write the ledgers map and tell the header of it; durable on return."""
        ledgers_map = encode_ledgers_map(self.ledgers)
        fields = encode_map_fields(self.position, len(self.ledgers))
        self.file.pwrite(ledgers_map, self.position)
        self.file.pwrite(encode_map_seal(fields, ledgers_map), MAP_SEAL_OFFSET)
        self.file.pwrite(fields, MAP_FIELDS_OFFSET)
        self.file.sync()


class EntryLogs:
    """Writes and reads `*.log` in one folder. `size_max`: bytes after which a log is sealed; `sync_every`: bytes written
    between two syncs, so that a long flush does not get in the way of the journal's syncs all at once. `page_cache`: bytes
    of the newest pages that the machine is asked to keep in memory, 0: it keeps what it likes."""

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
        """What was found in logs without a map."""
        self._ends: dict[int, int] = {}
        self._files: dict[int, File] = {}
        self._reads: dict[int, int] = {}
        """The log that each read which is under way reads from."""
        self._read_ids = count()
        self._retired: deque[tuple[File, frozenset[int]]] = deque()
        """Files that were pushed out, each with the reads that may still use it."""

    # ---------------------------------------------------------------------------------------------------- life

    def open(self) -> None:
        """Find the logs that are there. The next one gets an id above all of them and above `lastId`."""
        ids = sorted(log_id for log_id in map(log_id_of, self._disk.names(self._directory)) if log_id >= 0)
        self._log_ids = dict.fromkeys(ids)
        last = ids[-1] if ids else -1
        with suppress(FileNotFoundError):
            noted = decode_last_id(self._disk.read(self._path(_LAST_ID)))
            if noted < 0 or noted > last + _IDS_AHEAD_MAX:
                # It has no checksum, and only keeps the ids of logs that are gone from being used again.
                _log.warning("lastId is damaged, the newest entry log counts", file=self._path(_LAST_ID), newest=last)
                noted = last
            last = max(last, noted)
        self._next_id = last + 1

    def close(self) -> None:
        """Seal the log that was written, close all files. No read may be under way."""
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
        """The log that is being written, -1 if none is."""
        return -1 if self._active is None else self._active.log_id

    def inactive_ids(self) -> list[int]:
        """All other logs, sorted."""
        active = self.active_id
        return sorted(log_id for log_id in list(self._log_ids) if log_id != active)

    # --------------------------------------------------------------------------------------------------- write

    def append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        """Write runs one behind the other; all of them durable on return, each with the location of its first size field.

        OSError: none of them counts; the same may be tried again.
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
        """Write no more to the log that is written, unless it is a small one, so that it may be deleted. Never fails: without room
        for its map it has none."""
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
        """Give back the pages that are out of the window, now that this log is synced up to `end`."""
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
            raise StorageFailedError("there are no entry log ids left")
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
        """Give up the active log: cut off what the failed flush wrote, leave it without a map, never write it again."""
        log, self._active = self._active, None
        if log is None:
            return
        empty = log.safe == HEADER_LENGTH
        with suppress(OSError):
            log.file.truncate(log.safe)
        log.file.close()
        # Should the cut have failed: no row of the index leads there, and what lies there is in the journal.
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
        """End the read that `begin_read` returned, and close the files that were pushed out and have no reader left."""
        del self._reads[read_id]
        if self._retired:
            self._close_retired()

    def file(self, log_id: int) -> File:
        """The log, between `begin_read` and `end_read`. StorageDamagedError."""
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
        """Where the records of a log end that are durable, in bytes from its start; -1 if that is not known: a log that
        was not sealed may be torn behind its last indexed entry."""
        active = self._active
        if active is not None and active.log_id == log_id:
            return active.safe
        end = self._ends.get(log_id)
        if end is None:
            found = self._ledgers_map(file)
            end = self._ends[log_id] = -1 if found.ledgers is None else found.offset
        return end

    def _ledgers_map(self, file: File) -> _FoundMap:
        """The ledgers map of a log, if it has a good one."""
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
            # Out of the table first: a read that is not in this list cannot find the file any more.
            reads = frozenset(read_id for read_id, read in list(self._reads.items()) if read == log_id)
            self._retired.append((file, reads))

    def _close_retired(self) -> None:
        """Close the files that no read uses any more. Any worker may call this at any time: a file that is taken out of the
        queue belongs to one of them."""
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
        """What a log holds that is not written any more. StorageDamagedError if it is missing, OSError."""
        return next(found for found in self.read_metadata(log_id) if found is not None)

    def read_metadata(self, log_id: int) -> Generator[LogMetadata | None, None, None]:
        """As `metadata`, from the ledgers map or by reading all of the log, in steps of a few milliseconds: None after each
        of them, the result in the end. The table of open files is left as it is: it belongs to the readers of entries."""
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
            # Without a map a log is not empty: it was being written when its bookie died.
            ledgers: dict[int, int] = {}
            scan = iter(Scan(file.pread, size))
            while step := list(islice(scan, _SCAN_STEP)):
                for entry in step:
                    ledgers[entry.ledger_id] = ledgers.get(entry.ledger_id, 0) + SIZE_LENGTH + entry.size
                yield None
        yield self._remember(LogMetadata(log_id=log_id, size=size, ledgers=ledgers))

    def _remember(self, metadata: LogMetadata) -> LogMetadata:
        """Keep what a log without a map holds, at the expense of what was found first."""
        scanned = self._scanned
        scanned[metadata.log_id] = metadata
        ledgers = sum([len(each.ledgers) for each in scanned.values()])
        while ledgers > _SCANNED_LEDGERS_MAX and len(scanned) > 1:
            ledgers -= len(scanned.pop(next(iter(scanned))).ledgers)
        return metadata

    def delete(self, log_id: int) -> int:
        """Remove a log that is not written any more; returns the bytes this frees."""
        assert log_id != self.active_id, "the log that is written is never deleted"
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
