"""The watcher keeps its promises on every MetadataStore: memory, the embedded store, and a real ZooKeeper."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from quire.ledger.bookies.watcher import StoredBookies
from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo, Endpoint
from quire.metadata.clusters import init_new_cluster
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.local.rocksdb import open_store
from quire.metadata.store import ANY_VERSION, Kind, MetadataStore
from quire.metadata.zookeeper.store import open_store as open_zookeeper
from quire.world.real import real_world
from tests.support.zookeeper import own_root, shared_server

DEADLINE_S = 20.0


async def memory(directory: Path) -> MetadataStore:
    return MemoryStore(MemoryTree())


async def embedded(directory: Path) -> MetadataStore:
    return await open_store(real_world(1), str(directory / "metadata"))


async def zookeeper(directory: Path) -> MetadataStore:
    return await open_zookeeper(real_world(1), shared_server().config(own_root()))


async def changed_until(watcher: StoredBookies, true: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not true():
            await watcher.changed.wait()


@pytest.mark.real_clock
@pytest.mark.parametrize("open_one", [memory, embedded, zookeeper])
async def test_bookies_come_go_turn_read_only_and_move_between_racks(
    open_one: Callable[[Path], Awaitable[MetadataStore]], tmp_path: Path
) -> None:
    store = await open_one(tmp_path)
    await init_new_cluster(store, "/ledgers", rng=random.Random(1))
    info = BookieServiceInfo(endpoints=(Endpoint(host="h1", port=3181),))
    await bookies.register(store, "one", info)
    watcher = StoredBookies(store, random.Random(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        assert watcher.cluster().writable == ("one",)
        assert await watcher.resolve("one") == ("h1", 3181)
        await store.create(bookies.registration_path("h2:3182"), b"", kind=Kind.EPHEMERAL)
        await changed_until(watcher, lambda: watcher.cluster().writable == ("h2:3182", "one"))
        assert await watcher.resolve("h2:3182") == ("h2", 3182)
        await store.create("/bookies", b'{"default": {"h1:3181": {"rack": "/r1"}}}')
        await changed_until(watcher, lambda: watcher.cluster().locations.get("one") == "/r1")
        await store.put("/bookies", b'{"default": {"h1:3181": {"rack": "/r2"}}}', ANY_VERSION)
        await changed_until(watcher, lambda: watcher.cluster().locations.get("one") == "/r2")
        await bookies.register(store, "one", info, read_only=True)
        await changed_until(watcher, lambda: watcher.cluster().read_only == {"one"})
        assert watcher.cluster().writable == ("h2:3182",)
        await bookies.unregister(store, "h2:3182")
        await changed_until(watcher, lambda: watcher.cluster().writable == ())
        nursery.cancel_scope.cancel()
    await store.aclose()
