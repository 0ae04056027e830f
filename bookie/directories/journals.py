"""Several journals of one bookie: a ledger's records are all in one of them.

A bookie with one journal uses its Journal directly. Adds of clients do not come through here: adds.py gives them
straight to the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from bookie.directories.routes import Routes
from bookie.errors import JournalFailedError
from bookie.journal.writer import Journal


class SpreadJournal:
    """Journals as one."""

    def __init__(self, journals: Sequence[Journal], routes: Routes) -> None:
        self.journals = tuple(journals)
        """All journals."""
        self._routes = routes

    def of(self, ledger_id: int) -> Journal:
        """Return the journal of the ledger."""
        return self.journals[self._routes.journal(ledger_id)]

    def hold(self) -> None:
        """As `Journal.hold`."""
        for journal in self.journals:
            journal.hold()

    def let_go(self) -> None:
        """End `hold`."""
        for journal in self.journals:
            journal.let_go()

    def forget_keys(self, ledgers: Sequence[int]) -> None:
        """As `Journal.forget_keys`."""
        for index, journal in enumerate(self.journals):
            own = [ledger_id for ledger_id in ledgers if self._routes.journal(ledger_id) == index]
            if own:
                journal.forget_keys(own)

    def economize(self, on: bool) -> None:
        """As `Journal.economize`."""
        for journal in self.journals:
            journal.economize(on)

    @property
    def queued_bytes(self) -> int:
        """Return the bytes appended and not yet reported, overhead included."""
        return sum(journal.queued_bytes for journal in self.journals)

    @property
    def failed(self) -> JournalFailedError | None:
        """Return why the last journal failed, None while one of them has not."""
        failures = [journal.failed for journal in self.journals]
        return failures[-1] if all(failures) else None

    @property
    def groups(self) -> int:
        """Return the number of groups written."""
        return sum(journal.groups for journal in self.journals)

    @property
    def write_failures(self) -> int:
        """Return the number of groups that could not be written."""
        return sum(journal.write_failures for journal in self.journals)


LedgerJournal: TypeAlias = Journal | SpreadJournal
"""Journal of a bookie: its only one, or several."""
