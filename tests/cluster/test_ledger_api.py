"""The ledger API for applications against a real ZooKeeper, as docs/ledger-api.md uses it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.server import serve_bookie
from quire.ledger import open_client
from quire.ledger.errors import LedgerFencedError
from quire.metadata.ledgers import initialize_layout
from quire.metadata.zookeeper.store import ZooKeeperConfig, open_store
from quire.world.real import real_world
from tests.support.server import free_port
from tests.support.zookeeper import own_root, shared_server

pytestmark = pytest.mark.cluster


@pytest.mark.real_clock
async def test_an_application_writes_fails_over_and_reads_with_nothing_but_the_uri(tmp_path: Path) -> None:
    server = shared_server()
    root = f"{own_root()}/ledgers"
    uri = f"zk+hierarchical://127.0.0.1:{server.port}{root}"
    world = real_world()
    store = await open_store(world, ZooKeeperConfig(servers=(("127.0.0.1", server.port),)))
    await initialize_layout(store, root, rng=world.rng)
    port = free_port()
    config = BookieConfig(
        bookie_id=f"127.0.0.1:{port}",
        port=port,
        journal_directories=(str(tmp_path / "journal"),),
        ledger_directories=(str(tmp_path / "ledgers"),),
        ledgers_root=root,
    )
    stop = trio.Event()
    async with open_bookie(world, config, store) as bookie, trio.open_nursery() as nursery:
        await nursery.start(partial(serve_bookie, world, bookie, store, bind_address="127.0.0.1", stop=stop))
        async with open_client(world, uri) as leader, open_client(world, uri) as follower:
            writer = await leader.create(password=b"secret", custom_metadata=[("application", b"test")])
            assert [await writer.write(b"entry %d" % each) for each in range(5)] == list(range(5))
            reader = await follower.open(writer.ledger_id, password=b"secret", recover=True)
            assert reader.last_entry_id == 4
            entries = await reader.read(0, 4, size_max=1 << 20)
            assert [bytes(each) for each in entries] == [b"entry %d" % each for each in range(5)]
            with pytest.raises(LedgerFencedError):
                await writer.write(b"too late")
            assert [each async for each in follower.list_ledgers()] == [writer.ledger_id]
            await follower.delete(writer.ledger_id)
        stop.set()
    await store.aclose()
