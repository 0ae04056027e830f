"""Notes that copies of a ledger may be missing, for the auditor to check (`quire.metadata.unacked`)."""

from __future__ import annotations

import trio

from quire.ledger.context import LedgerContext
from quire.metadata.errors import MetadataError, MetadataUnavailableError
from quire.metadata.unacked import WHOLE
from quire.service.log import get_logger
from quire.world.backoff import Backoff

__all__ = ["WHOLE", "note_unacked", "withdraw_note"]

log = get_logger(__name__)

RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0


async def note_unacked(context: LedgerContext, ledger_id: int, before: int) -> bool:
    """Store the note, with retries if the metadata service is down; return whether it is stored.

    If it cannot be stored, the auditor's next check of all ledgers finds the missing copies.
    """
    backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, context.rng)
    attempt = 1
    while True:
        try:
            await context.ledgers.note_unacked(ledger_id, before)
            return True
        except MetadataUnavailableError as error:
            if attempt < context.config.metadata_attempts:
                attempt += 1
                await trio.sleep(backoff.next())
                continue
            failure: MetadataError = error
        except MetadataError as error:
            failure = error
        log.warning("copies may be missing, cannot store a note", ledger=ledger_id, reason=str(failure))
        return False


async def withdraw_note(context: LedgerContext, ledger_id: int) -> None:
    """Withdraw a note that was stored just now, because the copies have arrived.

    If that fails, the auditor compares the ledger with the lists and finds nothing.
    """
    try:
        await context.ledgers.withdraw_unacked(ledger_id)
    except MetadataError as error:
        log.debug("note on missing copies not withdrawn", ledger=ledger_id, reason=str(error))
