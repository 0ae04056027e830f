"""Entry logs of one directory: flushes write one, compaction another, all are read. Blocking.

- Writing: log_writer.py. The format: entry_log_format.py.
- Only the newest pages stay in the machine's memory, as many as `PageWindow` says, and only while the logs are read.
- Reads run concurrently with the flush: open_logs.py. Contents of a log: log_contents.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Final

from bookie.db_ledger_storage.entry_log_format import (
    HEADER_LENGTH,
    LOG_ID_MAX,
    POSITION_MAX,
    Header,
    decode_last_id,
    encode_header,
    encode_last_id,
    log_id_of,
    log_name,
)
from bookie.db_ledger_storage.log_contents import LogBytes, LogContents, LogMetadata, read_ledgers_map
from bookie.db_ledger_storage.log_writing.ledger_logs import LedgerLogOptions, LedgerLogs, LedgerLogStats
from bookie.db_ledger_storage.log_writing.log_writer import ENDED_BYTES_MIN, LogWriter, OpenLog
from bookie.db_ledger_storage.log_writing.page_window import PageWindow
from bookie.db_ledger_storage.open_logs import OpenLogs
from bookie.errors import StorageFailedError
from quire.service.log import get_logger
from quire.wire.bookkeeper.run import Run
from quire.world.doors import Disk

_log = get_logger(__name__)

_LAST_ID: Final = "lastId"
_IDS_AHEAD_MAX: Final = 1 << 28
"""Largest plausible distance of `lastId` from the newest existing log. A larger one is caused by a flipped bit."""


class EntryLogs:
    """Writer and reader of the `*.log` files of one folder.

    `size_max`: bytes after which a log is sealed. `sync_every`: bytes written between two syncs, so that a long flush
    does not delay the journal's syncs. `page_cache`: bytes of the newest pages to keep in the machine's memory; 0: the
    kernel decides. `ledger_logs`: flushes write a log for each ledger. `reads`: returns how often entries were read
    from the logs.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        size_max: int = 1 << 30,
        sync_every: int = 32 << 20,
        page_cache: int = 0,
        ledger_logs: LedgerLogOptions | None = None,
        reads: Callable[[], int] = int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._size_max = min(size_max, POSITION_MAX)
        self._sync_every = sync_every
        self._pages = PageWindow(page_cache)
        self._reads = reads
        self._log_ids: dict[int, None] = {}
        self._next_id = 0
        self.contents = LogContents(disk, directory)
        self.readers = OpenLogs(disk, directory)
        self._ends: dict[int, int] = {}
        self.held: set[int] = set()
        """Logs that are neither compacted nor deleted now: see compaction/whole_files.py."""
        self.before_create: Callable[[int], None] = lambda log_id: None
        """Called with the id of each log before its file is created."""
        self._open: dict[int, OpenLog] = {}
        """Logs that are being written."""
        self._ahead: OpenLog | None = None
        """The next log, made ahead."""
        self._writers: list[LogWriter] = []
        self._flushed = self.writer(self.create, self._forget)
        self.ledger_stats = LedgerLogStats()
        self.ledger_logs = None
        if ledger_logs is not None:
            self.ledger_logs = LedgerLogs(ledger_logs, self.create, self._ledger_writer, self.ledger_stats)

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
        try:
            for writer in self._writers:
                writer.close()
            if self.ledger_logs is not None:
                self.ledger_logs.close()
            if self._ahead is not None:
                self._ahead.file.close()
                self._disk.unlink(self._path(log_name(self._ahead.log_id)))
        finally:
            self.readers.close()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    @property
    def active_id(self) -> int:
        """Id of the log that flushes write, -1 if there is none."""
        return self._flushed.log_id

    def ids(self) -> list[int]:
        """Return all logs."""
        return list(self._log_ids)

    def adopt(self, log_id: int) -> None:
        """Take in a log that was created with a suffix and has its own name now."""
        self._log_ids[log_id] = None

    def inactive_ids(self) -> list[int]:
        """Return all logs that are not written and not held, sorted."""
        written = self.held.union(list(self._open))
        return sorted(log_id for log_id in list(self._log_ids) if log_id not in written)

    # --------------------------------------------------------------------------------------------------- write

    def append(self, runs: Iterable[Run]) -> list[tuple[Run, int]]:
        """Write runs of a flush in order; all durable on return. Return the location of the first size field of each.

        OSError: none of them counts; the same call may be tried again.
        """
        if self.ledger_logs is not None:
            return self.ledger_logs.append(runs)
        self._flushed.past_cache = not self._pages.wants_pages(self._reads())
        return self._flushed.append(runs)

    def end_active(self) -> None:
        """Stop writing the active log, unless it is small, so that it can be deleted. Never fails."""
        self._flushed.end(size_min=ENDED_BYTES_MIN)
        if self.ledger_logs is not None:
            self.ledger_logs.end(size_min=ENDED_BYTES_MIN)

    def writer(
        self, begin: Callable[[], OpenLog], synced: Callable[[OpenLog, int], None], *, sync_every: int = POSITION_MAX
    ) -> LogWriter:
        """Return another writer of logs of this folder, to be used beside the flush; `begin` calls `create`.

        Its log is neither listed by `inactive_ids` nor deleted while it is written. `sync_every`: bytes between two
        syncs, at most as many as in a flush.
        """
        writer = self._make_writer(begin, synced, min(sync_every, self._sync_every))
        self._writers.append(writer)
        return writer

    def _ledger_writer(self, begin: Callable[[], OpenLog]) -> LogWriter:
        return self._make_writer(begin, self._forget, self._sync_every)

    def _make_writer(
        self, begin: Callable[[], OpenLog], synced: Callable[[OpenLog, int], None], sync_every: int
    ) -> LogWriter:
        return LogWriter(
            begin=begin,
            sealed=self._log_sealed,
            abandoned=self._log_abandoned,
            synced=synced,
            size_max=self._size_max,
            sync_every=sync_every,
        )

    def _forget(self, log: OpenLog, end: int) -> None:
        """Release the pages that are outside the window, now that this log is synced up to `end`."""
        for old_id, start, stop in self._pages.synced(log.log_id, end):
            if old_id == log.log_id:
                log.file.forget(start, stop - start)
                continue
            with (
                suppress(OSError),  # the log may be gone meanwhile, and its pages with it
                closing(self._disk.open(self._path(log_name(old_id)), writable=False)) as old,
            ):
                old.forget(start, stop - start)

    def create(self, suffix: str = "") -> OpenLog:
        """Create a new log, with a header alone, or take the one made ahead; its name is durable on return. Not at the
        same time as a flush.

        `suffix`: of the name, for a log that is not read before it is linked to its own name.
        """
        if suffix:
            return self._create(suffix)
        log, self._ahead = self._ahead, None
        if log is None:
            log = self._create("")
        self._open[log.log_id] = log
        self._log_ids[log.log_id] = None
        return log

    @property
    def wants_ahead(self) -> bool:
        """Return whether a flush may soon need a new log, which can be made ahead."""
        log = self._flushed.log
        soon = self.ledger_logs is not None or (
            log is not None and log.position - HEADER_LENGTH > (self._size_max - HEADER_LENGTH) // 2
        )
        return soon and self._ahead is None

    def make_ahead(self) -> None:
        """Create the next log, so that the flush that needs it does not. Not at the same time as a flush."""
        self._ahead = self._create("")

    def _create(self, suffix: str) -> OpenLog:
        log_id = self._next_id
        if log_id > LOG_ID_MAX:
            raise StorageFailedError(f"no entry log id is above that of {self._path(log_name(LOG_ID_MAX))}")
        self._disk.write_atomic(self._path(_LAST_ID), encode_last_id(log_id))
        self._next_id = log_id + 1
        self.before_create(log_id)
        path = self._path(log_name(log_id) + suffix)
        file = self._disk.open(path, create=True)
        try:
            file.pwrite(encode_header(Header()), 0)
            self._disk.sync_dir(self._directory)
        except OSError:
            file.close()
            with suppress(OSError):
                self._disk.unlink(path)
            raise
        return OpenLog(log_id, file)

    def _log_sealed(self, log: OpenLog) -> None:
        self._open.pop(log.log_id, None)
        self._ends[log.log_id] = log.position

    def _log_abandoned(self, log: OpenLog) -> None:
        self.contents.remember(LogMetadata(log_id=log.log_id, size=log.safe, ledgers=log.safe_ledgers, proven=True))
        self._ends[log.log_id] = log.safe
        self._open.pop(log.log_id, None)
        if log.safe == HEADER_LENGTH:
            with suppress(OSError):
                self.delete(log.log_id)

    # ---------------------------------------------------------------------------------------------------- read

    def records_end(self, log_id: int, file: LogBytes) -> int:
        """Return the end of the log's durable records, in bytes from its start; -1 if unknown.

        A log that was not sealed may be torn behind its last indexed entry.
        """
        log = self._open.get(log_id)
        if log is not None:
            return log.safe
        end = self._ends.get(log_id)
        if end is None:
            found = read_ledgers_map(file)
            end = self._ends[log_id] = -1 if found.ledgers is None else found.offset
        return end

    # --------------------------------------------------------------------------------------------------- delete

    def delete(self, log_id: int) -> int:
        """Delete a log that is no longer written; return the bytes freed."""
        assert log_id not in self._open, "a log that is written cannot be deleted"
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
