"""In which order the bookies of an entry are asked, for one ledger.

    striped       by the entry's write set
    not striped   beginning with the ledger's favourite, whose read-ahead then serves the whole ledger

and then by health and place, as the placement policy says: who failed, is slow or only reads comes later, who is gone last.

Source: BookKeeper's LedgerHandle (sticky reads), EnsemblePlacementPolicy.reorderReadSequence, reorderReadLACSequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.bookies.health import BookieHealth
from quire.ledger.placement import EnsemblePlacementPolicy
from quire.ledger.read_config import ReadConfig
from quire.ledger.striping import Striping
from quire.world.doors import Rng


class ReadOrder:
    """Pure, but that the favourite is drawn and moves."""

    def __init__(
        self,
        striping: Striping,
        placement: EnsemblePlacementPolicy,
        health: BookieHealth,
        config: ReadConfig,
        rng: Rng,
    ) -> None:
        self._striping = striping
        self._placement = placement
        self._health = health
        self._reorder = config.reorder and striping.write_quorum > 1
        self._sticky = config.sticky and not striping.striped
        self._favourite = rng.randrange(striping.ensemble_size)

    def of_entry(self, bookies: Sequence[str], entry_id: int) -> list[int]:
        """Indices of `bookies`, the ensemble, that store the entry, in the order in which they are asked."""
        write_set = self._striping.write_set(self._favourite if self._sticky else entry_id)
        return self._placement.read_order(bookies, write_set, self._health) if self._reorder else write_set

    def of_all(self, bookies: Sequence[str], entry_id: int) -> list[int]:
        """The same, with the rest of the ensemble behind: who knows the LAC need not have the entry."""
        order = self.of_entry(bookies, entry_id)
        return order + [index for index in range(len(bookies)) if index not in order]

    def prefer(self, index: int) -> None:
        """This bookie answered where others before it did not: stay with it."""
        self._favourite = index
