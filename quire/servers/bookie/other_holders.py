"""Connections of a bookie to the other ones, for the collection of ledgers that they have by now."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from bookie.errors import PeersUnavailableError
from bookie.gc.overreplicated import OtherHolders
from quire.metadata.store import MetadataStore
from quire.service.errors import ConfigError
from quire.world.doors import World

OpenHoldersOn = Callable[[World, MetadataStore], AbstractAsyncContextManager[OtherHolders]]


def holders_of(conf: Path, bookie_id: str) -> OpenHoldersOn:
    """Return `open_peers(world, metadata)`, with the TLS and the password that auto recovery has in the same file."""

    @asynccontextmanager
    async def open_peers(world: World, metadata: MetadataStore) -> AsyncGenerator[OtherHolders, None]:
        # Imported here, because a bookie seldom needs its client.
        from autorecovery.ledger_checker import LedgerChecker
        from autorecovery.marks.underreplication import UnderreplicatedLedgers
        from autorecovery.other_copies import HolderChecks
        from autorecovery.service import open_repair_client
        from quire.ledger.errors import LedgerError
        from quire.servers.autorecovery.config import AUTORECOVERY
        from quire.servers.bookie.auth_keys import bookie_credentials
        from quire.servers.bookie.client_tls import client_tls

        try:
            config = AUTORECOVERY.load(conf)
            root = config.metadata.connect_string.ledgers_root
            side = await client_tls(world, config.tls)
            known = await bookie_credentials(world, config.auth.password_file)
        except ConfigError as error:
            raise PeersUnavailableError(f"the configuration of the bookie as a client: {error}") from error
        async with AsyncExitStack() as stack:
            opening = open_repair_client(world, metadata, config.recovery, root=root, tls=side, credentials=known)
            try:
                client = await stack.enter_async_context(opening)
            except LedgerError as error:
                raise PeersUnavailableError(f"no client of the other bookies: {error}") from error
            marks = UnderreplicatedLedgers(
                metadata, root=root, rng=world.rng, wall_ms=world.clock.wall_ms, owner=bookie_id
            )
            yield HolderChecks(LedgerChecker(client, rng=world.rng), marks)

    return open_peers
