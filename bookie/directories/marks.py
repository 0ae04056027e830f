"""Marks of one journal in all ledger directories: each has the file lastMark(.i) and the seal beside it.

The original writes lastMark to every ledger directory and reads the greatest. So does this, with the seal too: a
directory that is lost then costs no other one its ledgers. Blocking, but for what the journal's thread calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bookie.config import BookieConfig
from bookie.errors import JournalFailedError
from bookie.journal.format import LogMark, encode_last_mark
from bookie.journal.seal import JournalSeal
from bookie.recovery import last_mark_path, seal_path_of
from quire.service.log import get_logger
from quire.world.doors import Disk

log = get_logger(__name__)


class JournalMarks:
    """Mark and seals of one journal. `is_usable` says whether a ledger directory can be used."""

    def __init__(self, disk: Disk, config: BookieConfig, journal: int, is_usable: Callable[[int], bool]) -> None:
        self._disk = disk
        self._directories = range(len(config.ledger_directories))
        self._paths = [last_mark_path(config, journal, directory) for directory in self._directories]
        self._seal_paths = [seal_path_of(config, journal, directory) for directory in self._directories]
        self._is_usable = is_usable
        self._seals: list[JournalSeal] = []
        self.syncs_itself = True
        """False while the event loop syncs the seals of a new file: a disk that hangs then does not hold up the
        journal's thread, which cannot leave a sync."""

    def open(self) -> None:
        """Open the seals. OSError."""
        self._seals = [JournalSeal.open(self._disk, path) for path in self._seal_paths]

    @property
    def end(self) -> JournalSeal | SpreadSeal:
        """Return the part that the journal's thread writes."""
        return self._seals[0] if len(self._seals) == 1 else SpreadSeal(self._seals, self._is_usable, self)

    def write(self, directory: int, mark: LogMark) -> None:
        """Write the mark to one directory; durable on return. OSError."""
        # Write the sealed copy first: startup uses it, and lastMark must never be ahead of it.
        self._seals[directory].write_mark(mark)
        self._disk.write_atomic(self._paths[directory], encode_last_mark(mark))

    def sync(self, directory: int) -> None:
        """Make the seal of one directory durable. OSError."""
        self._seals[directory].sync()

    def close(self) -> None:
        for seal in self._seals:
            seal.close()


class SyncsItself(Protocol):
    """The part of JournalMarks that says where seals are synced."""

    @property
    def syncs_itself(self) -> bool: ...


class SpreadSeal:
    """Copies of a journal's seal, for the journal's thread.

    While the bookie serves, the copies of a new file are synced by the event loop (Checkpoints), each by itself. Until
    one of them is, a power cut may set all back to the file before. The next start then replays the whole journal.
    """

    def __init__(self, seals: list[JournalSeal], is_usable: Callable[[int], bool], syncing: SyncsItself) -> None:
        self._seals = seals
        self._is_usable = is_usable
        self._syncing = syncing

    def reached(self, end: LogMark) -> None:
        """As `JournalSeal.reached`, in all directories."""
        for seal in self._seals:
            seal.reached(end)

    def begun(self, end: LogMark) -> None:
        """As `JournalSeal.begun`, in all directories that can be used. JournalFailedError if it fails in all."""
        if not self._syncing.syncs_itself:
            self.reached(end)
            return
        failure: JournalFailedError | None = None
        synced = 0
        for index, seal in enumerate(self._seals):
            if not self._is_usable(index):
                seal.reached(end)
                continue
            try:
                seal.begun(end)
                synced += 1
            except JournalFailedError as error:
                log.warning("a copy of the journal's seal cannot be synced", reason=str(error))
                failure = error
        if not synced:
            raise failure or JournalFailedError("the seal of the journal cannot be synced: no directory can be used")
