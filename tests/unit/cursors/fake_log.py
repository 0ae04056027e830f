"""A log of closed ledgers and a current one, in memory, and cursors in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from cursors.config import CursorConfig
from cursors.cursor import Cursor
from cursors.errors import CursorFencedError
from cursors.flusher import Flusher
from cursors.services import CursorServices
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.log_index import LogIndex
from quire.ledger.position import Position
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Check, Op
from tests.unit.managed_ledger.fake_ledgers import FakeLedgers, fake_world, running

LOG_PATH = "/managed-ledgers/t/n/persistent/log"
LOG_NAME = "t/n/persistent/log"


def fake_log(*sizes: tuple[int, int]) -> LogIndex:
    """Return an index of ledgers given as (id, entries). The last one is the current; its entries are confirmed."""
    index = LogIndex()
    closed = [LedgerInfo(ledger_id=ledger_id, entries=entries) for ledger_id, entries in sizes]
    index.set(closed, sizes[-1][0])
    for ledger_id, entries in sizes:
        if entries or index.last_confirmed.ledger_id < 0:
            index.last_confirmed = Position(ledger_id, entries - 1)
    return index


def at(*pairs: tuple[int, int]) -> list[Position]:
    return [Position(*pair) for pair in pairs]


async def acked(cursor: Cursor, *pairs: tuple[int, int]) -> None:
    """Acknowledge entries, and wait until that is durable."""
    cursor.ack_individual(at(*pairs))
    await cursor.wait_persisted()


async def close(cursor: Cursor) -> None:
    """Close the store of a cursor."""
    assert cursor.store is not None
    await cursor.store.close()


class Bench:
    """Objects that the cursors of one broker share."""

    def __init__(self, tree: MemoryTree, ledgers: FakeLedgers, nursery: trio.Nursery, config: CursorConfig) -> None:
        self.tree = tree
        self.ledgers = ledgers
        self.metadata = MemoryStore(tree)
        self.nursery = nursery
        self.fenced: list[str] = []
        self.services = CursorServices(
            world=fake_world(),
            metadata=self.metadata,
            ledgers=ledgers,
            nursery=nursery,
            flusher=Flusher(config.flush_delay_ms / 1000),
            config=config,
            proof=self.proof,
            confirm_ownership=self.confirm_ownership,
        )
        self.list_version = 0
        """Version of the log's list that the broker has."""
        nursery.start_soon(self.services.flusher.run, name="flusher")

    def proof(self) -> list[Op]:
        return [Check(path=LOG_PATH, version=self.list_version)]

    async def confirm_ownership(self) -> None:
        node = await self.metadata.get(LOG_PATH)
        if node is None or node.value != b"":
            raise CursorFencedError("the list was changed by another")
        self.list_version = node.version

    def on_fenced(self) -> None:
        self.fenced.append("fenced")


@asynccontextmanager
async def in_bench(*, config: CursorConfig | None = None, before: Sequence[Any] = ()) -> AsyncIterator[Bench]:
    """Open a bench in virtual time: the environment of a broker's cursors."""
    tree = MemoryTree()
    await MemoryStore(tree).create(LOG_PATH, make_parents=True)
    ledgers = FakeLedgers(tree, first_id=100)
    async with running(ledgers), trio.open_nursery() as nursery:
        yield Bench(tree, ledgers, nursery, config or CursorConfig(ensemble_size=1, write_quorum=1, ack_quorum=1))
        nursery.cancel_scope.cancel()
