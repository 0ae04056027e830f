"""A single subscription: a log of one ledger whose reads the test completes, and connections that record frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count, takewhile
from random import Random
from types import SimpleNamespace
from typing import Any

import trio

from broker.config import BrokerOptions
from broker.dispatch.consumer import Consumer
from broker.dispatch.rules import rules_of_broker
from broker.dispatch.subscription import Subscription
from broker.entry_filters.loading import EntryFilters
from broker.measures import Measures
from broker.output import OutputBudget
from broker.topics.delayed_delivery import of_broker
from broker.topics.entry_screen import EntryScreen
from broker.topics.subscription_kinds import make_subscription
from cursors.opening import memory_cursor
from managed_ledger.entry_run import EntryRun
from managed_ledger.errors import ManagedLedgerReadError
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.log_index import LogIndex
from managed_ledger.writing.state import State
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.entry_features import features_of
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Buffer
from quire.world.outbox import Turn
from tests.support.pulsar_frames import entry, payload_of

LEDGER = 5


EPOCH_MS = 1_700_000_000_000


class FakeClock:
    """Wall clock that goes with the test's own."""

    def wall_ms(self) -> int:
        return EPOCH_MS + round(trio.current_time() * 1000)


def in_s(seconds: float) -> dict[str, Any]:
    """Return the metadata of a message that is due in so many seconds."""
    return {"deliver_at_time": EPOCH_MS + round((trio.current_time() + seconds) * 1000)}


class HeldRead:
    """A read from bookies that waits for the test."""

    def __init__(self, first: int, count: int, replay: bool) -> None:
        self.first = first
        self.count = count
        self.replay = replay
        self.given = 0
        """Entries of the read."""
        self.arrived = trio.Event()
        self.error: ManagedLedgerReadError | None = None


class FakeLog:
    """Entries of ledger 5. Cold: nothing is in the cache."""

    def __init__(self, *, cold: bool = False) -> None:
        self.state = State.OPEN
        self.cold = cold
        self.entries: list[Buffer] = []
        self.reads: list[HeldRead] = []
        self.trimmed = 0
        """Entries below this one are trimmed."""
        self.cached = 0
        """Entries read from the cache."""
        self.cache_reads = 0
        self.keeps = False
        """True if entries that dispatch wants to keep are cached, although the log is cold."""
        self.kept: set[int] = set()
        self.index = LogIndex()
        self.index.set((LedgerInfo(ledger_id=LEDGER),), LEDGER)
        self.index.last_confirmed = Position(LEDGER, -1)
        self.next_position = self.index.next_position
        self.previous_position = self.index.previous_position
        self.first_position = self.index.first_position
        self.last_entry_of = self.index.last_entry_of
        self.count_between = self.index.count_between

    @property
    def last_confirmed(self) -> Position:
        return self.index.last_confirmed

    def add(self, payload: bytes, **metadata: Any) -> Position:
        self.entries.append(entry(payload, sequence_id=len(self.entries), **metadata))
        self.index.last_confirmed = Position(LEDGER, len(self.entries) - 1)
        return self.index.last_confirmed

    def _run(self, first: int, count_max: int) -> EntryRun:
        return EntryRun(LEDGER, first, self.entries[first : first + count_max])

    @property
    def cache(self) -> FakeLog:
        return self

    def has(self, ledger_id: int, entry_id: int) -> bool:
        position = Position(ledger_id, entry_id)
        if position > self.last_confirmed or position.entry_id < self.trimmed:
            return False
        return not self.cold or position.entry_id in self.kept

    def keep(self, run: EntryRun, now: float) -> None:
        if self.keeps:
            self.kept.update(range(run.first_entry_id, run.first_entry_id + len(run.payloads)))

    def read_cached(
        self, position: Position, count_max: int, size_max: int, *, replay: bool = False
    ) -> EntryRun | None:
        if not self.has(*position):
            return None
        run = self._run(position.entry_id, count_max)
        if self.cold:
            known = takewhile(self.kept.__contains__, count(position.entry_id))
            run = self._run(position.entry_id, min(count_max, len(list(known))))
        self.cached += len(run.payloads)
        self.cache_reads += 1
        return run

    async def read(self, position: Position, count_max: int, size_max: int, *, replay: bool = False) -> EntryRun:
        if (cached := self.read_cached(position, count_max, size_max, replay=replay)) is not None:
            await trio.lowlevel.checkpoint()
            return cached
        held = HeldRead(position.entry_id, count_max, replay)
        self.reads.append(held)
        await held.arrived.wait()
        if held.error is not None:
            raise held.error
        run = self._run(max(position.entry_id, self.trimmed), count_max)
        held.given = len(run.payloads)
        return run


