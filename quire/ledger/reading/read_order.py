"""Order in which the bookies of an entry are asked, for one ledger.

    striped       by the entry's write set
    not striped   beginning with the ledger's favourite, whose read-ahead then serves the whole ledger

The placement policy then orders by health and location: failed, slow and read-only bookies later, unregistered ones
last.

Source: BookKeeper's LedgerHandle (sticky reads), EnsemblePlacementPolicy.reorderReadSequence, reorderReadLACSequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.bookies.health import BookieHealth
from quire.ledger.placement import EnsemblePlacementPolicy
from quire.ledger.read_config import ReadConfig
from quire.ledger.striping import Striping
from quire.service.measuring.summaries import Times
from quire.world.doors import Rng


class ReadOrder:
    """Read order of one ledger. Pure, except that the favourite is drawn and changes."""

    def __init__(
        self,
        striping: Striping,
        placement: EnsemblePlacementPolicy,
        health: BookieHealth,
        config: ReadConfig,
        rng: Rng,
        reordered: Times,
    ) -> None:
        """`reordered`: gets a 1 for each read whose order is not that of the write set."""
        self._striping = striping
        self._placement = placement
        self._health = health
        self._reorder = config.reorder and striping.write_quorum > 1
        self._sticky = config.sticky and not striping.striped
        self._favourite = rng.randrange(striping.ensemble_size)
        self._reordered = reordered

    def of_entry(self, bookies: Sequence[str], entry_id: int) -> list[int]:
        """Return indices of `bookies`, the ensemble, that store the entry, in the order in which to ask."""
        write_set = self._striping.write_set(self._favourite if self._sticky else entry_id)
        if not self._reorder:
            return write_set
        order = self._placement.read_order(bookies, write_set, self._health)
        if order != write_set:
            self._reordered.observe(1)
        return order

    def of_all(self, bookies: Sequence[str], entry_id: int) -> list[int]:
        """As `of_entry`, followed by the rest of the ensemble: a bookie may know the LAC without having the entry."""
        order = self.of_entry(bookies, entry_id)
        return order + [index for index in range(len(bookies)) if index not in order]

    def prefer(self, index: int) -> None:
        """Prefer this bookie from now on: it answered where others before it did not."""
        self._favourite = index
