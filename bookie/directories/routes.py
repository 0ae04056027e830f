"""Routes: decide in which ledger directory a ledger lies, and which journal has its records. Pure.

A new ledger goes to directory `id mod directories` and to journal `id mod journals`, which is where the original looks
for it. After a directory was added, that is another place for most ledgers. So a ledger that already has something here
stays where it is: in memory there is a row only for each such ledger. The original looks in the new place alone, and
denies what is in the old one; it may also have served in between, and then a ledger has data in two directories.

The number of journals never changes (cookie.py), so a ledger's records are in one of them.

Source: BookKeeper's DbLedgerStorage and BookieImpl (MathUtils.signSafeMod).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Routes:
    """Places of the ledgers of one bookie."""

    def __init__(self, directories: int, journals: int) -> None:
        self.directories = directories
        self.journals = journals
        self._elsewhere: dict[int, int] = {}
        """Directory of the ledgers that are not in the one for new ledgers."""
        self._parts: dict[int, tuple[int, ...]] = {}
        """The other directories of ledgers that have data in several."""

    def settle(self, known: Sequence[Iterable[int]]) -> None:
        """Learn which ledgers each directory has. Called once, before any other use."""
        count, elsewhere, parts = self.directories, self._elsewhere, self._parts
        for directory, ledgers in enumerate(known):
            for ledger_id in ledgers:
                if ledger_id % count == directory:
                    continue
                if ledger_id in elsewhere:
                    parts[ledger_id] = (*parts.get(ledger_id, ()), directory)
                else:
                    elsewhere[ledger_id] = directory
        for directory, ledgers in enumerate(known):
            for ledger_id in ledgers:
                if ledger_id % count == directory and ledger_id in elsewhere:
                    # The original has served since the directory was added: new entries go where it looks for them.
                    parts[ledger_id] = (elsewhere.pop(ledger_id), *parts.get(ledger_id, ()))

    def keep(self, ledger_id: int, directory: int) -> None:
        """Keep a ledger that no directory has in the one that remembers its fence."""
        if ledger_id % self.directories != directory:
            self._elsewhere[ledger_id] = directory

    def directory(self, ledger_id: int) -> int:
        """Return the number of the directory that takes the ledger's entries."""
        elsewhere = self._elsewhere.get(ledger_id)
        return ledger_id % self.directories if elsewhere is None else elsewhere

    def others(self, ledger_id: int) -> tuple[int, ...]:
        """Return the numbers of the other directories that have a part of the ledger, usually none."""
        return self._parts.get(ledger_id, ())

    def split_ledgers(self) -> list[int]:
        """Return the ledgers that have data in several directories."""
        return list(self._parts)

    def journal(self, ledger_id: int) -> int:
        """Return the number of the journal of the ledger."""
        return ledger_id % self.journals
