"""What can go wrong in a bookie. Each class says whether it is final, and what to do."""

from __future__ import annotations

from typing import ClassVar


class BookieError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again: in a class whose docstring says "Passing"."""


class NoLedgerError(BookieError):
    """The bookie has never heard of the ledger. Final on this bookie: ask another replica."""


class NoEntryError(BookieError):
    """The ledger is known, the entry is not here. Final on this bookie unless the entry is still being written."""


class LedgerInLimboError(BookieError):
    """The bookie may have lost entries of the ledger, so that "not here" proves nothing. Final on this bookie until the
    ledger was checked against its other replicas."""


class WriteCacheFullError(BookieError):
    """Entries come faster than the disk takes them. Passing: try again after a while."""

    passing = True


class StorageDamagedError(BookieError):
    """An entry log or an index holds bytes that were not written so. Final for the entry: read another replica,
    and let auto recovery copy it."""


class StorageFailedError(BookieError):
    """A sync of the storage failed, so that nobody knows what is on the disk. Final: restart the bookie."""


class JournalFailedError(BookieError):
    """A sync of the journal failed, so that nobody knows what is on the disk. Final: nothing is acknowledged any
    more; restart the bookie, whose replay tells what there is."""


class JournalWriteError(BookieError):
    """A group could not be written (disk full, say); nothing of it counts. Passing: free some space."""

    passing = True


class JournalDamagedError(BookieError):
    """A journal holds bytes that were not written so, in front of others that were, or less than was synced: not an unsynced tail.
    Final: restore the file, or start once with skipReplayJournalInvalidRecord=true, which gives up the records
    of the damaged group (their ledgers have other replicas)."""

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
