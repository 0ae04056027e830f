"""Jobs of a bookie that use the other bookies: the data integrity check, and the scrubber's repairs.

Their ledger client is imported and opened when it is needed, because most bookies never need it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from bookie.bookie import Bookie
from bookie.integrity.check import DataIntegrity
from bookie.integrity.peers import OtherCopies, PeerError
from bookie.scrubber.scrubber import Scrubber
from quire.metadata.store import MetadataStore
from quire.servers.bookie.config import BookieServerConfig
from quire.service.background import keep_trying
from quire.service.errors import ConfigError
from quire.world.doors import World

if TYPE_CHECKING:
    from autorecovery.config import AutoRecoveryConfig
    from quire.ledger.client import LedgerClient


class PeerJobs:
    """Jobs of one bookie. `conf`: its file, in which auto recovery's keys may stand too; None: there is none."""

    def __init__(
        self, world: World, bookie: Bookie, metadata: MetadataStore, config: BookieServerConfig, conf: Path | None
    ) -> None:
        self._world = world
        self._bookie = bookie
        self._metadata = metadata
        self._config = config
        self.conf = conf
        self.integrity = DataIntegrity(bookie, metadata, self._open_peers)
        self.scrubber = Scrubber(bookie, metadata, self._open_peers)

    async def run(self, stop: trio.Event) -> None:
        """Work until `stop` is set. The bookie serves."""
        bookie = self._bookie
        async with trio.open_nursery() as nursery:
            for name, job in (("data integrity", self.integrity.run), ("scrub", self.scrubber.run)):
                tries = partial(keep_trying, name, job, bookie.job_failures, self._world.rng)
                nursery.start_soon(tries, name=f"bookie {name}")
            await stop.wait()
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_peers(self) -> AsyncGenerator[OtherCopies]:
        from quire.servers.bookie.peers import peers_on

        try:
            async with self.open_repair() as (client, config):
                yield peers_on(client, config, bookie_id=self._bookie.config.id)
        except ConfigError as error:
            raise PeerError(f"no client of other bookies can be made: {error}") from error

    @asynccontextmanager
    async def open_repair(self) -> AsyncGenerator[tuple[LedgerClient, AutoRecoveryConfig]]:
        """Open a client of the bookies with the settings of auto recovery in the file. ConfigError, MetadataError."""
        from autorecovery.service import open_repair_client
        from quire.servers.autorecovery.config import AUTORECOVERY
        from quire.servers.autorecovery.rack_script import rack_script
        from quire.servers.bookie.auth_keys import bookie_credentials
        from quire.servers.bookie.client_tls import client_tls

        world, root = self._world, self._bookie.config.ledgers_root
        try:
            known = await world.offload.run(partial(AUTORECOVERY.load, self.conf), name="configuration")
        except ValueError as error:
            raise ConfigError(str(error)) from error
        side = await client_tls(world, known.tls)
        credentials = await bookie_credentials(world, known.auth.password_file)
        opened = open_repair_client(
            world,
            self._metadata,
            known.recovery,
            root=root,
            tls=side,
            credentials=credentials,
            locate=rack_script(known.recovery),
        )
        async with opened as client:
            yield client, known.recovery
