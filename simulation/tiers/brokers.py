"""The bookie and the brokers of the history of offloaded ledgers, and requests to the broker that has the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.server import serve_bookie
from cursors.config import CursorConfig
from cursors.errors import CursorError
from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.bookies.link_tcp import TcpLink
from quire.ledger.client import LedgerClient
from quire.ledger.opening import open_ledger_client
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.doors import World
from simulation.machines.host import Host
from simulation.machines.world import Universe
from simulation.tiers.job import OwnerAwayError
from simulation.tiers.storage import Mount, Point, SimObjects

T = TypeVar("T")

NAME: Final = "public/default/persistent/orders"
BOOKIE: Final = "bookie"
BOOKIE_ID: Final = "bookie:3181"
BROKERS: Final = ("broker-0", "broker-1")
ANSWER_S: Final = 5.0
"""Virtual seconds after which a request counts as not answered."""


class _Session(MemoryStore):
    """Session of a broker, which may be killed before and after each write."""

    point: Point

    async def multi(self, ops: Any) -> list[str]:
        await self.point("metadata to be written")
        made = await super().multi(ops)
        await self.point("metadata written")
        return made


class _Request:
    def __init__(self, work: Callable[[ManagedLedgerFactory], Awaitable[Any]]) -> None:
        self.work = work
        self.done = trio.Event()
        self.result: Any = None
        self.error: Exception | None = None


class Brokers:
    """The bookie, the folder and the brokers, and requests to them."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.rng = universe.derive("story")
        self.tree = MemoryTree()
        self.mount = Mount(universe.host("mount"))
        self.bookie_is_ready = trio.Event()
        self.owner = BROKERS[0]
        self.verified: set[str] = set()
        """Uids of objects whose ledgers may have left the bookie."""
        self._inboxes: dict[str, trio.MemorySendChannel[_Request]] = {}
        self._last_owner: ManagedLedgerFactory | None = None
        """Broker that has served a request last."""
        retention = self.rng.choice((0, 0, -1))
        self._config = ManagedLedgerConfig(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            entries_max=self.rng.choice((4, 8)),
            age_min_minutes=0,
            retry_timeout_s=5,
            retention_minutes=retention,
            retention_mb=retention,
            retention_check_s=1,
        )
        self._lag_ms = self.rng.choice((0, 0, 1000))
        self._are_first = self.rng.random() < 0.7

    async def point(self, host: Host, step: str) -> None:
        """Kill the process of a host at this step, at times."""
        raise NotImplementedError

    async def serve_bookie(self, world: World, stop: trio.Event) -> None:
        config = BookieConfig(
            bookie_id=BOOKIE_ID,
            host=BOOKIE,
            journal_directories=("/journal",),
            ledger_directories=("/ledgers",),
            journal_prealloc_mb=1,
            flush_interval_ms=5000,
        )
        metadata = MemoryStore(self.tree)
        async with open_bookie(world, config, metadata) as bookie, trio.open_nursery() as nursery:
            await nursery.start(
                partial(serve_bookie, world, bookie, metadata, bind_address=BOOKIE, stop=stop), name="serve"
            )
            self.bookie_is_ready.set()

    @asynccontextmanager
    async def ledger_client(self, world: World, metadata: MemoryStore) -> AsyncGenerator[LedgerClient, None]:
        manager = LedgerManager(metadata, ids=SequenceLedgerIds(metadata), rng=world.rng)
        async with trio.open_nursery() as nursery:
            connect = partial(TcpLink, world.network, nursery)
            async with open_ledger_client(world, manager, connect, lambda: [BOOKIE_ID]) as client:
                yield client
            nursery.cancel_scope.cancel()

    async def serve_broker(self, name: str, world: World, stop: trio.Event) -> None:
        """Run a broker, which answers the requests in its inbox."""
        point = partial(self.point, self.universe.host(name))
        metadata = _Session(self.tree)
        metadata.point = point
        objects = SimObjects(
            self.mount, world.rng, point, self.verified, are_first=self._are_first, lag_ms=self._lag_ms
        )
        send, receive = trio.open_memory_channel[_Request](1000)
        self._inboxes[name] = send
        cursors = CursorConfig(ensemble_size=1, write_quorum=1, ack_quorum=1, retry_timeout_s=5)
        try:
            async with (
                self.ledger_client(world, metadata) as client,
                open_factory(world, metadata, client, self._config, cursors, objects=objects) as factory,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._answer_all, factory, receive, name="requests")
                await stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.tree.expire(metadata.session)

    async def _answer_all(self, factory: ManagedLedgerFactory, requests: trio.MemoryReceiveChannel[_Request]) -> None:
        async with trio.open_nursery() as nursery:
            async for request in requests:
                nursery.start_soon(self._answer, factory, request, name="request")

    async def _answer(self, factory: ManagedLedgerFactory, request: _Request) -> None:
        try:
            request.result = await request.work(factory)
        except (ManagedLedgerError, CursorError) as error:
            request.error = error
        request.done.set()

    async def ask(self, work: Callable[[ManagedLedgerFactory], Awaitable[T]]) -> T:
        """Return what the owner answers. Raises OwnerAwayError, ManagedLedgerError, CursorError."""
        if not self.universe.host(self.owner).running or self.owner not in self._inboxes:
            await trio.sleep(0.1)
            raise OwnerAwayError
        request = _Request(work)
        self._inboxes[self.owner].send_nowait(request)
        with trio.move_on_after(ANSWER_S):
            await request.done.wait()
        if not request.done.is_set():
            raise OwnerAwayError
        if request.error is not None:
            raise request.error
        found: T = request.result
        return found

    async def call(self, work: Callable[[ManagedLedger], Awaitable[T]]) -> T:
        """As `ask`, with the log, which has the consumer's cursor."""

        async def with_log(factory: ManagedLedgerFactory) -> T:
            # A broker that gets the topic back has noticed that it had lost it; until then it goes on with it.
            former = factory.managed_ledgers.get(NAME)
            if former is not None and self._last_owner is not factory:
                former.abandon()
            self._last_owner = factory
            log = await factory.open(NAME)
            if "sub" not in log.cursors:
                await log.open_cursor("sub", initial="earliest")
            return await work(log)

        return await self.ask(with_log)
