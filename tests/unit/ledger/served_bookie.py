"""A bookie on a port of a simulated host, for clients of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from bookie.server import serve_client
from quire.metadata import bookies
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.service.serve import serve_connections
from quire.world.doors import World
from tests.unit.bookie.build import cluster, opened

BOOKIE_ID = "a-bookie-with-a-name"


@asynccontextmanager
async def a_bookie(world: World, tree: MemoryTree) -> AsyncIterator[MemoryStore]:
    """Serve one bookie, registered under an id that is no address; yield a store with its own session."""
    store = await cluster(tree, world)
    async with opened(world, tree) as bookie:
        listener = await world.network.listen("127.0.0.1", 0)
        host, port = listener.address
        serve = partial(
            serve_connections,
            listener,
            partial(serve_client, bookie),
            stop=trio.Event(),
            grace_s=1,
            name="bookie",
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            info = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host=host, port=port),))
            await bookies.register(store, BOOKIE_ID, info)
            yield store
            nursery.cancel_scope.cancel()
