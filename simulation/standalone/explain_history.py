"""Causes provoked and removed: a client withholds permits and acknowledgements, asks why nothing comes, and removes
exactly what it is told.

A round has a topic and a subscription of its own. Its consumers give few permits and acknowledge nothing; some messages
are delayed, limits of unacknowledged messages are small, and the server is killed between rounds now and then. After
each answer the client removes the named cause, and nothing else. Then messages must flow, or another cause be named,
until everything is delivered and acknowledged. What is told of permits and held messages must be what the client has
counted itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import trio

from broker.explain import causes
from broker.explain.causes import Explanation
from broker.explain.delivery import Obstacle
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.process import run_standalone
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place, ViolationError, require
from simulation.common.explained import Explained, explanations_checked
from simulation.common.histories import watched
from simulation.common.pulsar_client import ClientError, Connection
from simulation.machines.world import Universe, run

SERVER = "server"
PORT = 6650
ROUNDS = 12
STEPS_MAX = 400
QUIET_S = 0.4
"""Virtual seconds after which what was asked for has arrived."""
FLOW_S = 8.0
"""Virtual seconds in which something must change after a cause was removed."""
HISTORY_S = 20_000.0
KINDS = (
    pb.CommandSubscribe.Exclusive,
    pb.CommandSubscribe.Shared,
    pb.CommandSubscribe.Shared,
    pb.CommandSubscribe.Key_Shared,
    pb.CommandSubscribe.Key_Shared,
    pb.CommandSubscribe.Failover,
)
MANY = (pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared)


@dataclass(frozen=True, slots=True)
class ExplainSummary:
    seed: int
    digest: str
    delivered: int
    crashes: int
    causes: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.delivered} delivered in {ROUNDS} rounds, {self.crashes} crashes, causes removed:"
            f" {self.causes}, digest {self.digest[:16]}"
        )


class Round:
    """One subscription and its consumers, all on one connection."""

    def __init__(self, number: int, connection: Connection) -> None:
        self.topic = f"persistent://public/default/t{number}"
        self.name = f"s{number}"
        self.connection = connection
        self.granted: Counter[str] = Counter()
        """Permits by consumer."""
        self.received: Counter[str] = Counter()
        self.held: dict[str, list[Place]] = {}
        """Messages without an acknowledgement, by consumer."""
        self.delivered: set[Place] = set()
        self.acked: set[Place] = set()

    def consumer_id(self, name: str) -> int:
        return int(name.removeprefix("c"))

    def take(self) -> None:
        """Take what has arrived."""
        while self.connection.messages:
            consumer_id, got = self.connection.messages.popleft()
            name, place = f"c{consumer_id}", (got.ledger_id, got.entry_id)
            self.received[name] += 1
            self.held.setdefault(name, []).append(place)
            self.delivered.add(place)

    def flow(self, name: str, permits: int) -> None:
        self.granted[name] += permits
        self.connection.flow(self.consumer_id(name), permits)

    async def ack(self, name: str) -> None:
        """Acknowledge everything that a consumer holds."""
        places = self.held.pop(name, [])
        self.acked.update(places)
        if places:
            await self.connection.ack(self.consumer_id(name), places)

    def progress(self, answer: Explanation) -> tuple[object, ...]:
        """Return what changes if messages flow, or another cause is named."""
        told = [answer.details.get(name) for name in ("consumer", "position", "permits", "unacked", "backlog")]
        return (answer.code, len(self.delivered), sum(self.received.values()), *told)


class ExplainStory:
    """One run of the history."""

    def __init__(self, universe: Universe, explained: Explained) -> None:
        self.universe = universe
        self.explained = explained
        self.rng = universe.derive("story")
        self.server = universe.host(SERVER)
        self.ready = trio.Event()
        self.config = self._draw_config()
        self.removed: Counter[str] = Counter()
        self.delivered = 0
        self.over = trio.Event()

    def _draw_config(self) -> StandaloneConfig:
        rng = self.rng
        return STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 50_000)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "journalMaxSizeMB": 1,
                "journalPreAllocSizeMB": 1,
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "logSizeLimit": 1 << 20,
                "managedLedgerCacheSizeMB": rng.choice((0, 16)),
                "dispatcherMaxReadBatchSize": rng.choice((3, 1000)),
                "maxUnackedMessagesPerConsumer": rng.choice((0, 2, 7)),
                "maxUnackedMessagesPerSubscription": rng.choice((0, 3, 11)),
                "delayedDeliveryTickTimeMillis": rng.choice((1, 1000)),
                "activeConsumerFailoverDelayTimeMillis": rng.choice((10, 1500)),
            }
        )

    async def serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.ready.set()

        await run_standalone(world, self.config, data_dir="/data", ready=ready, stop=stop, http=False)

    # The client

    async def user(self, world: World, stop: trio.Event) -> None:
        number = tries = 0
        while number < ROUNDS:
            tries += 1
            try:
                async with trio.open_nursery() as nursery:
                    connection = await Connection.open(world, SERVER, PORT)
                    nursery.start_soon(connection.run, name="user receives")
                    await connection.handshake()
                    await self._round(Round(tries, connection))
                    number += 1
                    nursery.cancel_scope.cancel()
            except* (OSError, ClientError):
                await trio.sleep(0.05)
        self.over.set()
        await trio.sleep_forever()

    async def _round(self, story: Round) -> None:
        rng, connection = self.rng, story.connection
        kind = rng.choice(KINDS)
        count = 1 if kind == pb.CommandSubscribe.Exclusive else rng.randrange(1, 4)
        names = [f"c{number}" for number in range(1, count + 1)]
        await self._subscribe(story, names[0], kind)
        if rng.random() < 0.3:
            await connection.close_consumer(1)
            names = names[1:] if kind in MANY else []
        for name in names:
            if name != "c1":
                await self._subscribe(story, name, kind)
        early = rng.random() < 0.5
        for name in names if early else ():
            story.flow(name, rng.randrange(1, 5))
        messages = rng.randrange(10, 40)
        await self._publish(story, messages, kind)
        for name in () if early else names:
            if rng.random() < 0.6:
                story.flow(name, rng.randrange(1, 5))
        late = rng.choice((-1, 2, 5)) if kind in MANY else -1
        for step in range(STEPS_MAX):
            if step == late:  # to which keys move that others hold
                await self._subscribe(story, "c8", kind)
                story.flow("c8", 2)
            if (answer := await self._ask(story)) is None or connection.closed:
                raise ClientError("the server is gone")
            self._check_account(story, answer, kind)
            if answer.cause is causes.CAUGHT_UP:
                break
            await self._remove(story, answer, kind)
            await self._changes(story, story.progress(answer), answer)
        else:
            raise ViolationError("RemovedCausesLetMessagesFlow", f"{story.name}: no end after {STEPS_MAX} causes")
        require(
            len(story.delivered) == messages,
            "RemovedCausesLetMessagesFlow",
            f"{story.name}: {len(story.delivered)} of {messages} were delivered when nothing was left to remove",
        )
        self.delivered += messages

    async def _subscribe(self, story: Round, name: str, kind: int) -> None:
        await story.connection.subscribe(story.topic, story.name, story.consumer_id(name), kind, name=name)

    async def _publish(self, story: Round, messages: int, kind: int) -> None:
        rng, connection = self.rng, story.connection
        await connection.producer(story.topic, 1, "p")
        delay_ms = rng.choice((0, 0, 300, 4000)) if kind in MANY else 0
        fresh = [(f"k{number % 5}", b"p/%d/" % number) for number in range(messages)]
        connection.publish(1, "p", 0, fresh, lambda number: delay_ms * (number % 4 == 0))
        while len(connection.receipts) < messages:
            await connection.changed()

    async def _ask(self, story: Round) -> Explanation | None:
        await trio.sleep(QUIET_S)
        story.take()
        if story.connection.closed:
            return None
        return self.explained.ask(SERVER, story.topic, story.name)

    def _check_account(self, story: Round, answer: Explanation, kind: int) -> None:
        """Compare what is told of a consumer with what the client has counted."""
        name = str(answer.details.get("consumer", ""))
        if not name or answer.cause is causes.KEY_HELD:
            return
        if "permits" in answer.details and answer.cause is not causes.DELIVERED_UNACKED:
            left = story.granted[name] - story.received[name]
            told = answer.details["permits"]
            require(told == left, "PermitsAreAccounted", f"{answer.sentence} But {name} has {left} permits.")
        if kind in MANY and "held" in answer.details:
            held, told = len(story.held.get(name, ())), answer.details["held"]
            require(told == held, "HeldMessagesAreAccounted", f"{answer.sentence} But {name} holds {held}.")

    async def _remove(self, story: Round, answer: Explanation, kind: int) -> None:
        """Remove the cause, and nothing else."""
        cause, name = answer.cause, str(answer.details.get("consumer", ""))
        self.universe.trace.event("user", "Told", subscription=story.name, cause=cause.code, consumer=name)
        self.removed[cause.code] += 1
        if cause is causes.NO_CONSUMERS:
            name = "c9"
            await self._subscribe(story, name, kind)
        elif cause is causes.NO_PERMITS or answer.details.get("obstacle") == Obstacle.NO_PERMITS.value:
            story.flow(name, self.rng.randrange(1, 6))
        elif cause in (
            causes.CONSUMER_UNACKED,
            causes.SUBSCRIPTION_UNACKED,
            causes.KEY_HELD,
            causes.KEY_CONSUMER_BUSY,
        ):
            await story.ack(name)
        elif cause is causes.DELIVERED_UNACKED:
            for each in list(story.held) if kind not in MANY else [name]:
                await story.ack(each)
        elif cause is causes.DELAYED:
            due_in_ms = answer.details["due_in_ms"]
            assert isinstance(due_in_ms, int)
            await trio.sleep(due_in_ms / 1000)
        else:  # it ends by itself
            require(
                cause.state is causes.CauseState.WAITING,
                "WaitingMessagesHaveACause",
                f"{answer.sentence} ({answer.code}, {answer.details})",
            )

    async def _changes(self, story: Round, before: tuple[object, ...], answer: Explanation) -> None:
        """Wait until messages flow, or another cause is named."""
        with trio.move_on_after(FLOW_S):
            while True:
                after = await self._ask(story)
                if after is None or story.progress(after) != before:
                    return
        raise ViolationError(
            "RemovedCausesLetMessagesFlow", f"{answer.subject}: {answer.sentence} It was removed, and nothing changed."
        )

    # The run

    async def nemesis(self) -> None:
        """Kill the server a few times."""
        for _ in range(self.rng.randrange(0, 4)):
            await trio.sleep(self.rng.uniform(5, 120))
            await self.server.crash(lose_unsynced=self.rng.random() < 0.5)
            self.ready = trio.Event()
            await self.server.restart()

    async def run(self) -> ExplainSummary:
        self.server.start(self.serve)
        await self.ready.wait()
        self.universe.nursery.start_soon(self.nemesis, name="nemesis")
        self.universe.host("user").start(self.user)
        with trio.fail_after(HISTORY_S):
            await self.over.wait()
        return ExplainSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            delivered=self.delivered,
            crashes=len(self.server.crashes),
            causes=" ".join(f"{code} {count}" for code, count in sorted(self.removed.items())),
        )


def run_explain_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> ExplainSummary:
    """Run one history.

    Raises ViolationError if a cause is missing or wrong, or messages do not flow when it is removed; TooSlowError if
    there is no end. `lines` gets the trace, with every step of every task if `steps`."""

    with watched() as log, explanations_checked() as explained:

        async def main(universe: Universe) -> ExplainSummary:
            if lines is not None:
                universe.trace.lines = lines
            return await ExplainStory(universe, explained).run()

        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