class FakeConnection:
    def __init__(self) -> None:
        self.closed = False
        self.client_version = "Pulsar-Java-test"
        self.output_below_bound = True
        self.resuming = False
        self.consumers: dict[int, Consumer[Subscription]] = {}
        self.frames: list[Any] = []

    def write(self, parts: Sequence[Buffer]) -> None:
        self.frames.append(b"".join(parts))

    def consumer_closed(self, consumer_id: int) -> None:
        self.consumers.pop(consumer_id, None)


class Stage:
    """A subscription of one type and its consumers."""

    def __init__(
        self,
        kind: pb.CommandSubscribe.SubType,
        log: FakeLog,
        nursery: trio.Nursery,
        *,
        stored: bool = False,
        topic: str = "persistent://public/default/orders",
        **options: Any,
    ) -> None:
        """`stored`: all entries existed when the topic was loaded."""
        self.log = log
        self.dropped: list[Subscription] = []
        self.delayed_delivery = of_broker(BrokerOptions(**options))
        served: Any = SimpleNamespace(
            published=None,
            context=SimpleNamespace(
                tracing=None,
                options=BrokerOptions(**options),
                output=OutputBudget(0),
                measures=Measures(60.0),
                unacked=None,
                filters=(filters := EntryFilters()),
                delivery=rules_of_broker(BrokerOptions(**options), filters),
                turn=Turn(),
                world=SimpleNamespace(rng=Random(1), clock=FakeClock()),
            ),
            check_consumers=lambda subscription, count: None,
            dispatch_limit=lambda subscription: None,
            delayed_delivery=lambda: self.delayed_delivery,
            name=TopicName.parse(topic),
            ledger=log,
            policies=None,
            nursery=nursery,
            closing=False,
            next_owner="",
            read_bound=None,
            screen=EntryScreen(TopicName.parse(topic), Position(LEDGER, 1 << 40 if stored else -1), Counter()),
            drop_if_unused=self.dropped.append,
        )
        self.screen: EntryScreen = served.screen
        self.turn: Turn = served.context.turn
        world: Any = log
        cursor = memory_cursor(world, "s", Position(LEDGER, -1))
        wanted = pb.CommandSubscribe(subType=kind, durable=True)
        self.subscription: Any = make_subscription(served, "s", cursor, wanted)
        self._number = 0

    def join(self, name: str = "", *, priority: int = 0, permits: int = 0) -> Consumer[Subscription]:
        connection: Any = FakeConnection()
        self._number += 1
        consumer = Consumer(connection, self.subscription, self._number, name or f"c{self._number}", priority, None)
        self.subscription.add_consumer(consumer)
        connection.consumers[self._number] = consumer
        self.subscription.announce()
        if permits:
            self.subscription.flow(consumer, permits)
        return consumer

    def publish(self, *payloads: bytes, **metadata: Any) -> list[Position]:
        positions = [self.log.add(payload, **metadata) for payload in payloads]
        for position in positions:
            self.screen.features |= features_of(self.log.entries[position.entry_id])
        if self.subscription.hungry:
            self.subscription.pump()
            finish(self.turn)
        return positions


@asynccontextmanager
async def on_stage(kind: pb.CommandSubscribe.SubType, *, cold: bool = False, **options: Any) -> AsyncIterator[Stage]:
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as of_topic:
            stage = Stage(kind, FakeLog(cold=cold), of_topic, **options)
            nursery.start_soon(stage.turn.run)
            yield stage
            of_topic.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


def finish(turn: Turn) -> None:
    """End the pass and do the deferred work at once; most tests do not depend on pumps that continue later."""
    turn.flush()
    while turn.busy:
        turn.step()


def commands(consumer: Consumer[Subscription]) -> list[tuple[pb.BaseCommand, bytes]]:
    """Return what was written to the consumer's connection since the last call, by the end of the pass and of all
    deferred work."""
    finish(consumer.subscription.topic.context.turn)
    connection: Any = consumer.connection
    data = b"".join(connection.frames)
    connection.frames.clear()
    found = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        command_size = int.from_bytes(data[4:8], "big")
        found.append((pb.BaseCommand.FromString(data[8 : 8 + command_size]), data[8 + command_size : size]))
        data = data[size:]
    return found


def delivered(consumer: Consumer[Subscription]) -> list[bytes]:
    """Return the payloads of the messages sent since the last call."""
    return [payload_of(tail) for command, tail in commands(consumer) if command.type == pb.BaseCommand.MESSAGE]


def counts(consumer: Consumer[Subscription]) -> list[tuple[bytes, int]]:
    """Return the payloads with their redelivery counts."""
    return [
        (payload_of(tail), command.message.redelivery_count)
        for command, tail in commands(consumer)
        if command.type == pb.BaseCommand.MESSAGE
    ]
