"""Reads of a scrub, which must not push what clients read out of the machine's memory. Blocking.

Most of what a scrub reads is cold, and no client will ask for it soon. So nothing is read ahead, and the pages that
came from the disk are dropped again. Pages that were in memory before stay there, because a client may want them: a
piece of a file is dropped only if the disk gave as many sectors as it has. Where the system does not count sectors,
nothing is dropped.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_log_format import log_name
from bookie.db_ledger_storage.log_contents import LogBytes
from bookie.errors import LogMissingError
from quire.world.doors import Disk, File

PIECE: Final = 64 << 10
"""Bytes of which it is decided at once whether they were cold; pieces begin at its multiples."""
PAGE: Final = 4096
_SECTOR: Final = 512
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class ColdFile:
    """File of a log that leaves the page cache as it was. `sectors_read`: of the calling thread."""

    def __init__(self, file: File, sectors_read: Callable[[], int | None]) -> None:
        self._file = file
        self._sectors_read = sectors_read

    def size(self) -> int:
        return self._file.size()

    def pread(self, size: int, offset: int) -> bytes:
        """As `File.pread`."""
        pieces: list[bytes] = []
        while size > 0:
            wanted = min(size, PIECE - offset % PIECE)
            before = self._sectors_read()
            data = self._file.pread(wanted, offset)
            after = self._sectors_read()
            if before is not None and after is not None and data and (after - before) * _SECTOR >= len(data):
                start = offset - offset % PAGE  # the kernel drops whole pages only
                self._file.forget(start, -(-(offset + len(data)) // PAGE) * PAGE - start)
            pieces.append(data)
            if len(data) < wanted:
                break
            size -= wanted
            offset += wanted
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class ColdLogs:
    """Entry logs of one folder, each opened for one read, as `read_found` uses them."""

    def __init__(self, disk: Disk, folder: str, logs: EntryLogs) -> None:
        self._disk = disk
        self._folder = folder
        self._logs = logs

    @property
    def readers(self) -> ColdLogs:
        return self

    @contextmanager
    def reading(self, log_id: int) -> Iterator[LogBytes]:
        """As `OpenLogs.reading`. LogMissingError, OSError."""
        try:
            file = self._disk.open(f"{self._folder}/{log_name(log_id)}", writable=False, scattered=True)
        except FileNotFoundError as error:
            raise LogMissingError(f"entry log {log_name(log_id)} is missing") from error
        except OSError as error:
            if error.errno not in _NO_DESCRIPTORS:
                raise
            with self._logs.readers.reading(log_id) as shared:
                yield shared
            return
        with closing(file):
            yield ColdFile(file, self._disk.sectors_read)

    def records_end(self, log_id: int, file: LogBytes) -> int:
        """As of EntryLogs."""
        return self._logs.records_end(log_id, file)
