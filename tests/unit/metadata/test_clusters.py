from __future__ import annotations

from random import Random

import pytest

from quire.metadata import bookies, clusters
from quire.metadata.errors import ClusterRefusedError, NoNodeError
from quire.metadata.layouts import FLAT, HIERARCHICAL
from quire.metadata.ledgers import read_instance_id, read_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from tests.support.refusals import raises

ROOT = "/bk/ledgers"
INFO = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host="h", port=3181),))


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore(MemoryTree())
    await store.create("/bk")
    return store


async def filled(store: MemoryStore) -> str:
    instance_id = await clusters.init_new_cluster(store, ROOT, rng=Random(1))
    for path in (
        "00/0000/L0000",
        "000/0000/0050/0000/L0000",
        "cookies/bk1",
        "idgen",
        "underreplication/ledgers/0000/0001",
    ):
        await store.create(f"{ROOT}/{path}", b"x", make_parents=True)
    await store.create(f"{ROOT}/underreplication/disable", b"")
    await store.create(f"{ROOT}/disableHealthCheck", b"")
    return instance_id


@pytest.mark.parametrize("layout", [HIERARCHICAL, FLAT])
async def test_a_new_cluster_has_its_nodes_and_is_not_made_twice(layout: object, store: MemoryStore) -> None:
    assert layout in (HIERARCHICAL, FLAT)
    chosen = FLAT if layout is FLAT else HIERARCHICAL
    instance_id = await clusters.init_new_cluster(store, ROOT, rng=Random(1), layout=chosen)
    assert await store.children(ROOT) == ["INSTANCEID", "LAYOUT", "available"]
    assert await store.children(f"{ROOT}/available") == ["readonly"]
    assert await read_instance_id(store, ROOT) == instance_id
    assert await read_layout(store, ROOT) is chosen
    await raises(ClusterRefusedError, clusters.init_new_cluster(store, ROOT, rng=Random(2)))
    assert await read_instance_id(store, ROOT) == instance_id


async def test_a_new_cluster_needs_its_parent(store: MemoryStore) -> None:
    await raises(NoNodeError, clusters.init_new_cluster(store, "/nowhere/ledgers", rng=Random(1)), "/nowhere")


async def test_a_format_forgets_ledgers_and_cookies_and_gives_a_new_instance_id(store: MemoryStore) -> None:
    before = await filled(store)
    await store.create(f"{ROOT}/somebodys", b"")
    after = await clusters.format_cluster(store, ROOT, rng=Random(2))
    assert before != after == await read_instance_id(store, ROOT)
    kept = ["INSTANCEID", "LAYOUT", "available", "disableHealthCheck", "somebodys", "underreplication"]
    assert await store.children(ROOT) == kept
    assert await store.children(f"{ROOT}/underreplication") == ["disable"]


async def test_a_format_makes_a_cluster_where_there_is_none(store: MemoryStore) -> None:
    instance_id = await clusters.format_cluster(store, "/x/y", rng=Random(2))
    assert await store.children("/x/y") == ["INSTANCEID", "LAYOUT", "available"]
    assert await read_instance_id(store, "/x/y") == instance_id


async def test_a_cluster_is_destroyed_by_who_knows_its_instance_id(store: MemoryStore) -> None:
    instance_id = await filled(store)
    for wrong in (None, "", instance_id[:-1]):
        await raises(ClusterRefusedError, clusters.nuke_cluster(store, ROOT, instance_id=wrong), instance_id)
    await clusters.nuke_cluster(store, ROOT, instance_id=instance_id)
    assert await store.children("/bk") == []
    await raises(NoNodeError, clusters.nuke_cluster(store, ROOT, force=True))


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_cluster_with_bookies_running_is_not_destroyed_even_by_force(read_only: bool, store: MemoryStore):
    await filled(store)
    await bookies.register(store, "bk1", INFO, read_only=read_only, root=ROOT)
    await raises(ClusterRefusedError, clusters.nuke_cluster(store, ROOT, force=True), "bk1")
    await bookies.unregister(store, "bk1", root=ROOT)
    await clusters.nuke_cluster(store, ROOT, force=True)
    assert not await clusters.exists(store, ROOT)


async def test_a_tree_with_strangers_nodes_is_not_destroyed(store: MemoryStore) -> None:
    await filled(store)
    await store.create(f"{ROOT}/somebodys", b"")
    await raises(ClusterRefusedError, clusters.nuke_cluster(store, ROOT, force=True), "somebodys")
    assert await store.get(f"{ROOT}/00/0000/L0000") is not None


@pytest.mark.real_clock
async def test_a_large_tree_is_deleted_though_some_of_it_goes_meanwhile() -> None:
    class Meddled(MemoryStore):
        meddled = False

        async def children(self, path: str) -> list[str]:
            names = await super().children(path)
            if path == "/t/5" and not self.meddled:
                self.meddled = True
                await self.delete("/t/5/1")
                await self.create("/t/4/new")
            return names

    store = Meddled(MemoryTree())
    for number in range(1200):
        await store.create(f"/t/{number // 100}/{number % 100}", make_parents=True)
    await clusters.delete_tree(store, "/t")
    assert store.meddled
    assert await store.children("/") == []
    await clusters.delete_tree(store, "/t")
