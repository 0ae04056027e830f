"""Errors of a bookie. Each class says whether a retry can help, and what to do."""

from __future__ import annotations

from typing import ClassVar, Final

NO_ROOM_ENDS: Final = "the disks are full, and readOnlyModeEnabled=false: free some space, then start the server"


class BookieError(Exception):
    """Root of all errors of this package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class NoLedgerError(BookieError):
    """The ledger is unknown to this bookie. Final on this bookie: read another replica."""


class NoEntryError(BookieError):
    """The ledger is known, the entry is not stored here.

    Final on this bookie unless the entry is still being written.
    """


class LedgerInLimboError(BookieError):
    """The bookie may have lost entries of the ledger, so "not here" proves nothing.

    Final on this bookie until the ledger was checked against its other replicas.
    """


class LedgersUnsortedError(BookieError):
    """The metadata lists ledgers in another order than that of their ids, so missing ones cannot be found.

    Final: nothing is collected. The store, or something that wrote to it, is faulty.
    """


class PeersUnavailableError(BookieError):
    """The other bookies cannot be asked for their copies. Passing: the next search asks again."""

    passing = True


class WriteCacheFullError(BookieError):
    """Entries arrive faster than the disk stores them. Passing: try again later."""

    passing = True


class StorageDamagedError(BookieError):
    """An entry log or an index holds bytes that were not written that way.

    Final for the entry: read another replica, and let auto recovery copy it.
    """


class LogMissingError(StorageDamagedError):
    """An entry log is not there. A row read before compaction deleted the log leads to it, and is read again."""


class StorageFailedError(BookieError):
    """A sync of the storage failed, so the content of the disk is unknown. Final: restart the bookie."""


class DirectoryUnavailableError(BookieError):
    """A ledger directory has failed, or does not answer; the others are served.

    Final on this bookie until the disk answers or the bookie is restarted: use another replica.
    """


class JournalFailedError(BookieError):
    """A sync of the journal failed, so the content of the disk is unknown.

    Final: nothing is acknowledged any more. Restart the bookie; replay finds out what is stored.
    """


class JournalWriteError(BookieError):
    """A group could not be written (for example, disk full); nothing of it counts. Passing: free some space."""

    passing = True


class JournalDamagedError(BookieError):
    """A journal holds damaged bytes in front of good ones, or less than was synced. This is not an unsynced tail.

    Final: restore the file, or start once with skipReplayJournalInvalidRecord=true, which discards the records of the
    damaged group (their ledgers have other replicas).
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {reason}")
        self.path = path
        self.offset = offset
        """Bytes from the start of the file to the group that cannot be read."""
        self.reason = reason


class CookieMismatchError(BookieError):
    """The directories are not those of this bookie, or were wiped. Final: the message says what to do."""


class DirectoryInUseError(BookieError):
    """Another process serves these directories. Final: stop it first."""


class DisksFullError(BookieError):
    """The disks are full, and readOnlyModeEnabled=false forbids to go on without adds.

    Final: free some space, then start the bookie.
    """


class SharedPartitionError(BookieError):
    """Two directories are on one file system, which the configuration forbids. Final: the message says what to do."""


class IndexOptionsError(BookieError):
    """An options file of an index cannot be obeyed. Final: correct the file, or remove the key that names it."""
