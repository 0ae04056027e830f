"""Recovery of all ledgers of some bookies, for `quire shell recover` and PUT /api/v1/autorecovery/bookie.

A ledger that cannot be recovered does not keep the others from it, unlike in the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from autorecovery.copying.bookie_recovery import BookieRecovery, LedgerPlan
from autorecovery.copying.replicator import Copied
from autorecovery.removal.ledger_scan import read_each
from quire.ledger.errors import (
    BookieError,
    DigestMismatchError,
    LedgerError,
    LedgerReadError,
    LedgerRecoveryError,
    LedgerUnauthorizedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from quire.metadata.ledgers import LedgerManager, LedgerMetadata
from quire.world.tasks import for_each

LEDGERS_AT_ONCE: Final = 8
REMEDIES: Final[tuple[tuple[type[LedgerError], str], ...]] = (
    (NotEnoughBookiesError, "start a bookie outside its ensemble, or add one"),
    (NoSuchEntryError, "start the bookies that had the entry; if their disks are lost, so is the entry"),
    (DigestMismatchError, "start other bookies that have the entry; if there are none, it is permanently damaged"),
    (LedgerReadError, "start the bookies that have the entry"),
    (LedgerRecoveryError, "start more bookies of its last ensemble, so that its end can be found"),
    (LedgerUnauthorizedError, "set passwd and digestType to those of its writer"),
    (BookieError, "make sure that the bookie accepts copies"),
)
"""By kind of failure, the first that fits: the remedy before the next `recover`."""
RUN_AGAIN: Final = "run recover again"


def remedy(error: LedgerError) -> str:
    """Return the remedy for a ledger that cannot be recovered."""
    first = next((text for kind, text in REMEDIES if isinstance(error, kind)), "")
    return f"{first}, then {RUN_AGAIN}" if first else RUN_AGAIN


@dataclass(slots=True)
class RecoveryOutcome:
    """Result of a recovery, also while it works and after an error has ended it."""

    ledgers: int
    recovered: int = 0
    gone: int = 0
    """Ledgers that were deleted meanwhile."""
    left: Counter[str] = field(default_factory=Counter)
    """Ledgers that cannot be recovered now, by the remedy."""

    @property
    def untried(self) -> int:
        return self.ledgers - self.recovered - self.gone - self.left.total()

    def summary(self) -> str:
        """Return the counts in a line."""
        untried = f", {self.untried} were not tried" if self.untried else ""
        done = self.recovered + self.gone
        return f"{done} of {self.ledgers} ledgers recovered, {self.left.total()} cannot be now{untried}"


async def concerned_ledgers(
    manager: LedgerManager,
    recovery: BookieRecovery,
    unreadable: Callable[[int, str], None],
    examined: Callable[[int], None] = lambda count: None,
) -> dict[int, LedgerMetadata]:
    """Return the ledgers that name the bookies. `unreadable` gets the id and the error of unreadable metadata."""
    found: dict[int, LedgerMetadata] = {}

    def look(ledger_id: int, metadata: LedgerMetadata | str | None) -> None:
        if isinstance(metadata, str):
            unreadable(ledger_id, metadata)
        elif metadata is not None and recovery.concerns(metadata):
            found[ledger_id] = metadata

    await read_each(manager, look, examined)
    return found


async def recover_ledgers(
    recovery: BookieRecovery,
    plans: Sequence[LedgerPlan],
    outcome: RecoveryOutcome,
    *,
    recovered: Callable[[LedgerPlan, Copied], None],
    failed: Callable[[LedgerPlan, LedgerError], None],
) -> None:
    """Recover the ledgers, some at a time, and count them in `outcome`. Raises MetadataError, which ends it."""

    async def one(plan: LedgerPlan) -> None:
        try:
            copied = await recovery.recover(plan.ledger_id)
        except NoSuchLedgerError:
            outcome.gone += 1
            return
        except LedgerError as error:
            outcome.left[remedy(error)] += 1
            failed(plan, error)
            return
        outcome.recovered += 1
        recovered(plan, copied)

    await for_each(plans, one, at_once=LEDGERS_AT_ONCE, name="recovery")
