"""Ledger ids with many creators and bad connections. docs/faults.md has the list."""

from __future__ import annotations

import random

import pytest
import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.ledger_ids import BlockLedgerIds, LedgerIds, SequenceLedgerIds
from quire.metadata.local.memory import MemoryStore, MemoryTree

CREATORS = 100
IDS_EACH = 4


def blocks(store: MemoryStore) -> LedgerIds:
    return BlockLedgerIds(store, block_size=2)


@pytest.mark.parametrize("make", [blocks, SequenceLedgerIds])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
async def test_m14_a_hundred_creators_whose_connections_break_never_get_the_same_id(make, seed):
    """The request may or may not have been carried out when the connection broke."""
    rng = random.Random(seed)
    tree = MemoryTree()
    taken: list[int] = []
    lost = 0

    async def create() -> None:
        nonlocal lost
        store = MemoryStore(tree, session_timeout_s=3600, latency=lambda: rng.uniform(0.001, 0.02))
        ids = make(store)
        mine: list[int] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_often, store)
            while len(mine) < IDS_EACH:
                try:
                    mine.append(await ids.next_id())
                except MetadataUnavailableError:
                    lost += 1
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert mine == sorted(mine)
        taken.extend(mine)

    async def break_often(store: MemoryStore) -> None:
        while True:
            await trio.sleep(rng.uniform(0.01, 0.1))
            store.disconnect()
            await trio.sleep(rng.uniform(0.0, 0.01))
            store.reconnect()

    async with trio.open_nursery() as nursery:
        for _ in range(CREATORS):
            nursery.start_soon(create)
    assert len(set(taken)) == len(taken) == CREATORS * IDS_EACH
    assert lost > CREATORS // 5, "too few connections broke in the middle of something"
