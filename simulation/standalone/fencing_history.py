"""One bookie host and two ledger clients on hosts of their own: a writer that lives on, and one that fences it.

Round after round: the writer makes a ledger and appends; the other opens it with recovery, which fences it and closes
it; the bookie crashes somewhere between and comes back. Entries confirmed to the writer must be within the closed
ledger, and nothing may be confirmed to it afterwards (NoDivergenceBetweenClientAndMetaData).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.server import serve_bookie
from quire.ledger.bookies.link_tcp import TcpLink
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError
from quire.ledger.opening import open_ledger_client
from quire.metadata.errors import MetadataError
from quire.metadata.ledger_ids import BlockLedgerIds
from quire.metadata.ledgers import LedgerManager, initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.doors import World
from simulation.common.checkers import require
from simulation.common.histories import watched
from simulation.machines.world import Universe, run

BOOKIE = "bookie"
BOOKIE_ID = "bookie:3181"
ROUNDS = 6
LIVENESS_S = 300.0


@dataclass
class Round:
    """Life of one ledger."""

    number: int
    ledger_id: int = -1
    created: trio.Event = field(default_factory=trio.Event)
    fenced: trio.Event = field(default_factory=trio.Event)
    """Set when the fencing client has opened and closed it."""
    healed: trio.Event = field(default_factory=trio.Event)
    """Set when the bookie crashed and is back."""
    over: trio.Event = field(default_factory=trio.Event)
    """Set when the writer gave up."""
    confirmed: dict[int, bytes] = field(default_factory=dict)
    closed_at: int | None = None


@dataclass(frozen=True, slots=True)
class FencingSummary:
    seed: int
    digest: str
    confirmed: int
    crashes: int
    dropping_crashes: int
    recoveries: int
    """Starts of the bookie on what an earlier incarnation left."""
    fenced: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.confirmed} confirmed, {self.crashes} crashes ({self.dropping_crashes} dropped"
            f" unsynced writes), {self.recoveries} recoveries, {self.fenced} ledgers fenced, 0 diverged,"
            f" digest {self.digest[:16]}"
        )


class FencingStory:
    """One run of the history."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.rng = universe.derive("story")
        self.bookie = universe.host(BOOKIE)
        self.tree = MemoryTree()
        self.ready = trio.Event()
        """The bookie serves."""
        self.starts = 0
        self.rounds = [Round(number) for number in range(ROUNDS)]

    async def serve(self, world: World, stop: trio.Event) -> None:
        config = BookieConfig(
            bookie_id=BOOKIE_ID,
            host=BOOKIE,
            journal_directories=("/journal",),
            ledger_directories=("/ledgers",),
            journal_prealloc_mb=1,
            flush_interval_ms=500,
        )
        metadata = MemoryStore(self.tree)
        try:
            async with open_bookie(world, config, metadata) as bookie, trio.open_nursery() as nursery:
                serving = partial(serve_bookie, world, bookie, metadata, bind_address=BOOKIE, stop=stop)
                await nursery.start(serving, name="serve")
                self.starts += 1
                self.ready.set()
        finally:
            # The service notices a host's crash at the end of its session; here at once.
            self.tree.expire(metadata.session)

    @asynccontextmanager
    async def _client(self, world: World) -> AsyncGenerator[LedgerClient, None]:
        store = MemoryStore(self.tree)
        manager = LedgerManager(store, ids=BlockLedgerIds(store), rng=world.rng)
        async with trio.open_nursery() as nursery:
            connect = partial(TcpLink, world.network, nursery)
            async with open_ledger_client(world, manager, connect, lambda: [BOOKIE_ID]) as client:
                yield client
            nursery.cancel_scope.cancel()

    async def write(self, world: World, stop: trio.Event) -> None:
        """Run the writer: one ledger a round, with appends until it is fenced."""
        async with self._client(world) as client:
            for each in self.rounds:
                await self._write_round(world, client, each)

    async def _write_round(self, world: World, client: LedgerClient, each: Round) -> None:
        rng = world.rng
        while True:
            try:
                writer = await client.create()
                break
            except LedgerError:  # no ledger is made on a bookie that does not answer
                await trio.sleep(0.05)
        each.ledger_id = writer.ledger_id
        failed = trio.Event()

        def confirmed(first: int, last: int) -> None:
            for entry_id in range(first, last + 1):
                require(
                    each.closed_at is None or entry_id <= each.closed_at,
                    "NoDivergenceBetweenClientAndMetaData",
                    f"ledger {each.ledger_id} was closed at {each.closed_at}, and entry {entry_id} confirmed to its"
                    " fenced writer",
                )
                each.confirmed[entry_id] = b"%d/%d" % (each.number, entry_id)

        writer.on_confirmed = confirmed
        writer.on_failed = lambda error: failed.set()
        each.created.set()
        # An idle writer leaves nothing for recovery to write back, so only the FENCE record itself is tested.
        late = rng.random() < 0.6
        if late:
            await each.healed.wait()
        sent = 0
        while not failed.is_set():
            count = rng.randrange(1, 5)
            try:
                writer.append([b"%d/%d" % (each.number, sent + index) for index in range(count)])
            except LedgerError:
                break
            sent += count
            with trio.move_on_after(rng.uniform(0.001, 0.05)):
                await failed.wait()
            if sent > 200:
                with trio.move_on_after(30):
                    await failed.wait()
                break
        each.over.set()

    async def fence(self, world: World, stop: trio.Event) -> None:
        """Run the other client, which opens each ledger with recovery until it succeeds."""
        async with self._client(world) as client:
            for each in self.rounds:
                await each.created.wait()
                await trio.sleep(world.rng.uniform(0, 0.1))
                await self._fence_round(world, client, each)
                await each.over.wait()
                await self._read_back(world, client, each)

    async def _fence_round(self, world: World, client: LedgerClient, each: Round) -> None:
        while True:
            try:
                reader = await client.open(each.ledger_id, recover=True)
                break
            except (LedgerError, MetadataError):
                await trio.sleep(world.rng.uniform(0.01, 0.2))
        each.closed_at = reader.last_entry_id
        self.universe.trace.event("fencer", "Fenced", ledger=each.ledger_id, last=each.closed_at)
        for entry_id in each.confirmed:
            require(
                entry_id <= each.closed_at,
                "NoDivergenceBetweenClientAndMetaData",
                f"ledger {each.ledger_id} is closed at {each.closed_at}, but entry {entry_id} was confirmed",
            )
        each.fenced.set()

    async def _read_back(self, world: World, client: LedgerClient, each: Round) -> None:
        assert each.closed_at is not None
        if each.closed_at < 0:
            return
        while True:
            try:
                reader = await client.open(each.ledger_id, recover=False)
                found: list[bytes] = []
                while len(found) <= each.closed_at:
                    found += map(bytes, await reader.read(len(found), each.closed_at, size_max=1 << 20))
                break
            except LedgerError:
                await trio.sleep(0.1)
        for entry_id, payload in each.confirmed.items():
            require(
                found[entry_id] == payload,
                "AllAckedEntriesAreReadable",
                f"{each.ledger_id}:{entry_id} is {found[entry_id]!r}, not {payload!r}",
            )

    async def nemesis(self) -> None:
        """Crash the bookie in each round, mostly right behind the fence."""
        rng = self.rng
        for each in self.rounds:
            if rng.random() < 0.75:
                await each.fenced.wait()
                await trio.sleep(rng.choice((0.0, rng.uniform(0, 0.002), rng.uniform(0, 0.05))))
            else:
                await each.created.wait()
                await trio.sleep(rng.uniform(0, 0.1))
            await self.bookie.crash()
            await trio.sleep(rng.uniform(0, 0.02))
            self.ready = trio.Event()
            await self.bookie.restart()
            await self.ready.wait()
            await each.fenced.wait()
            each.healed.set()
            await each.over.wait()

    async def run(self) -> FencingSummary:
        await initialize_layout(MemoryStore(self.tree), rng=self.rng)
        self.bookie.start(self.serve)
        await self.ready.wait()
        writer = self.universe.host("writer")
        fencer = self.universe.host("fencer")
        writer.start(self.write)
        fencer.start(self.fence)
        with trio.fail_after(LIVENESS_S):
            await self.nemesis()
            await fencer.wait_down()
        return FencingSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=sum(len(each.confirmed) for each in self.rounds),
            crashes=len(self.bookie.crashes),
            dropping_crashes=sum(1 for dropped in self.bookie.crashes if dropped.writes or dropped.batches),
            recoveries=self.starts - 1,
            fenced=sum(each.closed_at is not None for each in self.rounds),
        )


def run_fencing_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> FencingSummary:
    """Run one history.

    Raises ViolationError if an invariant does not hold. `lines` gets the trace, with every step of every task if
    `steps`."""

    async def main(universe: Universe) -> FencingSummary:
        if lines is not None:
            universe.trace.lines = lines
        return await FencingStory(universe).run()

    with watched() as log:
        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
