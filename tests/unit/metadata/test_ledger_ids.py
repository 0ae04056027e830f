from __future__ import annotations

import pytest
import trio

from quire.metadata.errors import MalformedMetadataError, MetadataError
from quire.metadata.layouts import FLAT
from quire.metadata.ledger_ids import BlockLedgerIds, SequenceLedgerIds
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Node
from tests.support.refusals import raises

pytestmark = pytest.mark.real_clock


async def test_blocks_start_at_0_and_cost_one_write_each(store: MemoryStore) -> None:
    ids = BlockLedgerIds(store, block_size=10)
    assert [await ids.next_id() for _ in range(25)] == list(range(25))
    assert await store.get("/ledgers/idgen") == Node(b"30", 3)


async def test_generators_that_share_a_store_never_give_the_same_id(tree: MemoryTree) -> None:
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


async def test_a_new_process_begins_a_new_block(store: MemoryStore) -> None:
    assert await BlockLedgerIds(store, block_size=1000).next_id() == 0
    assert await BlockLedgerIds(store, block_size=1000).next_id() == 1000


async def test_a_damaged_reservation_is_refused(store: MemoryStore) -> None:
    await store.create("/ledgers/idgen", b"x7", make_parents=True)
    await raises(MalformedMetadataError, BlockLedgerIds(store).next_id())
    assert await store.get("/ledgers/idgen") == Node(b"x7", 0)


async def test_the_sequence_leaves_no_nodes_behind(store: MemoryStore) -> None:
    ids = SequenceLedgerIds(store)
    assert [await ids.next_id() for _ in range(4)] == [0, 1, 2, 3]
    assert await store.children("/ledgers/idgen") == []


def used_up(tree: MemoryTree, path: str) -> None:
    """Leave one number in the sequence of a folder."""
    node = tree.get(path)
    assert node is not None
    tree._tree.apply({path: node._replace(counter=(1 << 31) - 2)})


async def test_when_the_sequence_is_used_up_ids_come_from_buckets_one_after_the_other(tree: MemoryTree) -> None:
    store, other = MemoryStore(tree), MemoryStore(tree)
    await store.create("/ledgers/idgen", make_parents=True)
    ids, late = SequenceLedgerIds(store), SequenceLedgerIds(other)
    assert await late.next_id() == 0
    used_up(tree, "/ledgers/idgen")
    assert await ids.next_id() == (1 << 31) - 2
    assert [await ids.next_id() for _ in range(2)] == [1 << 32, (1 << 32) + 1]
    assert await late.next_id() == (1 << 32) + 2
    used_up(tree, "/ledgers/idgen-long/HOB-0000000001")
    assert await ids.next_id() == (1 << 32) + (1 << 31) - 2
    assert await late.next_id() == 2 << 32
    assert await ids.next_id() == (2 << 32) + 1
    assert await SequenceLedgerIds(store).next_id() == (2 << 32) + 2
    assert await store.children("/ledgers/idgen-long") == ["HOB-0000000001", "HOB-0000000002"]
    assert await store.children("/ledgers/idgen-long/HOB-0000000002") == []


async def test_a_bucket_that_others_deleted_is_not_begun_again(store: MemoryStore) -> None:
    await store.create("/ledgers/idgen-long", make_parents=True)
    ids = SequenceLedgerIds(store)
    assert await ids.next_id() == 1 << 32
    await store.create("/ledgers/idgen-long/HOB-0000000002")
    await store.delete("/ledgers/idgen-long/HOB-0000000001")
    assert await ids.next_id() == 2 << 32


async def test_the_flat_sequence_lies_in_the_root_and_ends(tree: MemoryTree, store: MemoryStore) -> None:
    await store.create("/ledgers", make_parents=True)
    ids = SequenceLedgerIds(store, layout=FLAT)
    assert await ids.next_id() == 0
    assert await store.children("/ledgers") == []
    used_up(tree, "/ledgers")
    assert await ids.next_id() == (1 << 31) - 2
    await raises(MetadataError, ids.next_id(), "used up")
