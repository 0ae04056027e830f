"""Lists of entries from Quire's own bookie, on a simulated host."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from autorecovery.entry_lists import entry_lists
from autorecovery.errors import ListOfEntriesError
from bookie.server import serve_client
from quire.ledger.bookies.link_tcp import tcp_links
from quire.ledger.bookies.pool import WireProtocol
from quire.ledger.context import LedgerConfig
from quire.ledger.opening import open_ledger_client
from quire.metadata.ledgers import BlockLedgerIds, LedgerManager
from quire.metadata.local.memory import MemoryTree
from quire.service.serve import serve_connections
from quire.world.doors import World
from tests.unit.bookie.build import cluster, opened


@pytest.mark.seeded(5)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
async def test_a_bookie_lists_the_entries_that_it_has(protocol: WireProtocol, world: World) -> None:
    tree = MemoryTree()
    store = await cluster(tree, world)
    ledgers = LedgerManager(store, ids=BlockLedgerIds(store), rng=world.rng)
    async with opened(world, tree) as bookie, trio.open_nursery() as nursery:
        listener = await world.network.listen("127.0.0.1", 0)
        host, port = listener.address
        handler = partial(serve_client, bookie)
        serve = partial(serve_connections, listener, handler, stop=trio.Event(), grace_s=1, name="bookie")
        await nursery.start(serve)
        bookie_id = f"{host}:{port}"
        links = tcp_links(world.network, nursery)
        config = LedgerConfig(protocol=protocol)
        async with open_ledger_client(world, ledgers, links, lambda: [bookie_id], config) as client:
            writer = await client.create()
            for number in range(20):
                await writer.write(b"%d" % number)
            list_entries = entry_lists(client)
            assert list(await list_entries(bookie_id, writer.ledger_id)) == list(range(20))
            assert list(await list_entries(bookie_id, 999)) == []
            with pytest.raises(ListOfEntriesError):
                await list_entries("127.0.0.1:1", writer.ledger_id)
        nursery.cancel_scope.cancel()
