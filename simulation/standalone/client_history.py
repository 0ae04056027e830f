"""quire.client against a standalone server that crashes, over a network that resets and falls silent.

Hosts: the server; writers, whose messages are numbered; a reader that reads on from where it stands, now with the same
Reader, now with a new one, now in a new process; a tail, which began at the end; a holder, which moves a subscription.
They use only the client's own calls, and none of these may fail: every loss is shorter than the operation timeout.

What must hold: what a flush covered is readable; the reader gets every entry once, in order, none left out, and the
tail the same from where it began; the mark-delete position is never behind an answered acknowledge.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from quire.client.client import Client, open_client
from quire.client.deliveries import Deliveries
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.client.packing import pack
from quire.client.reader import Reader
from quire.client.subscription import Subscription
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.process import run_standalone
from quire.wire.pulsar.metadata import metadata_span
from quire.world.doors import World
from simulation.common.checkers import Place, TopicHistory, message, require
from simulation.common.explained import explanations_checked
from simulation.common.histories import watched
from simulation.machines.host import Main
from simulation.machines.world import Universe, run

SERVER = "server"
PORT = 6650
TOPIC = "persistent://public/default/t"
SENT_MIN = 400
CRASHES_MIN = 3
LIVENESS_S = 200.0
HARMS = ("power", "kill", "stop", "reset", "reset", "silence", "reader")


@dataclass(frozen=True, slots=True)
class ClientSummary:
    seed: int
    digest: str
    confirmed: int
    crashes: int
    dropping_crashes: int
    recoveries: int
    read: int
    acknowledged: int
    harms: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.confirmed} confirmed, {self.crashes} crashes ({self.dropping_crashes} dropped"
            f" unsynced writes), {self.recoveries} recoveries, {self.read} read, {self.acknowledged} acks answered,"
            f" 0 lost{self.harms}, digest {self.digest[:16]}"
        )


@dataclass
class Follower:
    """A client that reads."""

    name: str
    places: list[Place] = field(default_factory=list)
    """Received messages in order."""


class ClientStory:
    """One run of the history."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.rng = universe.derive("story")
        self.history = TopicHistory(TOPIC)
        self.server = universe.host(SERVER)
        self.config = self._draw_config()
        self.ready = trio.Event()
        self.recoveries = 0
        self.made = trio.Event()
        """The topic exists."""
        self.finish = trio.Event()
        """Writers stop."""
        self.writing = self.rng.randrange(1, 3)
        self.written = trio.Event()
        """All writers have flushed what they sent."""
        self.sent: dict[str, int] = {}
        self.reader = Follower("reader")
        self.tail = Follower("tail")
        self.tail_begun = trio.Event()
        self.acknowledged = 0
        self.done: dict[str, int] = {}
        self.names: list[str] = []

    def _draw_config(self) -> StandaloneConfig:
        rng = self.rng
        return STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 20, 60, 50_000)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "defaultRetentionTimeInMinutes": -1,
                "defaultRetentionSizeInMB": -1,
                "flushInterval": rng.choice((5, 60, 3000)),
                "managedLedgerCursorMaxEntriesPerLedger": rng.choice((3, 50_000)),
                "journalMaxSizeMB": 1,
                "journalPreAllocSizeMB": 1,
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "logSizeLimit": 1 << 20,
                "brokerShutdownTimeoutMs": 2000,
                "managedLedgerCacheSizeMB": rng.choice((0, 1, 16)),
                "dispatcherMaxReadBatchSize": rng.choice((3, 1000)),
                "connectionLivenessCheckTimeoutMillis": 500,
            }
        )

    async def serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.recoveries += self.server.incarnation > 1
            self.ready.set()

        await run_standalone(world, self.config, data_dir="/data", ready=ready, stop=stop, http=False)

    # Clients

    @asynccontextmanager
    async def _client(self, world: World) -> AsyncGenerator[Client, None]:
        options = ClientOptions(
            operation_timeout_s=60,
            connect_timeout_s=2,
            keep_alive_interval_s=1,
            backoff_min_s=0.01,
            backoff_max_s=0.3,
            receive_bytes_max=world.rng.choice((300, 3000, 1 << 20)),
        )
        async with open_client(world, f"pulsar://{SERVER}:{PORT}", options) as client:
            yield client

    async def write(self, name: str, world: World, stop: trio.Event) -> None:
        """Send numbered messages, and flush now and then."""
        rng = world.rng
        async with self._client(world) as client:
            producer = await client.producer(TOPIC, name=name, pending_max=rng.choice((2, 10, 100)))
            self.made.set()
            while not self.finish.is_set():
                first = self.sent.get(name, 0)
                sizes = [rng.choice((0, 0, 200, 3000)) for _ in range(rng.randrange(1, 20))]
                payloads = [message(name, number, size) for number, size in enumerate(sizes, first)]
                self.sent[name] = first + len(payloads)
                await producer.send(pack(payloads, [None] * len(payloads), None, None, batch=False))
                if rng.random() < 0.3:
                    await producer.flush()
                    self._receipt(producer, name, producer.last_ids, payloads[-1])
                await trio.sleep(rng.uniform(0, 0.02 if sum(self.sent.values()) < SENT_MIN else 0.2))
            await producer.flush()
            await producer.close()
        self.writing -= 1
        if self.writing == 0:
            self.written.set()
        await trio.sleep_forever()

    def _receipt(self, producer: object, name: str, last: MessageId, payload: bytes) -> None:
        self.universe.trace.event(name, "Flushed", ledger=last.ledger_id, entry=last.entry_id)
        self.history.receipt(producer, name, (last.ledger_id, last.entry_id), payload)

    async def read(self, world: World, stop: trio.Event) -> None:
        """Read from behind the last entry, with one Reader after the other."""
        rng = world.rng
        await self.made.wait()
        async with self._client(world) as client:
            while True:
                places = self.reader.places
                start = MessageId(places[-1][0], places[-1][1] + 1) if places else MessageId.EARLIEST
                reader = await client.reader(TOPIC, start, window=rng.choice((1, 3, 50, 1000)))
                for _ in range(rng.randrange(1, 40)):
                    await trio.sleep(rng.choice((0, 0, rng.uniform(0, 0.05))))
                    self._arrived(self.reader, await reader.receive())
                if rng.random() < 0.5:
                    await reader.last_message_id()
                await reader.close()

    async def follow(self, world: World, stop: trio.Event) -> None:
        """Read from the end, with one Reader."""
        await self.made.wait()
        await trio.sleep(world.rng.uniform(0, 0.3))
        async with self._client(world) as client:
            reader = await client.reader(TOPIC, MessageId.LATEST, window=world.rng.choice((2, 1000)))
            self.tail_begun.set()
            while True:
                self._arrived(self.tail, await reader.receive())

    def _arrived(self, who: Follower, deliveries: Deliveries) -> None:
        require(len(deliveries) > 0, "DeliveriesAreNotEmpty", who.name)
        for ledger_id, entry_id, entry in zip(
            deliveries.ledger_ids, deliveries.entry_ids, deliveries.entries, strict=True
        ):
            place = (ledger_id, entry_id)
            if who.places:
                last = who.places[-1]
                require(place > last, "EachEntryOnceInOrder", f"{who.name}: {place} after {last}")
                follows = place == (last[0], last[1] + 1) or (place[0] > last[0] and entry_id == 0)
                require(follows, "NoEntryIsLeftOut", f"{who.name}: {place} after {last}")
            who.places.append(place)
            self.universe.trace.event(who.name, "Read", ledger=ledger_id, entry=entry_id)
            self.history.delivery(who.name, place, bytes(entry[metadata_span(entry)[1] :]), done=set())

    async def hold(self, world: World, stop: trio.Event) -> None:
        """Move a subscription forward, now and then back, and check its position."""
        rng = world.rng
        await self.made.wait()
        answered: Place = (-1, -1)
        async with self._client(world) as client:
            while True:
                subscription = await client.subscription(TOPIC, "hold")
                for _ in range(rng.randrange(1, 10)):
                    await self._stands(subscription, answered)
                    places = self.reader.places
                    if places and rng.random() < 0.9:
                        place = places[rng.randrange(len(places))]
                        await subscription.acknowledge(MessageId(*place))
                        answered = max(answered, place)
                        self.acknowledged += 1
                        self.universe.trace.event("holder", "Acknowledged", place=str(place))
                    elif places:
                        place = places[rng.randrange(len(places))]
                        await subscription.seek(MessageId(*place))
                        answered = await self._stands(subscription, (-1, -1))
                        require(answered < place, "SeekIsDurable", f"{place} was made the next, after {answered}")
                    await trio.sleep(rng.uniform(0, 0.1))
                await subscription.close()

    async def _stands(self, subscription: Subscription, answered: Place) -> Place:
        mark = await subscription.mark_delete()
        place = (mark.ledger_id, mark.entry_id)
        require(place >= answered, "AnsweredAcksAreDurable", f"mark-delete is {place}, and {answered} was answered")
        return place

    # Faults

    async def nemesis(self) -> None:
        rng = self.rng
        while not self._has_enough():
            with trio.fail_after(LIVENESS_S):
                await self.ready.wait()
                await self.made.wait()
                await self.tail_begun.wait()
                if len(self.server.crashes) > CRASHES_MIN + 2:
                    while sum(self.sent.values()) < SENT_MIN:
                        await trio.sleep(0.05)
            await trio.sleep(rng.uniform(0, 0.3))
            crash_wanted = len(self.server.crashes) >= CRASHES_MIN - 1 and not self._dropping()
            kind = "sync" if crash_wanted else rng.choice(HARMS)
            self.done[kind] = self.done.get(kind, 0) + 1
            self.universe.trace.event(SERVER, "Nemesis", kind=kind)
            await self._harm(kind)
            if not self.server.running:
                await trio.sleep(rng.uniform(0, 0.5))
                self.ready = trio.Event()
                await self.server.restart()

    async def _harm(self, kind: str) -> None:
        rng = self.rng
        if kind == "power":
            await self.server.crash()
        elif kind == "sync":
            self.server.crash_at_sync(rng.randrange(0, 5))
            with trio.move_on_after(1):
                await self.server.wait_down()
            await self.server.crash()
        elif kind == "kill":
            await self.server.crash(lose_unsynced=False)
        elif kind == "stop":
            with trio.fail_after(LIVENESS_S):
                await self.server.stop()
        elif kind == "reset":
            self.universe.network.reset(rng.choice(self.names), SERVER)
        elif kind == "silence":
            name = rng.choice(self.names)
            for source, target in ((name, SERVER), (SERVER, name)):
                if rng.random() < 0.8:
                    self.universe.network.cut(source, target)
            await trio.sleep(rng.uniform(0, 8))
            self.universe.network.heal()
        elif kind == "reader":
            host = self.universe.host("reader")
            await host.crash()
            await host.restart()

    def _dropping(self) -> int:
        return sum(1 for dropped in self.server.crashes if dropped.writes or dropped.batches)

    def _has_enough(self) -> bool:
        sent = sum(self.sent.values()) >= SENT_MIN
        return sent and len(self.server.crashes) >= CRASHES_MIN and self._dropping() >= 1 and self.acknowledged > 10

    # The run

    async def run(self) -> ClientSummary:
        self.server.start(self.serve)
        await self.ready.wait()
        workers: dict[str, Main] = {
            f"writer-{number}": partial(self.write, f"writer-{number}") for number in range(self.writing)
        }
        for name, work in {**workers, "reader": self.read, "tail": self.follow, "holder": self.hold}.items():
            self.names.append(name)
            self.universe.host(name).start(work)
        with trio.fail_after(3000):
            await self.nemesis()
        self.finish.set()
        with trio.fail_after(LIVENESS_S):
            await self.written.wait()
        await self.server.crash()
        await self.server.restart()
        found = await self._read_all()
        self.history.check_final(found)
        self._check_numbers(found)
        await self._caught_up(list(found))
        return ClientSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            confirmed=sum(self.sent.values()),
            crashes=len(self.server.crashes),
            dropping_crashes=self._dropping(),
            recoveries=self.recoveries,
            read=len(self.reader.places) + len(self.tail.places),
            acknowledged=self.acknowledged,
            harms="".join(f", {count} {kind}" for kind, count in self.done.items()),
        )

    def _check_numbers(self, found: dict[Place, bytes]) -> None:
        """Check that everything sent was flushed at the end."""
        numbers = {payload.rstrip(b".") for payload in found.values()}
        for name, count in self.sent.items():
            missing = [number for number in range(count) if message(name, number) not in numbers]
            require(not missing, "AllAckedEntriesAreReadable", f"{name}: {missing[:5]} of {count} are lost")

    async def _read_all(self) -> dict[Place, bytes]:
        """Read everything from the beginning, with a new reader, after the last restart."""
        found: dict[Place, bytes] = {}
        over = trio.Event()

        async def main(world: World, stop: trio.Event) -> None:
            async with self._client(world) as client:
                reader: Reader = await client.reader(TOPIC, MessageId.EARLIEST)
                last = await reader.last_message_id()
                while not found or max(found) < (last.ledger_id, last.entry_id):
                    deliveries = await reader.receive()
                    for place, entry in zip(
                        zip(deliveries.ledger_ids, deliveries.entry_ids, strict=True), deliveries.entries, strict=True
                    ):
                        found[place] = bytes(entry[metadata_span(entry)[1] :])
            over.set()

        self.universe.host("checker").start(main)
        with trio.fail_after(LIVENESS_S):
            await over.wait()
        return found

    async def _caught_up(self, places: list[Place]) -> None:
        """Check that the readers reach the end, and have seen everything."""
        with trio.fail_after(LIVENESS_S):
            for who in (self.reader, self.tail):
                while not who.places or who.places[-1] < places[-1]:
                    await trio.sleep(0.05)
        require(self.reader.places == places, "NoEntryIsLeftOut", "the reader has seen something else than there is")
        expected = places[-len(self.tail.places) :]
        require(self.tail.places == expected, "NoEntryIsLeftOut", "the tail has seen something else than there is")


def run_client_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> ClientSummary:
    """Run one history.

    Raises ViolationError if an invariant does not hold, TooSlowError if the healed system makes no progress. `lines`
    gets the trace, with every step of every task if `steps`."""

    async def main(universe: Universe) -> ClientSummary:
        if lines is not None:
            universe.trace.lines = lines
        return await ClientStory(universe).run()

    with watched() as log, explanations_checked():
        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
