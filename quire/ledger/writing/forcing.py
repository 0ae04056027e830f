"""Forces: every bookie of an ensemble syncs what it has of a ledger. Source: BookKeeper's ForceLedgerOp."""

from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.context import LedgerContext
from quire.ledger.errors import BookieRefusedError, rc_name
from quire.wire.bookkeeper.v2 import Rc


async def force_all(context: LedgerContext, ledger_id: int, ensemble: Sequence[str]) -> None:
    """Have all bookies of the ensemble sync the ledger. BookieUnavailableError, BookieRefusedError: one did not."""
    with context.stats.forces.timed():
        connections = [context.bookies.connection(bookie_id) for bookie_id in ensemble]
        answers = [connection.force(ledger_id) for connection in connections]
        for connection, answer in zip(connections, answers, strict=True):
            rc = (await answer.wait()).rc
            if rc != Rc.OK:
                text = f"bookie {connection.bookie_id} answered {rc_name(rc)} to the force of ledger {ledger_id}"
                raise BookieRefusedError(text, rc)
