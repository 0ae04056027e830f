"""Choice of the fragment members to move until the placement policy is met. Pure, except for the policy's generator."""

from __future__ import annotations

from quire.ledger.errors import NotEnoughBookiesError
from quire.ledger.placement import Adherence, EnsemblePlacementPolicy
from quire.metadata.ledgers import LedgerMetadata


def adhering(
    placement: EnsemblePlacementPolicy, metadata: LedgerMetadata, bookies: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return an ensemble that meets the policy with few changes, found one by one.

    None if the given ensemble meets it, or none is found.
    """
    quorums = (metadata.write_quorum, metadata.ack_quorum)
    try:
        for count in range(len(bookies)):
            if placement.adherence(bookies, *quorums) is not Adherence.FAIL:
                return bookies if count else None
            for index in range(len(bookies)):
                changed = placement.replace_bookie(len(bookies), *quorums, bookies, {index: bookies[index]})
                if placement.adherence(changed, *quorums) is not Adherence.FAIL:
                    return changed
            bookies = placement.replace_bookie(len(bookies), *quorums, bookies, {count: bookies[count]})
    except NotEnoughBookiesError:
        pass
    return None
