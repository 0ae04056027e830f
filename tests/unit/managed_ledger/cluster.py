"""Brokers that share bookies and metadata, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio

from cursors.config import CursorConfig
from managed_ledger.config import LogConfigSource, ManagedLedgerConfig
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.ledger_list import LedgerList, decode
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from managed_ledger.tiers import Objects
from quire.ledger.position import Position
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Op
from quire.world.doors import Buffer
from tests.support.waiting import until
from tests.unit.managed_ledger.fake_ledgers import FakeLedgers, Sink, fake_world, running

NAME = "public/default/persistent/orders"
CONFIG = ManagedLedgerConfig(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    entries_max=10,
    age_min_minutes=0,
    retry_timeout_s=5,
    retention_minutes=-1,
    retention_mb=-1,
)
CURSOR_CONFIG = CursorConfig(ensemble_size=1, write_quorum=1, ack_quorum=1, entries_max=5, retry_timeout_s=5)


class Session(MemoryStore):
    """Metadata session of a broker: has its connection, and can be observed at each step."""

    is_connected = True
    point: Callable[[], Awaitable[None]] | None = None

    def disconnect(self) -> None:
        self.is_connected = False
        super().disconnect()

    def reconnect(self) -> None:
        self.is_connected = True
        super().reconnect()

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        if self.point is not None:
            await self.point()
        made = await super().multi(ops)
        if self.point is not None:
            await self.point()
        return made


class Cluster:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.ledgers = FakeLedgers(self.tree)
        self.metadata = MemoryStore(self.tree)
        self.stores: list[Session] = []
        self.point: Callable[[], Awaitable[None]] | None = None

    @asynccontextmanager
    async def broker(
        self,
        *,
        config_of: Callable[[str], Awaitable[LogConfigSource]] | None = None,
        no_room: Callable[[], str] = str,
        objects: Objects | None = None,
        cursors: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> AsyncIterator[ManagedLedgerFactory]:
        store = Session(self.tree)
        store.point = self.point
        self.stores.append(store)
        async with open_factory(
            fake_world(),
            store,
            self.ledgers,
            replace(CONFIG, **config),
            replace(CURSOR_CONFIG, **(cursors or {})),
            config_of=config_of,
            no_room=no_room,
            objects=objects,
        ) as factory:
            yield factory

    async def stored_list(self, name: str = NAME) -> LedgerList:
        node = await self.metadata.get(log_path(name))
        assert node is not None
        return decode(node.value)

    async def named_ledgers(self) -> set[int]:
        """Return the ledgers in the stored list."""
        value = await self.stored_list()
        return {info.ledger_id for info in value.ledgers}


@asynccontextmanager
async def in_cluster() -> AsyncIterator[Cluster]:
    """Open a cluster in virtual time, for at most three hours of it."""
    cluster = Cluster()
    with trio.fail_after(10_800):
        async with running(cluster.ledgers):
            yield cluster


def kill(factory: ManagedLedgerFactory) -> None:
    """End a broker as by SIGKILL: nothing is closed."""
    factory._services.nursery.cancel_scope.cancel()


def append(log: ManagedLedger, payloads: Sequence[Buffer]) -> Sink:
    """Append in one run, and return what records its outcome."""
    sink = Sink()
    log.append(payloads, sink)
    return sink


async def publish(log: ManagedLedger, *payloads: bytes) -> list[tuple[int, int]]:
    """Append in one run, wait until all of it is confirmed, and return the ids."""
    sink = append(log, payloads)
    await until(lambda: sink.count == len(payloads) or bool(sink.errors))
    assert not sink.errors, sink.errors
    return sink.ids()


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def read_all(log: ManagedLedger, start: Position | None = None) -> list[bytes]:
    found: list[bytes] = []
    position = start or log.first_position()
    while True:
        run = await log.read(position, 7, 1 << 20)
        if not run.payloads:
            return found
        found += [bytes(payload) for payload in run.payloads]
        position = log.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
