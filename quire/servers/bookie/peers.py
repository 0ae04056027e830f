"""A bookie's access to the other bookies, through a ledger client that is open only while something is copied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from autorecovery.config import AutoRecoveryConfig
from autorecovery.copying.peer_copies import PeerCopies
from autorecovery.service import open_repair_client
from bookie.integrity.peers import EntryLostError, OpenCopies, OtherCopies, PeerError
from quire.ledger.bookies.authentication import BookieCredentials
from quire.ledger.errors import LedgerError, NoSuchEntryError
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.metadata.store import MetadataStore
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from quire.world.doors import World
from quire.world.tls_sides import ClientTls


def peers_of(
    world: World,
    metadata: MetadataStore,
    config: AutoRecoveryConfig,
    *,
    bookie_id: str,
    root: str,
    tls: ClientTls | None = None,
    credentials: BookieCredentials | None = None,
) -> OpenCopies:
    """Return a function that opens a ledger client for the copies of a bookie."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[OtherCopies]:
        async with open_repair_client(world, metadata, config, root=root, tls=tls, credentials=credentials) as client:
            digest_type = DIGEST_TYPES[config.digest_type]
            yield _Translated(PeerCopies(client, bookie_id, config.password.encode(), digest_type))

    return opened


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
        except NoSuchEntryError as error:
            raise EntryLostError(str(error)) from error
        except LedgerError as error:
            raise PeerError(str(error)) from error
