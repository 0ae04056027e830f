"""Garbage collection never drops a ledger that lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bookie.bookie import Bookie
from bookie.errors import CookieMismatchError
from quire.metadata.errors import NoNodeError
from quire.metadata.layouts import FLAT, HIERARCHICAL, LONG_HIERARCHICAL, LedgerLayout
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.doors import World
from simulation.machines.world import run_world
from tests.unit.bookie.build import CONFIG, Client, opened

METADATA = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(first_entry_id=0, bookies=("b:1",)),)
)


def with_ledgers(
    story: Callable[[Bookie, MemoryStore, LedgerManager], Awaitable[None]], layout: LedgerLayout = HIERARCHICAL
) -> None:
    async def main(world: World) -> None:
        tree = MemoryTree()
        async with opened(world, tree, CONFIG) as bookie:
            store = MemoryStore(tree)
            await store.put("/ledgers/LAYOUT", layout.value, -1)
            ids = SequenceLedgerIds(store, "/ledgers")
            manager = LedgerManager(store, ids=ids, rng=world.rng, layout=layout)
            await story(bookie, store, manager)

    run_world(1, main)


async def fill(bookie: Bookie, *ledgers: int) -> None:
    client = Client(bookie)
    for ledger_id in ledgers:
        await client.add(ledger_id, 0)


@pytest.mark.parametrize("layout", [FLAT, HIERARCHICAL, LONG_HIERARCHICAL], ids=lambda layout: layout.name)
def test_ledgers_of_every_layout_are_seen(layout: LedgerLayout) -> None:
    async def story(bookie: Bookie, store: MemoryStore, manager: LedgerManager) -> None:
        living, _ = await manager.create(METADATA)
        await fill(bookie, living, living + 1)
        collected = await bookie.collect_garbage(store, bookie.instance_id)
        assert collected.ledgers == (living + 1,)
        assert bookie.storage.ledgers() == [living]

    with_ledgers(story, layout)


def test_without_a_layout_or_with_another_instance_nothing_is_dropped() -> None:
    async def story(bookie: Bookie, store: MemoryStore, manager: LedgerManager) -> None:
        await fill(bookie, 5)
        await store.put("/ledgers/INSTANCEID", b"another", -1)
        with pytest.raises(CookieMismatchError):
            await bookie.collect_garbage(store, bookie.instance_id)
        await store.put("/ledgers/INSTANCEID", bookie.instance_id.encode(), -1)
        await store.delete("/ledgers/LAYOUT")
        with pytest.raises(NoNodeError):
            await bookie.collect_garbage(store, bookie.instance_id)
        assert bookie.storage.ledgers() == [5]

    with_ledgers(story)


class Behind:
    """A store whose lists are old until it is told to `sync`; its single nodes are not."""

    def __init__(self, store: MemoryStore, hidden: str) -> None:
        self._store = store
        self._hidden = hidden
        self.synced = 0

    async def sync(self) -> None:
        self.synced += 1

    async def children(self, path: str) -> list[str]:
        return [name for name in await self._store.children(path) if name != self._hidden]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_a_ledger_that_a_late_list_lacks_is_looked_for_once_more() -> None:
    async def story(bookie: Bookie, store: MemoryStore, manager: LedgerManager) -> None:
        living, _ = await manager.create(METADATA)
        await fill(bookie, living)
        behind = Behind(store, f"L{living:04d}")
        collected = await bookie.collect_garbage(behind, bookie.instance_id)  # type: ignore[arg-type]
        assert collected.ledgers == ()
        assert behind.synced >= 1, "it is asked for its newest before anything is believed"
        assert bookie.storage.ledgers() == [living]

    with_ledgers(story)
