"""Garbage collection never drops a live ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from bookie.bookie import Bookie
from bookie.errors import CookieMismatchError
from bookie.garbage import LOOKS_TOGETHER
from quire.metadata.errors import MetadataUnavailableError, NoNodeError
from quire.metadata.layouts import FLAT, HIERARCHICAL, LONG_HIERARCHICAL, LedgerLayout
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Node
from simulation.machines.world import in_world
from tests.support.refusals import raises
from tests.unit.bookie.build import CONFIG, Client, opened

pytestmark = pytest.mark.seeded

METADATA = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(first_entry_id=0, bookies=("b:1",)),)
)


@asynccontextmanager
async def with_ledgers(
    layout: LedgerLayout = HIERARCHICAL,
) -> AsyncIterator[tuple[Bookie, MemoryStore, LedgerManager]]:
    tree = MemoryTree()
    async with in_world(1) as world, opened(world, tree, CONFIG) as bookie:
        store = MemoryStore(tree)
        await store.put("/ledgers/LAYOUT", layout.value, -1)
        ids = SequenceLedgerIds(store, "/ledgers")
        yield bookie, store, LedgerManager(store, ids=ids, rng=world.rng, layout=layout)


async def fill(bookie: Bookie, *ledgers: int) -> None:
    client = Client(bookie)
    for ledger_id in ledgers:
        await client.add(ledger_id, 0)


@pytest.mark.parametrize("layout", [FLAT, HIERARCHICAL, LONG_HIERARCHICAL], ids=lambda layout: layout.name)
async def test_ledgers_of_every_layout_are_seen(layout: LedgerLayout) -> None:
    async with with_ledgers(layout) as (bookie, store, manager):
        living, _ = await manager.create(METADATA)
        await fill(bookie, living, living + 1)
        collected = await bookie.collect_garbage(store, bookie.instance_id)
        assert collected.ledgers == (living + 1,)
        assert bookie.storage.ledgers() == [living]


async def test_without_a_layout_or_with_another_instance_nothing_is_dropped() -> None:
    async with with_ledgers() as (bookie, store, _):
        await fill(bookie, 5)
        await store.put("/ledgers/INSTANCEID", b"another", -1)
        await raises(CookieMismatchError, bookie.collect_garbage(store, bookie.instance_id))
        await store.put("/ledgers/INSTANCEID", bookie.instance_id.encode(), -1)
        await store.delete("/ledgers/LAYOUT")
        await raises(NoNodeError, bookie.collect_garbage(store, bookie.instance_id))
        assert bookie.storage.ledgers() == [5]


class Behind(MemoryStore):
    """A store whose lists are old until `sync` is called; its single nodes are current."""

    def __init__(self, tree: MemoryTree, hidden: str) -> None:
        super().__init__(tree)
        self._hidden = hidden
        self.synced = 0

    async def sync(self) -> None:
        self.synced += 1

    async def children(self, path: str) -> list[str]:
        return [name for name in await super().children(path) if name != self._hidden]


async def test_a_ledger_that_a_late_list_lacks_is_looked_for_once_more() -> None:
    async with with_ledgers() as (bookie, store, manager):
        living, _ = await manager.create(METADATA)
        await fill(bookie, living)
        behind = Behind(store._tree, f"L{living:04d}")
        collected = await bookie.collect_garbage(behind, bookie.instance_id)
        assert collected.ledgers == ()
        assert behind.synced >= 1, "it is asked for its newest before anything is believed"
        assert bookie.storage.ledgers() == [living]


class Far(MemoryStore):
    """A store that answers a read of a ledger after a while, and counts how many wait."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.waiting = self.most = 0
        self.broken = False

    async def get(self, path: str) -> Node | None:
        if "/L" not in path:
            return await super().get(path)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await trio.sleep(0.01)
        self.waiting -= 1
        if self.broken:
            raise MetadataUnavailableError("away")
        return await super().get(path)


async def test_many_ledgers_that_seem_deleted_are_looked_up_together_and_an_error_deletes_none() -> None:
    async with with_ledgers() as (bookie, store, _):
        await fill(bookie, *range(100))
        far = Far(store._tree)
        far.broken = True
        await raises(MetadataUnavailableError, bookie.collect_garbage(far, bookie.instance_id))
        assert len(bookie.storage.ledgers()) == 100
        far.broken, began = False, trio.current_time()
        collected = await bookie.collect_garbage(far, bookie.instance_id)
        assert collected.ledgers == tuple(range(100))
        # 1,000 reads a second (gcMetadataOpRateLimit) of 10 ms each: about ten wait at the same time.
        assert 8 <= far.most <= LOOKS_TOGETHER
        assert trio.current_time() - began < 0.5, "one after the other they would take 1 s"
