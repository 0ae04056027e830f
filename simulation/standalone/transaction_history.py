"""A standalone server whose clients move messages from one topic to another in transactions, while it crashes.

Each transaction takes some messages of the source, sends one message for each to the sink, acknowledges them, and then
commits, aborts, or is left to its time-out. In the end harm ends and everything is moved. What holds:
- AllOrNothing: the sink has each message of the source exactly once, whatever was aborted, left, or cut by a crash.
- NobodyWaitsForEver: every message of the source is moved within a bounded time after the last harm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

import trio

from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.process import run_standalone
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.histories import watched
from simulation.common.moving import Sink
from simulation.common.patching import patched
from simulation.common.pulsar_client import Connection
from simulation.common.transactions import (
    acknowledge,
    begin,
    compaction_keys,
    connect,
    end,
    name_participants,
    produce,
    rounds_of,
    send,
)
from simulation.machines.world import Universe, run
from simulation.standalone.clients import Clients

SERVER = "server"
PORT = 6650
SOURCE = "persistent://public/default/source"
SINK = "persistent://public/default/sink"
SUBSCRIPTION = "movers"
MESSAGES = 60
COORDINATORS = 2
"""Coordinators that the movers use, of 16."""
LIVENESS_S = 180.0
"""Virtual seconds in which a healed system moves what is left."""
QUIET_S = 0.5
"""Time without a message after which a mover ends its transaction with what it has."""


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """Summary of one history."""

    seed: int
    digest: str
    moved: int
    crashes: int
    outcomes: str
    virtual_s: float

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.moved} moved once, {self.crashes} crashes, {self.outcomes}"
            f", {self.virtual_s:.1f} virtual s, digest {self.digest[:16]}"
        )


class Story:
    """One run of the history."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.rng = universe.derive("story")
        self.server = universe.host(SERVER)
        self.clients = Clients(universe, SERVER, PORT, (0,))
        self.kind = self.rng.choice((pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared))
        self.per_txn = self.rng.choice((1, 3, 8))
        self.crashes = self.rng.randrange(3, 7)
        self.outcomes: Counter[str] = Counter()
        """Ends of transactions, as their clients saw them."""
        self.sink = Sink(SINK)
        self.published = 0
        self.ready = trio.Event()
        rng = self.rng
        self.config: StandaloneConfig = STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "transactionCoordinatorEnabled": "true",
                "transactionBufferSnapshotMaxTransactionCount": rng.choice((1, 3, 1000)),
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 20, 50_000)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "managedLedgerCursorMaxEntriesPerLedger": rng.choice((3, 20, 50_000)),
                "quireCursorFlushDelayMillis": rng.choice((0, 10, 50)),
                "defaultRetentionTimeInMinutes": -1,
                "defaultRetentionSizeInMB": -1,
                "journalMaxSizeMB": 1,
                "journalPreAllocSizeMB": 1,
                "quireDiskReserveMb": 1,
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "logSizeLimit": 1 << 20,
                "brokerShutdownTimeoutMs": 2000,
                "managedLedgerCacheSizeMB": rng.choice((0, 1, 16)),
                **compaction_keys(universe.derive("compaction")),
            }
        )

    async def serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.universe.trace.event(SERVER, "ServerReady")
            self.ready.set()

        await run_standalone(world, self.config, data_dir="/data", ready=ready, stop=stop, http=False)

    # Clients

    async def feed(self, world: World, connection: Connection) -> None:
        """Publish the messages one by one; one without a receipt may be there twice, and counts as two."""
        await connection.subscribe(SOURCE, SUBSCRIPTION, 1, self.kind)
        close = connection.next_id()
        await connection.ask(
            pb.BaseCommand(
                type=pb.BaseCommand.CLOSE_CONSUMER,
                close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=close),
            ),
            close,
        )
        await connection.producer(SOURCE, 1, "feeder")
        while self.published < MESSAGES:
            number = self.published
            connection.publish(1, "feeder", number, [(f"k{number % 5}", b"m%d" % number)])
            while not connection.receipts:
                await connection.changed()
            connection.receipts.popleft()
            self.published += 1
            await trio.sleep(world.rng.uniform(0, 0.05))
        await trio.sleep_forever()

    async def move(self, name: str, world: World, connection: Connection) -> None:
        """Move messages in transactions, until the connection breaks."""
        rng = world.rng
        coordinator = rng.randrange(COORDINATORS)
        await connect(connection, coordinator)
        await produce(connection, SINK, name)
        await connection.subscribe(SOURCE, SUBSCRIPTION, 1, self.kind)
        connection.flow(1, 1000)
        sent = 0
        while True:
            while not connection.messages:
                await connection.changed()
            ttl_ms = rng.choice((500, 3000, 10_000))
            txn = await begin(connection, coordinator, ttl_ms)
            await name_participants(connection, txn, SINK, SOURCE, SUBSCRIPTION)
            taken = 0
            while taken < self.per_txn:
                with trio.move_on_after(QUIET_S) as quiet:
                    while not connection.messages:
                        await connection.changed()
                if quiet.cancelled_caught:
                    break
                _, message = connection.messages.popleft()
                send(world, connection, name, sent, txn, b"%d:%d" % (message.ledger_id, message.entry_id))
                sent += 1
                taken += 1
                await acknowledge(connection, txn, (message.ledger_id, message.entry_id))
            while len(connection.receipts) < sent:
                await connection.changed()
            outcome = rng.choices(("commit", "abort", "left"), (8, 2, 1))[0]
            if outcome != "left":
                await end(connection, txn, commit=outcome == "commit")
            self.outcomes[outcome] += 1

    async def watch(self, world: World, connection: Connection) -> None:
        await self.sink.read(connection, Connection.changed)

    # The run

    async def nemesis(self) -> None:
        rng = self.rng
        for _ in range(self.crashes):
            with trio.fail_after(LIVENESS_S):
                await self.ready.wait()
            await trio.sleep(rng.uniform(0, 2.0))
            kind = rng.choice(("power", "kill", "fuse", "sync"))
            self.universe.trace.event(SERVER, "Nemesis", kind=kind)
            if kind == "fuse":
                self.server.crash_after(rng.randrange(1, 16))
            elif kind == "sync":
                self.server.crash_at_sync(rng.randrange(0, 5))
            if kind in ("fuse", "sync"):
                with trio.move_on_after(0.5):
                    await self.server.wait_down()
            await self.server.crash(lose_unsynced=kind != "kill")
            self.ready = trio.Event()
            await self.server.restart()

    async def run(self) -> TransactionSummary:
        self.universe.trace.event("", "Drawn", config=str(self.config), per_txn=self.per_txn, crashes=self.crashes)
        self.server.start(self.serve)
        self.clients.start("feeder", self.feed)
        for name in ("mover-0", "mover-1"):
            self.clients.start(name, partial(self.move, name))
        await self.nemesis()
        with trio.fail_after(LIVENESS_S):
            while self.published < MESSAGES:
                await trio.sleep(0.1)
        source = await self.clients.read_all(SOURCE)
        self.clients.start("reader of the sink", self.watch)
        moved = await self.sink.settle(source, liveness_s=LIVENESS_S, quiet_s=QUIET_S)
        return TransactionSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            moved=moved,
            crashes=len(self.server.crashes),
            outcomes=" ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())),
            virtual_s=trio.current_time(),
        )


def run_transaction_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> TransactionSummary:
    """Run one history. Raises ViolationError if an invariant does not hold; see `run_standalone_history`."""
    with watched() as log:

        async def main(universe: Universe) -> TransactionSummary:
            if lines is not None:
                universe.trace.lines = lines
            return await Story(universe).run()

        with patched(rounds_of(seed)):
            summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check([])
        return summary
