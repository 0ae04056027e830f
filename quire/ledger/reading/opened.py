"""Opening of ledgers for reading: with recovery up to their final end, without it up to the last add confirmed."""

from __future__ import annotations

from quire.ledger.context import LedgerContext
from quire.ledger.errors import LedgerUnauthorizedError
from quire.ledger.reading.last_confirmed import LastConfirmed, ask_last_confirmed
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.recovery.recovery import recover as recover_ledger
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.metadata.store import Versioned
from quire.wire.bookkeeper.entry import DigestType, digest_of


async def open_reader(
    context: LedgerContext,
    ledger_id: int,
    stored: Versioned[LedgerMetadata],
    password: bytes,
    digest_type: DigestType,
    *,
    recover: bool,
) -> LedgerReader:
    """Return a reader of the ledger with this metadata. `digest_type`: for a ledger whose metadata has none.

    Raises: LedgerUnauthorizedError, LedgerRecoveryError, LedgerReadError, NoSuchLedgerError, MetadataError.
    """
    stats = context.stats
    with stats.opens.timed():
        metadata = stored.value
        if metadata.password_known and metadata.password != password:
            raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password")
        digest = digest_of(metadata.digest_type if metadata.password_known else digest_type, password)
        if recover and metadata.state is not LedgerState.CLOSED:
            with stats.recoveries.timed():
                closed = await recover_ledger(context, ledger_id, digest, password)
            stored = Versioned(closed, stored.version)
            metadata = closed
        if metadata.state is LedgerState.CLOSED:
            end = LastConfirmed(metadata.last_entry_id, metadata.length)
        else:
            with stats.lac_reads.timed():
                end = await ask_last_confirmed(context, ledger_id, metadata, digest)
        return LedgerReader(context, ledger_id, stored, digest, end)
