"""A whole standalone server on a seeded world: clients publish, consume and acknowledge while the server crashes.

What a seed draws: sizes of ledgers and caches, flush intervals, windows, kinds of subscriptions, which messages are
delayed, whether consumed ledgers are trimmed, and the kinds of harm: power cut at a time, power cut in the middle of a
job after so many changes to the disk, SIGKILL, a stop in good order, a full disk, a failed sync, connections reset.
Every history goes on until it has its share of confirmed entries and crashes, one of which dropped unsynced writes;
then all harm ends, the server crashes once more, a reader compares everything with what clients saw, and every
confirmed entry must be delivered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

import trio

from bookie.errors import BookieError
from broker.dispatch.delayed import delays
from quire.metadata.errors import MetadataError
from quire.metadata.local.rocksdb import open_store
from quire.metadata.local.rows import load
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.data_directory import claim
from quire.servers.standalone.metadata import initialize
from quire.servers.standalone.process import LEDGERS_ROOT, bookie_config, run_standalone
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from quire.world.unwrap import leaves
from simulation.common.checkers import TopicHistory, ViolationError, require
from simulation.common.explained import Explained, explanations_checked
from simulation.common.histories import Log, watched
from simulation.common.leaks import check_leaks
from simulation.common.patching import patched
from simulation.machines.damage import Contents, bookie_contents, trial
from simulation.machines.world import Universe, run
from simulation.standalone.clients import Clients

SERVER = "server"
DATA = "/data"
METADATA = f"{DATA}/metadata"
PORT = 6650
CONFIRMED_MIN = 300
CRASHES_MIN = 3
LIVENESS_S = 120.0
"""Virtual seconds in which a healed system must make progress."""
TRIALS = 4
"""Damaged copies tried per killed server."""
FAIL_STOP_S = 5.0
"""Virtual seconds in which a server with an untrusted journal must end."""
TOPICS = ("persistent://public/default/a", "persistent://public/default/b")
HARMS = ("kill", "stop", "early", "disk full", "failed sync", "reset", "damage")
EXPECTED_ERRORS = {
    "disk full": ("journal group not written", "checkpoint failed", "last checkpoint failed", "no room"),
    "failed sync": (
        "the server ends",
        "journal failed",
        "the storage has failed",
        "checkpoint failed",
        "last checkpoint failed",
        "flushes fail",
        "no room",
    ),
}
"""Required errors in the log after each kind of fault. Any other error fails the history."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of one history."""

    seed: int
    digest: str
    confirmed: int
    crashes: int
    dropping_crashes: int
    """Crashes that dropped unsynced writes or batches."""
    recoveries: int
    """Starts that served what an earlier incarnation left."""
    answered_acks: int
    delivered: int
    harms: str
    virtual_s: float

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.confirmed} confirmed, {self.crashes} crashes ({self.dropping_crashes} dropped"
            f" unsynced writes), {self.recoveries} recoveries, {self.delivered} delivered, {self.answered_acks} acks"
            f" answered, 0 lost, {self.virtual_s:.1f} virtual s{self.harms}, digest {self.digest[:16]}"
        )


