from __future__ import annotations

import pytest
import trio

from quire.metadata.errors import MalformedMetadataError, MetadataError
from quire.metadata.ledger_ids import BlockLedgerIds, SequenceLedgerIds
from quire.metadata.memory import MemoryStore, MemoryTree
from quire.metadata.store import Node


def test_blocks_start_at_0_and_cost_one_write_each() -> None:
    async def main() -> None:
        store = MemoryStore(MemoryTree())
        ids = BlockLedgerIds(store, block_size=10)
        assert [await ids.next_id() for _ in range(25)] == list(range(25))
        assert await store.get("/ledgers/idgen") == Node(b"30", 3)

    trio.run(main)


def test_generators_that_share_a_store_never_give_the_same_id() -> None:
    async def main() -> None:
        tree = MemoryTree()
        taken: list[int] = []

        async def take(ids: BlockLedgerIds) -> None:
            taken.extend([await ids.next_id() for _ in range(7)])

        async with trio.open_nursery() as nursery:
            for index in range(5):
                ids = BlockLedgerIds(MemoryStore(tree), block_size=3)
                nursery.start_soon(take, ids, name=f"take {index}")
                nursery.start_soon(take, ids, name=f"take {index} too")
        assert len(set(taken)) == len(taken) == 70
        assert min(taken) == 0

    trio.run(main)


def test_a_new_process_begins_a_new_block() -> None:
    async def main() -> None:
        store = MemoryStore(MemoryTree())
        assert await BlockLedgerIds(store, block_size=1000).next_id() == 0
        assert await BlockLedgerIds(store, block_size=1000).next_id() == 1000

    trio.run(main)


def test_a_damaged_reservation_is_refused() -> None:
    async def main() -> None:
        store = MemoryStore(MemoryTree())
        await store.create("/ledgers/idgen", b"x7", make_parents=True)
        with pytest.raises(MalformedMetadataError):
            await BlockLedgerIds(store).next_id()
        assert await store.get("/ledgers/idgen") == Node(b"x7", 0)

    trio.run(main)


def test_the_sequence_leaves_no_nodes_behind() -> None:
    async def main() -> None:
        store = MemoryStore(MemoryTree())
        ids = SequenceLedgerIds(store)
        assert [await ids.next_id() for _ in range(4)] == [0, 1, 2, 3]
        assert await store.children("/ledgers/idgen") == []

    trio.run(main)


def test_the_sequence_ends_before_long_ids() -> None:
    async def main() -> None:
        tree = MemoryTree()
        store = MemoryStore(tree)
        await store.create("/ledgers/idgen", make_parents=True)
        node = tree.get("/ledgers/idgen")
        assert node is not None
        tree._tree.apply({"/ledgers/idgen": node._replace(counter=(1 << 31) - 2)})
        ids = SequenceLedgerIds(store)
        assert await ids.next_id() == (1 << 31) - 2
        with pytest.raises(MetadataError, match="used up"):
            await ids.next_id()

    trio.run(main)
