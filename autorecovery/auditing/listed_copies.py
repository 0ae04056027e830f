"""ListedCopies: compares the closed fragments of one ledger with the lists of its members, and marks missing copies.

A bookie that does not list its entries (the originals do not, with their usual storage) has the first and the last of
each fragment read instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from autorecovery.auditing.bookie_index import LedgerListing
from autorecovery.auditing.checks import Checker, Telling
from autorecovery.entry_lists import ListEntries
from autorecovery.errors import ListOfEntriesError
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from autorecovery.replicas import compare
from quire.ledger.errors import NoSuchLedgerError
from quire.ledger.reading.copies import CopyFault
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.availability import Availability

UNSURE = frozenset((CopyFault.UNREACHABLE, CopyFault.BUSY))
"""Faults after which the copy may still exist."""


class Compared(Enum):
    """Result of comparing a ledger."""

    DONE = "done"
    """Every requested copy exists, or the ledger is marked."""
    UNANSWERED = "unanswered"
    """A bookie does not answer."""


class ListedCopies:
    """Calls for different ledgers may overlap."""

    def __init__(
        self, ledgers: LedgerListing, marks: UnderreplicatedLedgers, list_entries: ListEntries, checker: Checker
    ) -> None:
        self._ledgers = ledgers
        self._marks = marks
        self._list_entries = list_entries
        self._checker = checker
        self._mute: set[str] = set()
        self.telling = Telling("a ledger lacks copies that its writer did not wait for")

    async def look(self, ledger_id: int, metadata: LedgerMetadata, bookies: Collection[str]) -> Compared:
        """Compare the entries that `bookies` should have with their lists. MetadataError."""
        while True:
            lists, silent = await self._lists(ledger_id, metadata, bookies)
            missing = list(dict.fromkeys(each.bookie_id for each in compare(metadata, lists).missing))
            unsure = False
            if silent:
                bad, unsure = await self._read_ends(ledger_id, metadata, silent)
                missing += bad
            if not missing:
                return Compared.UNANSWERED if unsure else Compared.DONE
            # Read the metadata once more: the ledger may be deleted by now, or other bookies may hold it.
            try:
                found = await self._ledgers.read_metadata(ledger_id)
            except NoSuchLedgerError:
                return Compared.DONE
            if found != metadata:
                metadata = found
                continue
            self.telling.tell(ledger_id, bookies=",".join(missing))
            await self._marks.mark(ledger_id, missing)
            return Compared.UNANSWERED if unsure else Compared.DONE

    async def _lists(
        self, ledger_id: int, metadata: LedgerMetadata, bookies: Collection[str]
    ) -> tuple[Mapping[str, Availability], frozenset[str]]:
        """Request lists from members of closed fragments; return the lists, and the members that have none."""
        closed = metadata.fragments if metadata.state is LedgerState.CLOSED else metadata.fragments[:-1]
        lists: dict[str, Availability] = {}
        silent: set[str] = set()
        for bookie_id in dict.fromkeys(each for fragment in closed for each in fragment.bookies):
            if bookie_id not in bookies:
                continue
            if bookie_id in self._mute:
                silent.add(bookie_id)
                continue
            try:
                lists[bookie_id] = await self._list_entries(bookie_id, ledger_id)
            except ListOfEntriesError:
                silent.add(bookie_id)
        return lists, frozenset(silent)

    async def _read_ends(
        self, ledger_id: int, metadata: LedgerMetadata, bookies: Collection[str]
    ) -> tuple[list[str], bool]:
        """Return those of `bookies` that lack entries they should have, and whether one of them did not answer."""
        bad: dict[str, None] = {}
        unsure: set[str] = set()
        for found in await self._checker.check(ledger_id, metadata):
            for index, fault in found.faults.items():
                bookie_id = found.fragment.bookies[index]
                if bookie_id not in bookies:
                    continue
                if fault in UNSURE:
                    unsure.add(bookie_id)
                elif isinstance(fault, CopyFault):
                    bad[bookie_id] = None
        self._mute.update(set(bookies) - unsure)
        return list(bad), bool(unsure)