class Story:
    """One run of the history."""

    def __init__(self, universe: Universe, log: Log, explained: Explained) -> None:
        self.universe = universe
        self.log = log
        self.explained = explained
        self.rng = universe.derive("story")
        self.server = universe.host(SERVER)
        self.histories = {topic: TopicHistory(topic) for topic in TOPICS}
        self.trimmed = self.rng.random() < 0.3
        """True if ledgers are deleted as soon as every subscription has consumed them."""
        self.config = self._draw_config()
        self.pace_s = self.rng.choice((0.03, 0.1, 0.25))
        self.harms = ("power", "power", "sync", "sync", "fuse", "fuse", *self.rng.sample(HARMS, 3))
        self.done: dict[str, int] = {}
        """Faults by kind."""
        self.clients = Clients(universe, SERVER, PORT, self.rng.choice(((0,), (0, 0, 200), (0, 0, 0, 900, 20_000))))
        self.clients.enough = self._has_entries
        drawn = universe.derive("delays")
        self.delay_every, delay_ms = drawn.choice((0, 0, 2, 7, 30)), drawn.choice((200, 1500, 8000))
        if self.delay_every:
            self.clients.delay_ms = lambda number: delay_ms * (number % self.delay_every == 0)
        self.clients.early_ms = self.config.broker.delayed_tick_ms
        self.ready = trio.Event()
        self.recoveries = 0

    def _draw_config(self) -> StandaloneConfig:
        rng = self.rng
        delayed = self.universe.derive("delayed delivery")
        retention = 0 if self.trimmed else -1
        return STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 20, 60, 50_000)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "defaultRetentionTimeInMinutes": retention,
                "defaultRetentionSizeInMB": retention,
                "flushInterval": rng.choice((5, 15, 60, 3000)),
                "managedLedgerCursorMaxEntriesPerLedger": rng.choice((3, 20, 50_000)),
                "quireCursorFlushDelayMillis": rng.choice((0, 10, 50)),
                "journalMaxSizeMB": 1,
                "journalMaxBackups": rng.choice((0, 1)),
                "journalPreAllocSizeMB": 1,
                "quireDiskReserveMb": self.universe.derive("reserve").choice((1, 1, 64)),
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "dbStorage_readAheadCacheBatchSize": rng.choice((1, 10, 1000)),
                "logSizeLimit": 1 << 20,
                "gcWaitTime": rng.choice((50, 2000)),
                "brokerShutdownTimeoutMs": 2000,
                "managedLedgerCacheSizeMB": rng.choice((0, 1, 16)),
                "managedLedgerCacheEvictionTimeThresholdMillis": rng.choice((5, 1000)),
                "activeConsumerFailoverDelayTimeMillis": 10,
                "delayedDeliveryTickTimeMillis": delayed.choice((1, 100, 1000)),
                "isDelayedDeliveryDeliverAtTimeStrict": delayed.choice((False, True)),
                "dispatcherMaxReadBatchSize": rng.choice((3, 1000)),
            }
        )

    # The server

    async def serve(self, world: World, stop: trio.Event) -> None:
        """Run one incarnation. It may end by itself only after a fault that it cannot survive."""

        def ready(_: Addresses) -> None:
            self.universe.trace.event(SERVER, "ServerReady")
            self.recoveries += self.server.incarnation > 1
            self.ready.set()

        try:
            await run_standalone(world, self.config, data_dir=DATA, ready=ready, stop=stop, http=False)
        except* (BookieError, MetadataError, OSError) as error:
            if not {"disk full", "failed sync"} & self.done.keys():
                raise
            self.universe.trace.event(SERVER, "ServerFailed", errors=len(list(leaves(error))))

    async def nemesis(self) -> None:
        """Inject faults until the history has its share."""
        rng = self.rng
        while not self._has_enough():
            with trio.fail_after(LIVENESS_S):
                if rng.random() < 0.9:
                    await self.ready.wait()
                if len(self.server.crashes) > CRASHES_MIN:
                    while not self._has_entries():
                        await trio.sleep(0.05)
            await trio.sleep(rng.uniform(0, self.pace_s))
            drop_wanted = len(self.server.crashes) >= CRASHES_MIN - 1 and not self._dropping()
            kind = "sync" if drop_wanted else rng.choice(self.harms)
            if kind == "stop" and not self.ready.is_set():
                continue
            self.universe.trace.event(SERVER, "Nemesis", kind=kind)
            self.done[kind] = self.done.get(kind, 0) + 1
            await self.harm(kind)
            if not self.server.running:
                await self._restart()

    async def harm(self, kind: str) -> None:
        rng, server, disk = self.rng, self.server, self.server.disk
        if kind == "power":
            await server.crash()
        elif kind == "kill":
            await server.crash(lose_unsynced=False)
        elif kind == "damage":
            await server.crash(lose_unsynced=False)
            for _ in range(TRIALS):
                outcome = await trial(self.universe, server, self._contents, rng)
                self.universe.trace.event(SERVER, "Trial", outcome=outcome)
        elif kind == "fuse":
            server.crash_after(rng.randrange(1, 16))
            await self._blown()
        elif kind == "sync":
            server.crash_at_sync(rng.randrange(0, 5))
            await self._blown()
        elif kind == "early":
            await server.crash()
            await self._restart()
            server.crash_after(rng.randrange(1, 30))
            await self._blown()
        elif kind == "stop":
            with trio.fail_after(LIVENESS_S):
                await server.stop()
        elif kind == "disk full":
            disk.limit(rng.choice((0, 700, 5000, 30_000)))
            await trio.sleep(rng.uniform(0.01, 0.5))
            disk.limit(None)
        elif kind == "failed sync":
            disk.fail_syncs(1)
            with trio.move_on_after(1):
                await server.wait_down()
            if self.log.has("journal failed") or self.log.has("the storage has failed"):
                self.log.forget()
                await self._must_end()
            await server.crash()
            disk.fail_syncs(0)
        elif kind == "reset":
            self.universe.network.reset(rng.choice(self.clients.names), SERVER)

    async def _contents(self, world: World, wanted: Contents | None) -> Contents:
        """Return the contents of a copy of the server: its bookie and its metadata."""
        directory = await world.offload.run(partial(claim, world.disk, "/data"), name="claim")
        has_served = world.disk.exists(directory.ledgers)
        metadata = await open_store(world, directory.metadata, create=not has_served)
        try:
            nodes = {path: node.value for path, node in load(metadata._key_value).nodes.items()}
            await initialize(metadata, self.config.broker.cluster_name, world.rng)
            found = await bookie_contents(world, bookie_config(self.config, directory), metadata, wanted)
            found.nodes = nodes
            return found
        finally:
            await metadata.aclose()
            directory.lock.release()

    async def _blown(self) -> None:
        with trio.move_on_after(0.3):
            await self.server.wait_down()
        await self.server.crash()

    async def _must_end(self) -> None:
        with trio.move_on_after(FAIL_STOP_S):
            await self.server.wait_down()
            return
        raise ViolationError("FailStop", "a sync failed, and the server goes on")

    async def _restart(self) -> None:
        await trio.sleep(self.rng.uniform(0, 0.02))
        self.ready = trio.Event()
        await self.server.restart()

    def _confirmed(self) -> int:
        return sum(len(history.confirmed) for history in self.histories.values())

    def _has_entries(self) -> bool:
        return self._confirmed() >= CONFIRMED_MIN

    def _dropping(self) -> int:
        return sum(1 for dropped in self.server.crashes if dropped.writes or dropped.batches)

    def _has_enough(self) -> bool:
        crashes = len(self.server.crashes)
        return self._has_entries() and crashes >= CRASHES_MIN and self._dropping() >= 1

    # The run

    def _start_clients(self) -> None:
        rng = self.rng
        kinds = (
            pb.CommandSubscribe.Exclusive,
            pb.CommandSubscribe.Shared,
            pb.CommandSubscribe.Key_Shared,
            pb.CommandSubscribe.Failover,
        )
        topics = TOPICS[: rng.randrange(1, 3)]
        for number, topic in enumerate(topics):
            history = self.histories[topic]
            subscribed = [trio.Event() for _ in range(rng.choice((1, 1, 2)))]
            for subscription, event in enumerate(subscribed):
                kind = rng.choice(kinds)
                for consumer in range(1 if kind == pb.CommandSubscribe.Exclusive else rng.randrange(1, 3)):
                    name = f"s{number}-{subscription}"
                    work = partial(self.clients.consume, history, name, kind, event)
                    self.clients.start(f"{name}-{consumer}", work)
            for producer in range(rng.randrange(1, 3)):
                name = f"p{number}-{producer}"
                produce = partial(self.clients.produce, history, name, rng.choice((4, 16, 40)), subscribed)
                self.clients.start(name, produce)

        passing = self.universe.derive("passing")
        for number in range(passing.choice((0, 1, 2))):
            name = f"u{number}"
            self.clients.start(name, partial(self.clients.come_and_go, passing.choice(topics), name))

    async def run(self) -> Summary:
        self.universe.trace.event(
            "",
            "Drawn",
            config=str(self.config),
            harms=" ".join(self.harms),
            pace_s=self.pace_s,
            sizes=str(self.clients.sizes),
            delay_every=self.delay_every,
        )
        self.server.start(self.serve)
        self._start_clients()
        with trio.fail_after(600):
            await self.nemesis()
        self.clients.finish.set()
        await self.server.crash()
        await self.server.restart()
        with trio.fail_after(LIVENESS_S):
            for topic, history in self.histories.items():
                if history.confirmed:
                    history.check_final(await self.clients.read_all(topic), trimmed=self.trimmed)
        await self._everything_delivered()
        await self._check_leaks()
        return self._summary()

    async def _check_leaks(self) -> None:
        """Stop the server in order, and check its remaining metadata."""
        with trio.fail_after(LIVENESS_S):
            await self.server.stop()
        done = trio.Event()
        found: list[ViolationError | int] = []

        async def look(world: World, stop: trio.Event) -> None:
            metadata = await open_store(world, METADATA)
            try:
                found.append(await check_leaks(world, metadata, LEDGERS_ROOT))
            except ViolationError as error:
                found.append(error)
            await metadata.aclose()
            done.set()

        await self.server.restart(look)
        with trio.fail_after(LIVENESS_S):
            await done.wait()
        if isinstance(found[0], ViolationError):
            raise found[0]
        self.universe.trace.event(SERVER, "LedgersLeft", count=found[0])

    async def _everything_delivered(self) -> None:
        """Wait until no confirmed entry is withheld from a subscription."""
        with trio.move_on_after(LIVENESS_S):
            for history in self.histories.values():
                while history.undelivered():
                    await trio.sleep(0.02)
            return
        for history in self.histories.values():
            withheld = history.undelivered()
            if withheld:
                raise ViolationError(
                    "EveryConfirmedEntryIsDelivered",
                    f"{history.topic}: not to be had: {withheld[:5]} ({len(withheld)})"
                    f" {self.explained.told(history.topic, withheld[0][0])}",
                )

    def _summary(self) -> Summary:
        subscriptions = [each for history in self.histories.values() for each in history.subscriptions.values()]
        require(self._has_enough() and self.recoveries > 0, "HistoryIsBigEnough", f"seed {self.universe.seed}")
        crashing = ("power", "fuse", "sync", "early")
        return Summary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=self._confirmed(),
            crashes=len(self.server.crashes),
            dropping_crashes=self._dropping(),
            recoveries=self.recoveries,
            answered_acks=sum(len(each.answered) for each in subscriptions),
            delivered=sum(len(history.delivered) for history in self.histories.values()),
            harms="".join(f", {count} {kind}" for kind, count in self.done.items() if kind not in crashing),
            virtual_s=trio.current_time(),
        )


def run_standalone_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> Summary:
    """Run one history.

    Raises ViolationError if an invariant does not hold, TooSlowError if the healed system makes no progress. `lines`
    gets the trace, with every step of every task if `steps`."""
    with watched() as log, explanations_checked() as explained:
        stories: list[Story] = []

        async def main(universe: Universe) -> Summary:
            if lines is not None:
                universe.trace.lines = lines
            stories.append(Story(universe, log, explained))
            return await stories[0].run()

        # Stored after so few messages that crashes come before, amid and after it.
        stored_after = random.Random(f"{seed} delayed index").choice((1, 5, 40, delays.STORED_AFTER_MIN))
        with patched([(delays, "STORED_AFTER_MIN", stored_after), (delays, "STORED_LAST_MIN", stored_after)]):
            summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check([text for kind in stories[0].done for text in EXPECTED_ERRORS.get(kind, ())])
        return summary
