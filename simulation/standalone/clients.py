"""The clients of a standalone history: producers, consumers and a reader, each on a host of its own.

They reconnect forever. Their observations go into the `TopicHistory`, which raises at once at a violation.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place, SubscriptionHistory, TopicHistory, message, numbered, require
from simulation.common.pulsar_client import ClientError, Connection
from simulation.machines.world import Universe

KEYS = 5
QUIET_S = 10.0
"""Virtual seconds without a message after which a reader counts as complete."""
PASSING_S = 0.5
"""Time that a client which comes and goes waits for an entry."""
SKEW_MS = 100
"""Maximum difference of the clocks of two hosts."""
ORDERS: dict[int, str] = {
    pb.CommandSubscribe.Exclusive: "all",
    pb.CommandSubscribe.Failover: "all",
    pb.CommandSubscribe.Key_Shared: "key",
    pb.CommandSubscribe.Shared: "none",
}


def key_of(number: int) -> str:
    return f"k{number % KEYS}"


QUICK_ATTEMPTS = 10
"""Failed attempts to connect, one after the other, after which a client pauses for longer."""


@dataclass
class Clients:
    """All clients of one history."""

    universe: Universe
    server: str
    port: int
    sizes: Sequence[int]
    """Sizes of payloads, drawn for each message."""
    names: list[str] = field(default_factory=list)
    """Hosts of the clients, for the nemesis."""
    finish: trio.Event = field(default_factory=trio.Event)
    """Set when producers are to stop sending."""
    enough: Callable[[], bool] = lambda: False
    """Returns whether producers pause, because there are enough messages to check."""
    rest_s: float = 0.05
    """Maximum duration of such a pause."""
    idle_s: float = 5.0
    """Time without a message after which a consumer acknowledges some of what it has.

    Without it a Key_Shared consumer could hold the entries that keep a key from another consumer for ever."""
    delay_ms: Callable[[int], int] = lambda number: 0
    """Delay of a producer's message by its number; 0: none."""
    slowdown: float = 1.0
    """Factor of the longer pauses. An attempt costs as much CPU as any work: where no server answers for seconds, most
    of a history would be attempts."""
    early_ms: int = 0
    """Time by which a delayed message may be early: a tick of the broker."""
    _done: dict[str, int] = field(default_factory=dict)
    """Per producer: the number after the last one with a receipt."""

    def start(self, name: str, work: Callable[[World, Connection], Awaitable[None]], topic: str = "") -> None:
        """Connect to the topic's broker and work, again and again, on a separate host."""

        async def main(world: World, stop: trio.Event) -> None:
            failed = 0
            while True:
                failed += 1
                try:
                    async with trio.open_nursery() as nursery:
                        connection = await self.connect(world, nursery, name, topic)
                        failed = 0
                        await work(world, connection)
                        nursery.cancel_scope.cancel()
                except* (OSError, ClientError):
                    pass
                await trio.sleep(world.rng.uniform(0.005, 0.03) * (1.0 if failed < QUICK_ATTEMPTS else self.slowdown))

        self.names.append(name)
        self.universe.host(name).start(main)

    async def connect(self, world: World, nursery: trio.Nursery, name: str, topic: str) -> Connection:
        """Return a connection to the topic's broker, received from in a task of `nursery`. Raises OSError,
        ClientError."""
        return await self.open(world, nursery, name, self.server)

    async def open(self, world: World, nursery: trio.Nursery, name: str, server: str) -> Connection:
        """Return a connection to a server, after the handshake. Raises OSError, ClientError."""
        connection = await Connection.open(world, server, self.port)
        nursery.start_soon(connection.run, name=f"{name} receives")
        await connection.handshake()
        return connection

    def settled(self, history: TopicHistory, subscription: str, connection: Connection) -> set[Place]:
        """Return the entries that must not be delivered over this connection, on which the consumer was just made."""
        return set(history.subscriptions[subscription].answered)

    def answered(self, history: TopicHistory, subscription: str, connection: Connection, places: set[Place]) -> None:
        """Record an answered acknowledgement over this connection."""
        history.ack_answered(subscription, places)

    async def produce(
        self,
        history: TopicHistory,
        name: str,
        window: int,
        subscribed: Sequence[trio.Event],
        world: World,
        connection: Connection,
    ) -> None:
        """Send numbered messages, once all subscriptions exist, at most `window` of them unanswered.

        After a reconnect the messages without a receipt are sent again."""
        for each in subscribed:
            await each.wait()
        await connection.producer(history.topic, 1, name)
        done = sent = self._done.get(name, 0)
        waiting: deque[bytes] = deque()
        while not self.finish.is_set():
            if sent - done <= window // 2:
                fresh = [message(name, number, world.rng.choice(self.sizes)) for number in range(sent, done + window)]
                connection.publish(
                    1, name, sent, [(key_of(sent + i), payload) for i, payload in enumerate(fresh)], self.delay_ms
                )
                waiting += fresh
                sent += len(fresh)
            await connection.changed()
            while connection.receipts:
                receipt = connection.receipts.popleft()
                require(
                    receipt.sequence_id == done,
                    "NoOutOfOrderEntries",
                    f"{name}: receipt {receipt.sequence_id}, not {done}",
                )
                place = (receipt.message_id.ledgerId, receipt.message_id.entryId)
                self.universe.trace.event(name, "Receipt", number=done, ledger=place[0], entry=place[1])
                history.receipt(connection, name, place, waiting.popleft())
                done += 1
                self._done[name] = done
            if self.enough():
                await trio.sleep(world.rng.uniform(0, self.rest_s))
        await trio.sleep_forever()

    async def consume(
        self,
        history: TopicHistory,
        subscription: str,
        kind: int,
        subscribed: trio.Event,
        world: World,
        connection: Connection,
    ) -> None:
        """Receive messages and acknowledge them with a request id, in groups, now and then late, or cumulatively."""
        rng = world.rng
        history.subscriptions.setdefault(subscription, SubscriptionHistory(ORDERS[kind]))
        await connection.subscribe(history.topic, subscription, 1, kind)
        over = self.settled(history, subscription, connection)
        subscribed.set()
        connection.flow(1, 60)
        taken = 0
        unacked: list[Place] = []
        mine: set[Place] = set()
        ordered = ORDERS[kind] == "all"
        last: Place = (-1, -1)
        while True:
            if 1 in connection.dropped:
                raise ClientError("the server closed the consumer")
            if not connection.messages or connection.closed:
                with trio.move_on_after(self.idle_s) as idle:
                    await connection.changed()
                if idle.cancelled_caught:
                    over |= await self._ack(history, subscription, connection, unacked, rng, cumulative=ordered)
                    unacked = [each for each in unacked if each not in over]
                continue
            while connection.messages:
                _, got = connection.messages.popleft()
                place = (got.ledger_id, got.entry_id)
                self.universe.trace.event(subscription, "Delivered", ledger=place[0], entry=place[1])
                waits = bool(got.deliver_at_ms) and not ordered
                early_ms = got.deliver_at_ms - world.clock.wall_ms()
                require(
                    not waits or early_ms <= self.early_ms + SKEW_MS,
                    "DelayedIsNotEarly",
                    f"{history.topic} {subscription}: {place} is delivered {early_ms} ms before its time",
                )
                key = key_of(numbered(got.payload)[1])
                history.delivery(subscription, place, got.payload, key, done=over, delayed=waits)
                if ordered:
                    # A consumer that becomes active again receives its unacknowledged messages again.
                    again = kind == pb.CommandSubscribe.Failover and place in mine
                    require(
                        again or place > last,
                        "NoOutOfOrderEntries",
                        f"{history.topic} {subscription}: {place} after {last}",
                    )
                mine.add(place)
                last = place
                unacked.append(place)
                taken += 1
                if taken % 30 == 0:
                    connection.flow(1, 30)
            if rng.random() < 0.6:
                covered = await self._ack(history, subscription, connection, unacked, rng, cumulative=ordered)
                over |= covered
                unacked = [each for each in unacked if each not in covered]

    async def _ack(
        self,
        history: TopicHistory,
        subscription: str,
        connection: Connection,
        unacked: list[Place],
        rng: random.Random,
        *,
        cumulative: bool,
    ) -> set[Place]:
        """Acknowledge some messages; return what that covers."""
        if not unacked:
            return set()
        cumulative = cumulative and rng.random() < 0.3
        count = rng.randrange(1, len(unacked) + 1)
        group = unacked[:count] if cumulative else rng.sample(unacked, count)
        covered = set(history.up_to(group[-1]) if cumulative else group)
        history.ack_sent(subscription, covered)
        await connection.ack(1, group[-1:] if cumulative else group, cumulative=cumulative)
        self.answered(history, subscription, connection, covered)
        self.universe.trace.event(subscription, "AckAnswered", count=count, last=str(group[-1]))
        return covered

    async def come_and_go(self, topic: str, name: str, world: World, connection: Connection) -> None:
        """Subscribe, acknowledge the first entry, and unsubscribe at once or a moment later, again and again, while the
        cursor's first ledger is being made."""
        rng = world.rng
        for number in count():
            await connection.subscribe(topic, f"{name}-{number % 3}", number, pb.CommandSubscribe.Exclusive)
            connection.flow(number, 1)
            with trio.move_on_after(PASSING_S):
                while not connection.messages and not connection.closed:
                    await connection.changed()
            if connection.messages:
                _, got = connection.messages.popleft()
                connection.ack_unanswered(number, (got.ledger_id, got.entry_id))
            await trio.sleep(rng.choice((0, rng.uniform(0, 0.03))))
            await connection.unsubscribe(number)
            self.universe.trace.event(name, "Unsubscribed", number=number)
            await trio.sleep(rng.uniform(0, 0.2))

    async def read_all(self, topic: str) -> dict[Place, bytes]:
        """Read everything from the beginning, in the reader's order."""
        found: dict[Place, bytes] = {}
        done = trio.Event()

        async def work(world: World, connection: Connection) -> None:
            found.clear()
            await connection.subscribe(topic, "reader", 1, pb.CommandSubscribe.Exclusive, durable=False)
            end = await connection.last_message_id(1)
            connection.flow(1, 1_000_000)
            while not found or max(found) < end:
                with trio.move_on_after(QUIET_S) as quiet:
                    while not connection.messages:
                        await connection.changed()
                if quiet.cancelled_caught:
                    break
                while connection.messages:
                    _, got = connection.messages.popleft()
                    found[got.ledger_id, got.entry_id] = got.payload
            done.set()
            await trio.sleep_forever()

        self.start(f"reader of {topic}", work)
        await done.wait()
        return found
