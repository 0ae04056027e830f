"""One bookie, and ledgers whose ids are used again when the bookie has collected their former lives.

A few ids are written, deleted, waited for until garbage collection has dropped them, made again, and written, while the
bookie is killed, loses power or stops at any moment. After each start, and in the end: what was acknowledged in the
present life of an id is readable (AllAckedEntriesAreReadable), and nothing of a former life is
(NothingOfAFormerLifeIsRead).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.sessions.session import BookieSession
from quire.metadata.ledger_codec import encode
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata, initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import ANY_VERSION
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer, Digest, DigestType, master_key
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from simulation.common.checkers import require
from simulation.common.histories import watched
from simulation.machines.world import Universe, run

BOOKIE_ID = "bookie:3181"
IDS = (3, 4, 5)
CRASHES = 5
LIVENESS_S = 600.0
_KEY = master_key(b"")
_DIGEST = Digest(DigestType.CRC32C, b"")
_METADATA = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(first_entry_id=0, bookies=(BOOKIE_ID,)),)
)


@dataclass
class Life:
    """The present life of a ledger id. Entries 0 to `sent` - 1 were sent, those before `acked` acknowledged."""

    ledger_id: int
    number: int = 0
    exists: bool = False
    """True while it is in the metadata."""
    sent: int = 0
    acked: int = 0
    reached: int = 0
    """Entries before this one were sent at some time, acknowledged or not."""

    def payload(self, entry_id: int) -> bytes:
        return b"%d life %d entry %d" % (self.ledger_id, self.number, entry_id)

    def entry(self, entry_id: int) -> bytes:
        payload = self.payload(entry_id)
        return _DIGEST.seal(self.ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload


@dataclass(frozen=True, slots=True)
class ReuseSummary:
    seed: int
    digest: str
    acked: int
    lives: int
    crashes: int
    dropping_crashes: int
    reads: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.acked} acknowledged in {self.lives} lives of {len(IDS)} ids, "
            f"{self.crashes} crashes"
            f" ({self.dropping_crashes} dropped unsynced writes), {self.reads} reads checked, digest {self.digest[:16]}"
        )


@dataclass
class _Client:
    """A session of version 2 in the bookie's process."""

    bookie: Bookie
    answers: list[v2.Response] = field(default_factory=list)
    news: trio.Event = field(default_factory=trio.Event)

    def session(self) -> Callable[[list[v2.Frame]], None]:
        def write(parts: list[Buffer]) -> None:
            self.answers += v2.decode_responses(b"".join(parts))
            self.news.set()

        return BookieSession(self.bookie, write).receive

    async def take(self) -> v2.Response:
        while not self.answers:
            self.news = trio.Event()
            await self.news.wait()
        return self.answers.pop(0)


