"""Forces that a flush answers: entries that are not journaled are on disk when their directory has flushed them."""

from __future__ import annotations

from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import StorageFailedError
from bookie.journal.group_writer import OnDurable


class Forces:
    """Forces that wait, by ledger directory."""

    def __init__(self, directories: int) -> None:
        self._waiting: list[list[OnDurable]] = [[] for _ in range(directories)]

    def add(self, directory: int, done: OnDurable) -> None:
        """Call `done` when a flush of the directory, which begins after this call, has ended. Ask for it then."""
        self._waiting[directory].append(done)

    async def flush(self, directory: int, storage: DbLedgerStorage) -> None:
        """Flush, and answer those that wait. OSError, StorageFailedError."""
        waiting, self._waiting[directory] = self._waiting[directory], []
        error: StorageFailedError | None = StorageFailedError("the flush was abandoned")
        try:
            await storage.flush()
            error = None
        except (OSError, StorageFailedError) as failure:
            error = StorageFailedError(str(failure))
            raise
        finally:
            for done in waiting:
                done(error)

    def refuse(self, directory: int, reason: str) -> None:
        """Answer those that wait with an error: the directory is not flushed any more."""
        waiting, self._waiting[directory] = self._waiting[directory], []
        for done in waiting:
            done(StorageFailedError(reason))
