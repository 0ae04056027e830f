"""Clients of a cluster that move messages from one topic to another in transactions, amid all faults of the history.

Each mover has connections to the owners of its coordinator, of the source and of the sink, which may be three brokers.
In the end everything is moved. What holds:
- AllOrNothing: the sink has each message of the source exactly once, whatever was aborted, left, or cut by a fault.
- NobodyWaitsForEver: every message of the source is moved within a bounded time after the last fault.

All draws are from streams of its own, so that histories without transactions stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from broker.transactions.txn_id import COORDINATORS
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.cluster.clients import ClusterClients
from simulation.common.checkers import Place, require
from simulation.common.moving import Sink
from simulation.common.pulsar_client import ClientError, Connection
from simulation.common.transactions import (
    acknowledge,
    begin,
    compaction_keys,
    connect,
    end,
    name_participants,
    produce,
    send,
)

SOURCE = "persistent://public/default/source"
SINK = "persistent://public/default/sink"
SUBSCRIPTION = "movers"
KEEPER = "keeper"
"""Subscription that acknowledges nothing, so that nothing is trimmed before it is compared."""
MESSAGES = 40
MOVERS = 2
LIVENESS_S = 200.0
"""Virtual seconds in which a healed cluster moves what is left."""
QUIET_S = 0.5
"""Time without a message after which a mover ends its transaction with what it has."""
PACE_S = 0.6
"""Longest pause of the feeder between two messages."""


class Movers:
    """The movers of one history, and what they are checked by."""

    def __init__(self, users: ClusterClients) -> None:
        self._users = users
        rng = users.universe.derive("movers")
        self.kind = rng.choice((pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared))
        self.per_txn = rng.choice((1, 3, 8))
        self.snapshot_count: int = rng.choice((1, 3, 1000))
        self._compaction = compaction_keys(users.universe.derive("compaction"))
        self.outcomes: Counter[str] = Counter()
        """Ends of transactions, as their clients saw them."""
        self._published = 0
        self._ready = trio.Event()
        self._fed = trio.Event()
        """Set when every message is published."""
        self._sink = Sink(SINK)

    @property
    def keys(self) -> dict[str, object]:
        """Return keys of the brokers' configuration."""
        return {
            "transactionCoordinatorEnabled": "true",
            "transactionBufferSnapshotMaxTransactionCount": self.snapshot_count,
            **self._compaction,
        }

    def start(self) -> None:
        self._users.start("feeder", self._feed, SOURCE)
        for number in range(MOVERS):
            name = f"mover-{number}"
            self._users.start(name, partial(self._move, name), SOURCE)

    async def _feed(self, world: World, connection: Connection) -> None:
        """Publish the messages one by one; one without a receipt may be there twice, and counts as two."""
        for topic, names in ((SOURCE, (SUBSCRIPTION, KEEPER)), (SINK, (KEEPER,))):
            async with trio.open_nursery() as nursery:
                owner = await self._users.connect(world, nursery, "feeder", topic)
                for number, name in enumerate(names, 1):
                    await owner.subscribe(topic, name, number, self.kind)
                    await owner.close_consumer(number)
                nursery.cancel_scope.cancel()
        self._ready.set()
        await connection.producer(SOURCE, 1, "feeder")
        while self._published < MESSAGES:
            number = self._published
            connection.publish(1, "feeder", number, [(f"k{number % 5}", b"m%d" % number)])
            while not connection.receipts:
                await connection.changed()
            connection.receipts.popleft()
            self._published += 1
            await trio.sleep(world.rng.uniform(0, PACE_S))
        self._fed.set()
        await trio.sleep_forever()

    async def _move(self, name: str, world: World, source: Connection) -> None:
        """Move messages in transactions, until a connection breaks."""
        await self._ready.wait()
        async with trio.open_nursery() as nursery:
            coordinator = await self._users.connect(world, nursery, name, COORDINATORS.with_partition(0).full)
            sink = await self._users.connect(world, nursery, name, SINK)
            await connect(coordinator, 0)
            await produce(sink, SINK, name)
            await source.subscribe(SOURCE, SUBSCRIPTION, 1, self.kind)
            source.flow(1, 1000)
            sent = 0
            while True:
                while not source.messages:
                    await self._arrival(source)
                sent = await self._transaction(name, world, coordinator, source, sink, sent)

    async def _transaction(
        self, name: str, world: World, coordinator: Connection, source: Connection, sink: Connection, sent: int
    ) -> int:
        """Move some messages; return how many were sent in all."""
        rng = world.rng
        txn = await begin(coordinator, 0, rng.choice((500, 3000, 10_000)))
        await name_participants(coordinator, txn, SINK, SOURCE, SUBSCRIPTION)
        for _ in range(self.per_txn):
            with trio.move_on_after(QUIET_S) as quiet:
                while not source.messages:
                    await self._arrival(source)
            if quiet.cancelled_caught:
                break
            _, message = source.messages.popleft()
            place = (message.ledger_id, message.entry_id)
            send(world, sink, name, sent, txn, b"%d:%d" % place)
            sent += 1
            await acknowledge(source, txn, place)
        while len(sink.receipts) < sent:
            await sink.changed()
        outcome = rng.choices(("commit", "abort", "left"), (8, 2, 1))[0]
        if outcome != "left":
            await end(coordinator, txn, commit=outcome == "commit")
        self.outcomes[outcome] += 1
        return sent

    @staticmethod
    async def _arrival(source: Connection) -> None:
        if 1 in source.dropped:
            raise ClientError("the server closed the consumer")
        await source.changed()

    async def _watch(self, world: World, connection: Connection) -> None:
        await self._sink.read(connection, self._arrival)

    async def finish(self, read_all: Callable[[str], Awaitable[dict[Place, bytes]]]) -> None:
        """Wait until a healed cluster has moved everything. `read_all`: reads a whole topic. Raises ViolationError."""
        with trio.move_on_after(LIVENESS_S):
            await self._fed.wait()
        require(self._published == MESSAGES, "Liveness", f"{self._published} of {MESSAGES} are published")
        source = await read_all(SOURCE)
        self._users.start("reader of the sink", self._watch, SINK)
        await self._sink.settle(source, liveness_s=LIVENESS_S, quiet_s=QUIET_S)
