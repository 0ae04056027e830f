"""Disks with bit errors in copies of confirmed entries, never in more than one copy of a ledger's entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from quire.ledger.striping import Striping
from simulation.common.folder_nemesis import FolderNemesis
from simulation.common.nemesis import Harmed
from simulation.common.nodes import BookieNode
from simulation.ledger.checkers import LedgerChecker

ENTRY_HEAD = 48
"""Bytes of an entry before its digest, of any kind, and its payload; flips happen behind them."""


class Lying(Harmed, Protocol):
    """History with the known confirmed entries."""

    @property
    def checker(self) -> LedgerChecker: ...

    @property
    def by_id(self) -> Mapping[str, BookieNode]: ...


class FlippingNemesis(FolderNemesis):
    """Nemesis with bit errors."""

    def __init__(self, story: Lying) -> None:
        super().__init__(story)
        self.story: Lying = story
        self._liars: dict[int, str] = {}
        """By ledger: the bookie with a damaged copy."""
        self.flipped: set[tuple[int, int, str]] = set()
        """(ledger, entry, bookie id) of each damaged copy, healed or not."""
        self._acts |= {"flipped entry": self._flip}

    async def _flip(self) -> bool:
        """Flip one bit of one copy of a confirmed entry, in an entry log."""
        checker = self.story.checker
        candidates = [
            history
            for history in checker.histories.values()
            if history.confirmed >= 0
            and not history.deleted
            and (metadata := checker.stored.get(history.ledger_id)) is not None
            and metadata.ack_quorum > 1
        ]
        for _ in range(20 if candidates else 0):
            history = self.rng.choice(candidates)
            entry_id = self.rng.randint(0, history.confirmed)
            metadata = checker.stored[history.ledger_id]
            striping = Striping(metadata.ensemble_size, metadata.write_quorum)
            index = self.rng.choice(striping.write_set(entry_id))
            bookie_id = metadata.fragment_at(entry_id).bookies[index]
            if self._liars.get(history.ledger_id, bookie_id) != bookie_id:
                continue
            node = self.story.by_id[bookie_id]
            place = node.location(history.ledger_id, entry_id)
            if place is None:
                continue
            path, offset = place
            end = ENTRY_HEAD + len(history.payloads[entry_id]) - 12
            node.host.disk.flip(path, offset + self.rng.randrange(16, max(32, end)), self.rng.randrange(8))
            self._liars[history.ledger_id] = bookie_id
            self.flipped.add((history.ledger_id, entry_id, bookie_id))
            self.note("flipped entry", ledger=history.ledger_id, first=entry_id, last=entry_id, bookie=bookie_id)
            return True
        return False
