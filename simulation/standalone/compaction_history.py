"""A standalone server whose topic is compacted again and again while the server crashes.

One producer writes values of a few keys, and deletes some. A threshold of few bytes compacts the topic every second.
The server loses power, is killed, or stops, also in the middle of a job after so many changes to its disk. After each
start, and in the end, a compacted reader gets the topic from its beginning: of each key it must end with the last value
that was confirmed, or one sent after it (CompactedViewIsLatest), whether the log below was trimmed or not. In the end
the view must be short (HistoryIsBigEnough), and no ledger may be without a name (LedgersNeverLeak).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from quire.metadata.local.rocksdb import open_store
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.process import LEDGERS_ROOT, run_standalone
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import ViolationError, require
from simulation.common.histories import watched
from simulation.common.leaks import check_leaks
from simulation.common.pulsar_client import Connection
from simulation.machines.world import Universe, run
from simulation.standalone.clients import Clients

SERVER = "server"
DATA = "/data"
METADATA = f"{DATA}/metadata"
PORT = 6650
TOPIC = "persistent://public/default/compacted"
CONFIRMED_MIN = 400
CRASHES_MIN = 6
LIVENESS_S = 200.0
"""Virtual seconds in which a healed system must make progress."""
NO_LEDGER = (1 << 64) - 1
"""Ledger of the last message id of a topic without messages."""
QUIET_S = 10.0
"""Virtual seconds without a message after which a reader counts as complete."""


@dataclass(slots=True)
class KeyHistory:
    """Values of one key in the order of their sending; an empty one deletes the key."""

    sent: list[bytes] = field(default_factory=list)
    confirmed: int = 0
    """Number of values up to the last confirmed one."""

    def allowed_since(self, confirmed: int) -> set[bytes]:
        """Return the values that a reader may end with which began when so many were confirmed; the empty one stands
        for none."""
        return {self.sent[confirmed - 1] if confirmed else b"", *self.sent[confirmed:]}


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """Summary of one history."""

    seed: int
    digest: str
    confirmed: int
    crashes: int
    views: int
    entries: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.confirmed} confirmed, {self.crashes} crashes, {self.views} views checked,"
            f" the last of {self.entries} entries, digest {self.digest[:16]}"
        )


class CompactionStory:
    """One run of the history."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.rng = universe.derive("story")
        self.server = universe.host(SERVER)
        self.clients = Clients(universe, SERVER, PORT, (0,))
        self.keys = self.rng.choice((3, 9, 30))
        self.histories = {f"k{number}": KeyHistory() for number in range(self.keys)}
        self.config = self._draw_config()
        self.ready = trio.Event()
        self.confirmed = 0
        self.number = 0
        self.views = 0
        self.entries = 0
        """Entries of the last view."""

    def _draw_config(self) -> StandaloneConfig:
        rng = self.rng
        retention = rng.choice((0, 0, -1))
        return STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 20, 60)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "defaultRetentionTimeInMinutes": retention,
                "defaultRetentionSizeInMB": retention,
                "brokerServiceCompactionThresholdInBytes": rng.choice((1, 200, 1000)),
                "brokerServiceCompactionMonitorIntervalInSeconds": 1,
                "managedLedgerCursorMaxEntriesPerLedger": rng.choice((1, 3, 20)),
                "quireCursorFlushDelayMillis": rng.choice((0, 10, 50)),
                "flushInterval": rng.choice((5, 60, 3000)),
                "journalMaxSizeMB": 1,
                "journalPreAllocSizeMB": 1,
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "logSizeLimit": 1 << 20,
                "gcWaitTime": rng.choice((50, 2000)),
                "quireDiskReserveMb": 1,
                "brokerShutdownTimeoutMs": 2000,
                "managedLedgerCacheSizeMB": rng.choice((0, 1)),
            }
        )

    async def serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.universe.trace.event(SERVER, "ServerReady")
            self.ready.set()

        await run_standalone(world, self.config, data_dir=DATA, ready=ready, stop=stop, http=False)

    # Clients

    async def produce(self, world: World, connection: Connection) -> None:
        """Send values one run at a time. A durable subscription keeps what comes before the first compaction."""
        rng = self.rng
        await connection.subscribe(TOPIC, "keeps", 1, pb.CommandSubscribe.Exclusive)
        await connection.producer(TOPIC, 1, "p")
        while not self.clients.finish.is_set():
            await self._send(connection, rng.choice((1, 3, 10)))
            if self.number > CONFIRMED_MIN // 2:
                await connection.ack(1, [await connection.last_message_id(1)], cumulative=True)
            await trio.sleep(rng.uniform(0, 0.3))
        await self._send(connection, 5)
        await trio.sleep_forever()

    async def _send(self, connection: Connection, count: int) -> None:
        """Send so many values, and wait for their receipts. Raises ClientError."""
        run: list[tuple[str, bytes]] = []
        places: list[tuple[KeyHistory, int]] = []
        for number in range(self.number, self.number + count):
            key = f"k{self.rng.randrange(self.keys)}"
            value = b"" if self.rng.random() < 0.15 else b"%d" % number
            history = self.histories[key]
            history.sent.append(value)
            places.append((history, len(history.sent)))
            run.append((key, value))
        first, self.number = self.number, self.number + count
        connection.receipts.clear()
        connection.publish(1, "p", first, run)
        for history, place in places:
            while not connection.receipts:
                await connection.changed()
            connection.receipts.popleft()
            history.confirmed = max(history.confirmed, place)
            self.confirmed += 1

    async def check_view(self, name: str) -> None:
        """Read the topic compacted, and compare."""
        done = trio.Event()

        async def work(world: World, connection: Connection) -> None:
            confirmed = {key: history.confirmed for key, history in self.histories.items()}
            found: dict[str, bytes] = {}
            subscription = pb.CommandSubscribe.Exclusive
            await connection.subscribe(TOPIC, name, 1, subscription, durable=False, read_compacted=True)
            end, last, entries = await connection.last_message_id(1), (-1, -1), 0
            if end[0] == NO_LEDGER:
                end = (-1, -1)
            connection.flow(1, 1_000_000)
            while last < end:
                with trio.move_on_after(QUIET_S) as quiet:
                    while not connection.messages:
                        await connection.changed()
                if quiet.cancelled_caught:
                    break
                while connection.messages:
                    _, got = connection.messages.popleft()
                    require(
                        (got.ledger_id, got.entry_id) > last,
                        "CompactedViewIsLatest",
                        f"{got} is delivered behind {last}",
                    )
                    last, entries = (got.ledger_id, got.entry_id), entries + 1
                    found[got.key] = got.payload
            for key, history in self.histories.items():
                allowed, value = history.allowed_since(confirmed[key]), found.get(key, b"")
                require(
                    value in allowed,
                    "CompactedViewIsLatest",
                    f"{key} is {value!r} and should be one of {sorted(allowed)}",
                )
            self.views += 1
            self.entries = entries
            done.set()
            await trio.sleep_forever()

        self.clients.start(name, work)
        with trio.fail_after(LIVENESS_S):
            await done.wait()

    # Faults

    async def nemesis(self) -> None:
        rng, server = self.rng, self.server
        while self.confirmed < CONFIRMED_MIN or len(server.crashes) < CRASHES_MIN:
            with trio.fail_after(LIVENESS_S):
                await self.ready.wait()
            await trio.sleep(rng.uniform(0, 4))
            kind = rng.choice(("power", "kill", "fuse", "fuse", "fuse", "sync", "stop"))
            self.universe.trace.event(SERVER, "Nemesis", kind=kind)
            if kind == "stop":
                with trio.fail_after(LIVENESS_S):
                    await server.stop()
            else:
                if kind == "fuse":
                    server.crash_after(rng.randrange(1, 40))
                elif kind == "sync":
                    server.crash_at_sync(rng.randrange(0, 12))
                if kind in ("fuse", "sync"):
                    with trio.move_on_after(3):
                        await server.wait_down()
                await server.crash(lose_unsynced=kind != "kill")
            self.ready = trio.Event()
            await server.restart()
            if rng.random() < 0.5:
                with trio.fail_after(LIVENESS_S):
                    await self.ready.wait()
                await self.check_view(f"view-{self.views}")

    async def run(self) -> CompactionSummary:
        self.universe.trace.event("", "Drawn", config=str(self.config), keys=self.keys)
        self.server.start(self.serve)
        self.clients.start("producer", self.produce)
        with trio.fail_after(3600):
            await self.nemesis()
        self.clients.finish.set()
        with trio.fail_after(LIVENESS_S):
            await self.ready.wait()
        await trio.sleep(20)  # several rounds of the monitor
        await self.check_view("last")
        require(
            self.entries <= self.keys + 40,
            "HistoryIsBigEnough",
            f"the view of {self.keys} keys has {self.entries} entries",
        )
        await self._check_leaks()
        return CompactionSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=self.confirmed,
            crashes=len(self.server.crashes),
            views=self.views,
            entries=self.entries,
        )

    async def _check_leaks(self) -> None:
        """Stop the server in order, and check its remaining metadata."""
        with trio.fail_after(LIVENESS_S):
            await self.server.stop()
        done = trio.Event()
        found: list[ViolationError] = []

        async def look(world: World, stop: trio.Event) -> None:
            metadata = await open_store(world, METADATA)
            try:
                await check_leaks(world, metadata, LEDGERS_ROOT)
            except ViolationError as error:
                found.append(error)
            await metadata.aclose()
            done.set()

        await self.server.restart(look)
        with trio.fail_after(LIVENESS_S):
            await done.wait()
        if found:
            raise found[0]


def run_compaction_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> CompactionSummary:
    """Run one history; see `run_standalone_history`."""
    with watched() as log:

        async def main(universe: Universe) -> CompactionSummary:
            if lines is not None:
                universe.trace.lines = lines
            return await CompactionStory(universe).run()

        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
