"""Entry logs of one directory: one is written, all are read. Blocking. The format is in entry_log_format.py.

- A log is written by one flush after another, and never after a restart: each start takes a new id.
- Bytes left by a failed flush are cut off, and that log is not written again. After a failed sync the disk's content is
  unknown, so the flush is repeated in a new log.
- Only the newest pages stay in the machine's memory, as many as `PageWindow` says.
- Reads run concurrently with the flush: open_logs.py. Contents of a log: log_contents.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Final

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    LOG_ID_MAX,
    MAP_FIELDS_OFFSET,
    MAP_SEAL_OFFSET,
    POSITION_MAX,
    Header,
    decode_last_id,
    encode_header,
    encode_last_id,
    encode_ledgers_map,
    encode_map_fields,
    encode_map_seal,
    log_id_of,
    log_name,
    pack_location,
)
from bookie.db_ledger_storage.log_contents import LogContents, LogMetadata, read_ledgers_map
from bookie.db_ledger_storage.open_logs import OpenLogs
from bookie.db_ledger_storage.page_window import PageWindow
from bookie.errors import StorageFailedError
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Disk, File

_log = get_logger(__name__)

_WRITE_BYTES: Final = 2 << 20
"""Runs are gathered up to this many bytes for one vectored write..."""
_WRITE_PARTS: Final = 1000
"""...or this many buffers, whichever is reached first."""
_LAST_ID: Final = "lastId"
_IDS_AHEAD_MAX: Final = 1 << 28
"""Largest plausible distance of `lastId` from the newest existing log. A larger one is caused by a flipped bit."""
_ENDED_BYTES_MIN: Final = 1 << 20
"""A log with fewer bytes than this is not ended to free its room."""


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
        self.contents = LogContents(disk, directory)
        self.readers = OpenLogs(disk, directory)
        self._ends: dict[int, int] = {}

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
            self.readers.close()

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
        self.contents.remember(LogMetadata(log_id=log.log_id, size=log.safe, ledgers=log.safe_ledgers))
        self._ends[log.log_id] = log.safe
        if empty:
            with suppress(OSError):
                self.delete(log.log_id)

    # ---------------------------------------------------------------------------------------------------- read

    def records_end(self, log_id: int, file: File) -> int:
        """Return the end of the log's durable records, in bytes from its start; -1 if unknown.

        A log that was not sealed may be torn behind its last indexed entry.
        """
        active = self._active
        if active is not None and active.log_id == log_id:
            return active.safe
        end = self._ends.get(log_id)
        if end is None:
            found = read_ledgers_map(file)
            end = self._ends[log_id] = -1 if found.ledgers is None else found.offset
        return end

    # --------------------------------------------------------------------------------------------------- delete

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
        self.contents.forget(log_id)
        self._ends.pop(log_id, None)
        self.readers.retire(log_id)
        self.readers.close_retired()
        return freed
