"""LedgersNeverLeak in the metadata of a stopped server: the ledgers of schemas are named by their own nodes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from broker.topics.schemas import storage, stored
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.memory import MemoryStore, MemoryTree
from simulation.cluster.record import SCHEMAS
from simulation.common.checkers import ViolationError
from simulation.common.leaks import check_leaks, named_by_schemas
from tests.support.refusals import raises

KEY = "public/default/orders"
ROOT = "/ledgers"
WORLD: Any = SimpleNamespace(rng=random.Random(1))


def locator(*ledger_ids: int, deleting: bool = False) -> bytes:
    index = tuple(stored.IndexEntry(number, each, 0, b"h") for number, each in enumerate(ledger_ids))
    return stored.encode_locator(stored.Locator(index, deleting=deleting))


class Made:
    """A store with three ledgers that nothing names yet."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryTree())

    async def ledgers(self) -> None:
        manager = LedgerManager(self.store, ids=BlockLedgerIds(self.store, ROOT), rng=WORLD.rng, root=ROOT)
        for ledger_id in range(3):
            await self.store.create(manager.path(ledger_id), b"", make_parents=True)

    async def name(self, root: str, value: bytes) -> None:
        await self.store.create(f"{root}/{KEY}", value, make_parents=True)


async def test_a_ledger_of_a_schema_is_named_by_the_locator_or_by_the_write_that_is_under_way() -> None:
    made = Made()
    await made.ledgers()
    await raises(ViolationError, check_leaks(WORLD, made.store, ROOT), "no schema names")
    await made.name(stored.ROOT, locator(0, 1))
    await raises(ViolationError, check_leaks(WORLD, made.store, ROOT), "ledger 2")
    await made.name(storage.INTENTS, b"2")
    assert await check_leaks(WORLD, made.store, ROOT) == 3


async def test_a_version_whose_ledger_is_gone_is_a_violation_unless_it_is_being_deleted() -> None:
    made = Made()
    await made.ledgers()
    await made.name(stored.ROOT, locator(0, 1, 2, 3))
    await raises(ViolationError, check_leaks(WORLD, made.store, ROOT), "ledger 3 of a list is gone")
    path = f"{stored.ROOT}/{KEY}"
    await made.store.put(path, locator(0, 1, 2, 3, deleting=True), 0)
    assert await check_leaks(WORLD, made.store, ROOT) == 3


def test_the_nodes_of_schemas_in_a_cluster_are_known_by_their_paths() -> None:
    for root, value, ids in ((stored.ROOT, locator(4, 5), [4, 5]), (storage.INTENTS, b"6", [6])):
        path = f"{root}/{KEY}"
        assert SCHEMAS.fullmatch(path)
        assert named_by_schemas(path, value) == ids
