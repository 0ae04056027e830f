"""Reading of entries from several ledger directories: each read goes to the ledger's own.

A ledger that has data in several (routes.py) is read from the others where its own has no such entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby

from bookie.db_ledger_storage.entry_reader import Cached, EntryReader
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.directories.health import DirectoryHealth
from bookie.directories.routes import Routes
from bookie.errors import LedgerInLimboError, NoEntryError, NoLedgerError
from quire.wire.bookkeeper.entry import Buffer


class SpreadReader:
    """As `EntryReader`, over several directories. DirectoryUnavailableError where one of them cannot be used."""

    def __init__(self, storages: Sequence[DbLedgerStorage], routes: Routes, health: DirectoryHealth) -> None:
        self._storages = storages
        self._routes = routes
        self._health = health

    def get_cached(self, ledger_id: int, entry_id: int) -> memoryview | None:
        """Return one entry if a cache has it."""
        index = self._routes.directory(ledger_id)
        if self._health.reasons[index]:
            return None
        return self._storages[index].reader.get_cached(ledger_id, entry_id)

    def read_cached(self, ledger_id: int, first: int, count_max: int, size_max: int) -> Cached:
        """As `read_run`, from the caches alone."""
        index = self._routes.directory(ledger_id)
        if self._health.reasons[index]:
            return Cached([], 0, 0, is_whole=False)
        return self._storages[index].reader.read_cached(ledger_id, first, count_max, size_max)

    def read_entry(self, ledger_id: int, entry_id: int) -> Buffer:
        """As `EntryReader.read_entry`. Blocking."""
        own, *others = self._readers(ledger_id)
        try:
            return own.read_entry(ledger_id, entry_id)
        except (NoEntryError, LedgerInLimboError):
            for each in others:
                try:
                    return each.read_entry(ledger_id, entry_id)
                except (NoEntryError, NoLedgerError):
                    continue
            raise

    def read_run(
        self, ledger_id: int, first: int, count_max: int, size_max: int, cached: Cached | None = None
    ) -> list[Buffer]:
        """As `EntryReader.read_run`. Blocking."""
        own, *others = self._readers(ledger_id)
        try:
            return own.read_run(ledger_id, first, count_max, size_max, cached)
        except (NoEntryError, LedgerInLimboError):
            for each in others:
                try:
                    return each.read_run(ledger_id, first, count_max, size_max)
                except (NoEntryError, NoLedgerError):
                    continue
            raise

    def last_entry_id(self, ledger_id: int) -> int:
        """As `EntryReader.last_entry_id`. Blocking."""
        own, *others = self._readers(ledger_id)
        if not others:
            return own.last_entry_id(ledger_id)
        found = []
        missing: Exception | None = None
        for each in (own, *others):
            try:
                found.append(each.last_entry_id(ledger_id))
            except (NoEntryError, NoLedgerError) as error:
                missing = missing or error
        if missing is not None and not found:
            raise missing
        return max(found)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """As `EntryReader.entry_ids`. Blocking."""
        own, *others = self._readers(ledger_id)
        ids = own.entry_ids(ledger_id)
        if not others:
            return ids
        rest = []
        for each in others:
            try:
                rest.append(each.entry_ids(ledger_id))
            except NoLedgerError:
                continue
        return (entry_id for entry_id, _ in groupby(merge(ids, *rest)))

    def ranges(self, ledger_id: int) -> tuple[Iterable[tuple[int, int]], ...]:
        """As `EntryReader.ranges`. Blocking."""
        return tuple(found for each in self._readers(ledger_id) for found in each.ranges(ledger_id))

    def _readers(self, ledger_id: int) -> list[EntryReader]:
        """Return the reader of the ledger's directory, then those of the others that have a part of it."""
        indexes = (self._routes.directory(ledger_id), *self._routes.others(ledger_id))
        for index in indexes:
            self._health.check(index)
        return [self._storages[index].reader for index in indexes]
