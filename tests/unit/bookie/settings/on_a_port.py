"""A bookie on a port of the simulated network, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from bookie.bookie import Bookie
from bookie.server import serve_bookie
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.doors import Stream, World
from tests.unit.bookie.build import CONFIG, opened


@asynccontextmanager
async def served(world: World, **keys: Any) -> AsyncIterator[tuple[Bookie, Stream]]:
    """Yield a bookie and a connection to it whose answers the test takes or leaves."""
    tree = MemoryTree()
    async with opened(world, tree, replace(CONFIG, **keys)) as bookie, trio.open_nursery() as nursery:
        stop = trio.Event()
        serve = partial(serve_bookie, world, bookie, MemoryStore(tree), bind_address="0.0.0.0", stop=stop)
        address = await nursery.start(serve, name="bookie")
        stream = await world.network.connect("host", address[1])
        yield bookie, stream
        stream.close()
        stop.set()


async def send(stream: Stream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.send_nowait([rest]) :]
        if rest:
            await stream.wait_writable()
