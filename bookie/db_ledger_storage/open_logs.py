"""The entry logs that are open for reading.

Readers run beside the flush. A file that is dropped or pushed out of the table of open files is closed by the last of
the reads of that log which had begun before (`retire`), without a lock: each step on a dict is one step of the
interpreter.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final

from bookie.db_ledger_storage.entry_log_format import log_name
from bookie.errors import LogMissingError
from quire.world.doors import Disk, File

OPEN_FILES_MAX: Final = 64
"""Upper bound on the logs that stay open for the next read; fewer if the process may have few files open."""
READ_AHEAD_MAX: Final = 1 << 30
"""As many bytes as the configuration says."""
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class OpenLogs:
    """Files of `*.log` in one folder, opened when they are first read. Called from any worker."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._files: dict[int, File] = {}
        self.scatters: Callable[[], bool] = lambda: False
        """Returns whether the kernel should read nothing ahead at present. Called from any worker."""
        self.read_ahead_max: Callable[[], int] = lambda: READ_AHEAD_MAX
        """Returns the bytes that may be read ahead at a time at present. Called from any worker."""
        self._scattered = False
        """Last advice to the open files."""
        self._reads: dict[int, int] = {}
        """Log id of each read in progress."""
        self._read_ids = count()
        self._retired: deque[tuple[File, frozenset[int]]] = deque()
        """Evicted files, each with the reads that may still use it."""

    @contextmanager
    def reading(self, log_id: int) -> Iterator[File]:
        """The log, open until the block ends. LogMissingError if it is not there."""
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
            self.close_retired()

    def file(self, log_id: int) -> File:
        """Return the file of the log, between `begin_read` and `end_read`. LogMissingError."""
        if self.scatters() is not self._scattered:
            self._advise()
        file = self._files.get(log_id)
        if file is not None:
            return file
        opened = self._open(log_id)
        file = self._files.setdefault(log_id, opened)
        if file is not opened:
            opened.close()  # another worker was faster
        elif len(self._files) > (kept := min(OPEN_FILES_MAX, self._disk.files_kept_open())):
            with suppress(StopIteration, RuntimeError):
                # More than one if the process may have fewer files open than before.
                for _ in range(len(self._files) - kept):
                    self.retire(next(each for each in self._files if each != log_id))
        return file

    def _advise(self) -> None:
        # Several workers may do so at the same time, and a file may be evicted in between: this is only a hint.
        self._scattered = scattered = not self._scattered
        for file in list(self._files.values()):
            file.advise(scattered=scattered)

    def _open(self, log_id: int) -> File:
        """Open a log; if there is no descriptor for it, close logs that no read uses. LogMissingError, OSError."""
        while True:
            try:
                path = f"{self._directory}/{log_name(log_id)}"
                return self._disk.open(path, writable=False, scattered=self._scattered)
            except FileNotFoundError as error:
                raise LogMissingError(f"entry log {log_name(log_id)} is missing") from error
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS or not self._close_idle():
                    raise

    def _close_idle(self) -> bool:
        """Close a log that no read uses; return whether there was one."""
        used = set(self._reads.copy().values())
        for log_id in list(self._files):
            if log_id not in used and (file := self._files.get(log_id)) is not None:
                self.retire(log_id)
                self.close_retired()
                if file not in [retired for retired, _ in list(self._retired)]:
                    return True
        return False

    def retire(self, log_id: int) -> None:
        """Take the file of a log out of the table; it is closed when its reads have ended."""
        file = self._files.pop(log_id, None)
        if file is not None:
            # Remove it from the table first: a read that is not in this list can then no longer find the file.
            reads = frozenset(read_id for read_id, read in list(self._reads.items()) if read == log_id)
            self._retired.append((file, reads))

    def close_retired(self) -> None:
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

    def close(self) -> None:
        """Close all files. No read may be under way."""
        for file in [*self._files.values(), *(file for file, _ in self._retired)]:
            file.close()
        self._files.clear()
        self._retired.clear()
