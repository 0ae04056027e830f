"""A bookie's access to the other bookies, through a ledger client that is open only while something is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autorecovery.config import AutoRecoveryConfig
from autorecovery.copying.peer_copies import PeerCopies
from bookie.integrity.peers import EntryLostError, OtherCopies, PeerError
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError, NoCopyLeftError, NoSuchEntryError
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.wire.bookkeeper.entry import DIGEST_TYPES


def peers_on(client: LedgerClient, config: AutoRecoveryConfig, *, bookie_id: str) -> OtherCopies:
    """Return the copies that the other bookies have of those of a bookie."""
    return _Translated(PeerCopies(client, bookie_id, config.password.encode(), DIGEST_TYPES[config.digest_type]))


class _Translated:
    """PeerCopies with the errors that a bookie knows."""

    def __init__(self, copies: PeerCopies) -> None:
        self._copies = copies

    async def close_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        try:
            await self._copies.close_ledger(ledger_id, metadata)
        except LedgerError as error:
            raise PeerError(str(error)) from error

    async def read(
        self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]
    ) -> Mapping[int, memoryview]:
        try:
            return await self._copies.read(ledger_id, metadata, entry_ids)
        except (NoSuchEntryError, NoCopyLeftError) as error:
            raise EntryLostError(str(error)) from error
        except LedgerError as error:
            raise PeerError(str(error)) from error
