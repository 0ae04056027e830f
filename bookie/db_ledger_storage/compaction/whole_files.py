"""Files of a compaction that counts only when whole (useTransactionalCompaction). Blocking.

    <new>.log.compacting         copies are being written
    <new>.log.<old>.compacted    every copy is durable; further names of the same file: this one lasts until no row
    <new>.log                    points into <old>.log, and this one stays

Ids are hexadecimal. What a crash leaves is `pending` if it counts, and deleted otherwise.

Source: BookKeeper's TransactionalEntryLogCompactor and DefaultEntryLogger.incompleteCompactionLogs. Its recovery writes
the new id in decimal (issue 4804), so rows may point into a log that has no name; `start` gives it one.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from bookie.db_ledger_storage.entry_log import EntryLogs
from bookie.db_ledger_storage.entry_log_format import POSITION_MAX, log_id_of, log_name
from bookie.db_ledger_storage.log_writing.log_writer import LogWriter
from quire.service.log import get_logger
from quire.world.doors import Disk

log = get_logger(__name__)

COMPACTING: Final = ".compacting"
COMPACTED: Final = ".compacted"


def compacted_name(new: int, old: int) -> str:
    """Return the name that a log has until its rows are written.

    >>> compacted_name(31, 26)
    '1f.log.1a.compacted'
    """
    return f"{log_name(new)}.{old:x}{COMPACTED}"


def compacted_ids(name: str) -> tuple[int, int] | None:
    """Return the ids (new, old) in such a name; None if it is another name.

    >>> compacted_ids("1f.log.1a.compacted"), compacted_ids("1f.log.1g.compacted"), compacted_ids("1f.compacted")
    ((31, 26), None, None)
    """
    new, _, rest = name.removesuffix(COMPACTED).partition(".log.")
    ids = log_id_of(f"{new}.log"), log_id_of(f"{rest}.log")
    return ids if name.endswith(COMPACTED) and min(ids) >= 0 and ids[0] != ids[1] else None


class WholeFiles:
    """Files of such compactions in one folder. `sync_every`: bytes written between two syncs."""

    def __init__(self, disk: Disk, directory: str, logs: EntryLogs, sync_every: int) -> None:
        self._disk = disk
        self._directory = directory
        self._logs = logs
        self.pending: dict[int, int] = {}
        """Logs whose rows are not all written, with the log that each was copied from."""
        self.writer = LogWriter(
            begin=partial(logs.create, COMPACTING),
            sealed=lambda written: None,
            abandoned=lambda written: None,
            synced=lambda written, end: written.file.forget(0, end),
            size_max=POSITION_MAX,
            sync_every=sync_every,
        )
        """Writes one log at a time, of any length: a log that is compacted may be longer than logSizeLimit."""

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def start(self) -> None:
        """Clean up what an earlier process left, before the logs are listed. Readable logs get their names."""
        linked = False
        for name in self._disk.names(self._directory):
            if name.endswith(f".log{COMPACTING}"):
                log.info("unfinished copy of an entry log deleted", file=name)
                self._disk.unlink(self._path(name))
            elif name.endswith(COMPACTED):
                ids = compacted_ids(name)
                if ids is None:
                    log.warning("not the name of a compacted entry log, it is left alone", file=name)
                    continue
                new, old = ids
                with suppress(FileExistsError):
                    self._disk.link(self._path(name), self._path(log_name(new)))
                linked = True
                self._hold(new, old)
        if linked:
            self._disk.sync_dir(self._directory)

    def _hold(self, new: int, old: int) -> None:
        self.pending[new] = old
        self._logs.held.update((new, old))

    def publish(self, old: int) -> int:
        """Seal the log that was written, and give it its names; return its id. From here on it counts.

        OSError: it does not; see `discard`.
        """
        new = self.writer.log_id
        self.writer.finish()
        compacting = self._path(log_name(new) + COMPACTING)
        self._disk.link(compacting, self._path(compacted_name(new, old)))
        self._hold(new, old)
        self._disk.sync_dir(self._directory)  # before rows can point into it
        self._disk.unlink(compacting)
        self.give_name(new)
        return new

    def give_name(self, new: int) -> None:
        """Give a pending log its own name, if it has none; durable on return."""
        with suppress(FileExistsError):
            self._disk.link(self._path(compacted_name(new, self.pending[new])), self._path(log_name(new)))
        self._disk.sync_dir(self._directory)
        self._logs.adopt(new)

    def discard(self) -> None:
        """Delete the copies that do not count."""
        self.writer.abandon()
        for name in self._disk.names(self._directory):
            if name.endswith(f".log{COMPACTING}"):
                self._disk.unlink(self._path(name))

    def finish(self, new: int) -> None:
        """Record that all rows are written."""
        old = self.pending[new]
        with suppress(FileNotFoundError):
            self._disk.unlink(self._path(compacted_name(new, old)))
        self._disk.sync_dir(self._directory)
        del self.pending[new]
        self._logs.held = {each for pair in self.pending.items() for each in pair}