class ReuseStory:
    """One run of the history."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.rng = universe.derive("story")
        self.host = universe.host("bookie")
        self.tree = MemoryTree()
        self.lives = {ledger_id: Life(ledger_id) for ledger_id in IDS}
        self.acked = 0
        self.reads = 0
        self.config = BookieConfig(
            bookie_id=BOOKIE_ID,
            journal_directories=("/journal",),
            ledger_directories=("/ledgers",),
            journal_prealloc_mb=1,
            flush_interval_ms=self.rng.choice((50, 500, 5000, 1_000_000)),
            gc_wait_ms=self.rng.choice((50, 200, 1000)),
            entry_log_size_max=self.rng.choice((2000, 1 << 20)),
        )
        self.last = False
        """True once faults have ended: the incarnation ends after its check."""

    async def serve(self, world: World, stop: trio.Event) -> None:
        metadata = MemoryStore(self.tree)
        try:
            async with open_bookie(world, self.config, metadata) as bookie:
                await self._check(bookie)
                if not self.last:
                    async with trio.open_nursery() as nursery:
                        for life in self.lives.values():
                            work = partial(self._live, world.rng, bookie, metadata, life)
                            nursery.start_soon(work, name=f"ledger {life.ledger_id}")
                        await stop.wait()
                        nursery.cancel_scope.cancel()
        finally:
            self.tree.expire(metadata.session)

    async def _live(self, rng: random.Random, bookie: Bookie, store: MemoryStore, life: Life) -> None:
        """Run life after life of one id."""
        ledgers = LedgerManager(store, ids=_NoIds(), rng=rng)
        client = _Client(bookie)
        send = client.session()
        while True:
            await trio.sleep(rng.uniform(0, 0.05))
            if not life.exists:
                await ledgers.delete(life.ledger_id, ANY_VERSION)  # a crash may have come before that
                if bookie.storage.ledger(life.ledger_id) is None and life.ledger_id not in bookie.storage.held_ledgers:
                    self.universe.trace.event("bookie", "LedgerMade", ledger=life.ledger_id, life=life.number + 1)
                    await store.create(ledgers.path(life.ledger_id), encode(_METADATA), make_parents=True)
                    self.lives[life.ledger_id] = life = Life(life.ledger_id, life.number + 1, exists=True)
            elif life.acked > 2 and rng.random() < 0.2:
                life.exists = False
                self.universe.trace.event("bookie", "LedgerDeleted", ledger=life.ledger_id, acked=life.acked)
                await ledgers.delete(life.ledger_id, ANY_VERSION)
            else:
                await self._add(rng, client, send, life)

    async def _add(
        self, rng: random.Random, client: _Client, send: Callable[[list[v2.Frame]], None], life: Life
    ) -> None:
        first, count = life.sent, rng.randint(1, 4)
        life.sent += count
        life.reached = max(life.reached, life.sent)
        entries = [life.entry(entry_id) for entry_id in range(first, first + count)]
        send([b"".join(v2.add_head(len(entry), _KEY, 0) + entry for entry in entries)])
        while life.acked < life.sent:
            answer = await client.take()
            assert isinstance(answer, v2.AddAcks)
            require(answer.rc == Rc.OK, "AddsAreTaken", f"{answer}")
            life.acked = answer.last + 1
            self.acked += answer.last - answer.first + 1

    async def _check(self, bookie: Bookie) -> None:
        """Check the bookie's entries of each id after a start."""
        client = _Client(bookie)
        send = client.session()
        for life in self.lives.values():
            if not life.exists:
                continue
            for entry_id in range(life.reached + 30):
                send([v2.read_request(life.ledger_id, entry_id)])
                answer = await client.take()
                assert isinstance(answer, v2.ReadResponse)
                self.reads += 1
                place = f"entry {life.ledger_id}:{entry_id} of life {life.number}"
                if answer.rc == Rc.OK:
                    found = bytes(_DIGEST.open(life.ledger_id, entry_id, answer.entry))
                    own = entry_id < life.reached and found == life.payload(entry_id)
                    require(own, "NothingOfAFormerLifeIsRead", f"{place} is {found!r}")
                else:
                    require(answer.rc in (Rc.NO_ENTRY, Rc.NO_LEDGER), "ReadsAreAnswered", f"{place}: {answer.rc}")
                    require(entry_id >= life.acked, "AllAckedEntriesAreReadable", f"{place} is gone: {answer.rc}")
            life.sent = life.acked  # unacknowledged entries may exist or not, and are sent again

    async def run(self) -> ReuseSummary:
        await initialize_layout(MemoryStore(self.tree), rng=self.rng)
        self.host.start(self.serve)
        with trio.fail_after(LIVENESS_S):
            for _ in range(CRASHES):
                await trio.sleep(self.rng.uniform(0.05, 1.5))
                if self.rng.random() < 0.85:
                    await self.host.crash(lose_unsynced=self.rng.random() < 0.8)
                else:
                    await self.host.stop()
                await self.host.restart()
            await trio.sleep(0.5)
            await self.host.crash()
            self.last = True
            await self.host.restart()
            await self.host.wait_down()
        return ReuseSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            acked=self.acked,
            lives=sum(life.number for life in self.lives.values()),
            crashes=len(self.host.crashes),
            dropping_crashes=sum(1 for dropped in self.host.crashes if dropped.writes or dropped.batches),
            reads=self.reads,
        )


class _NoIds:
    """Placeholder: the history chooses the ids."""

    async def next_id(self) -> int:
        raise AssertionError("an id is never asked for")


def run_reuse_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> ReuseSummary:
    """Run one history.

    Raises ViolationError if an invariant does not hold. `lines` gets the trace, with every step of every task if
    `steps`."""

    async def main(universe: Universe) -> ReuseSummary:
        if lines is not None:
            universe.trace.lines = lines
        return await ReuseStory(universe).run()

    with watched() as log:
        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
