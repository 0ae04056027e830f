"""TLS to bookies of the programs that read bk_server.conf as clients: auto recovery and the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.servers.bookie.tls_keys import BookieTlsKeys
from quire.world.doors import World

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls


async def client_tls(world: World, keys: BookieTlsKeys) -> ClientTls | None:
    """Return the TLS of connections to bookies; None: there is none. ConfigError: the files cannot be used."""
    options = keys.client()
    if options is None:
        return None
    from quire.servers.tls import open_client_tls  # imported here, because most clusters do not need it

    return await open_client_tls(world, options, name="bookies", refresh_s=keys.interval_s)
