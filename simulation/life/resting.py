"""Topics that leave memory: idle ones by themselves, busy ones unloaded under load; the next use loads them again.

Producers, consumers and what they may observe are those of the histories without limits. What holds besides:
- EveryConfirmedEntryIsDelivered: in the end, over all loads and unloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import trio

from broker.server import Broker
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from quire.world.doors import World
from simulation.common.checkers import Place, SubscriptionHistory, TopicHistory, message, require
from simulation.common.pulsar_client import Connection
from simulation.life.part import LIVENESS_S, Arriving, Part, receipts
from simulation.standalone.clients import key_of

KINDS = (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared)
UNLOADS_MIN = 3


class Resting(Part):
    name = "resting"
    keys: ClassVar[Mapping[str, object]] = {
        "quireIdleTopicUnloadSeconds": 1,
        "brokerDeleteInactiveTopicsFrequencySeconds": 1,
    }

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.busy = TopicHistory(self.topic("busy"))
        self.idle = TopicHistory(self.topic("idle"))
        self.number = 0
        self.unloading = True

    def start(self) -> None:
        clients, busy = self.stage.clients, self.busy
        for history in (busy, self.idle):
            self.stage.follow(history)
        subscribed = [trio.Event(), trio.Event()]
        kind = self.rng.choice(KINDS)
        self.run("consumer", busy.topic, partial(clients.consume, busy, "busy", kind, subscribed[0]))
        self.run("prompt", busy.topic, partial(self._follow, subscribed[1]))
        self.run("producer", busy.topic, partial(self._produce, subscribed))
        self.run("visitor", self.idle.topic, self._visit)
        self.stage.universe.nursery.start_soon(self._unload, name="unloads under load")

    async def _follow(self, subscribed: trio.Event, world: World, connection: Connection) -> None:
        """Acknowledge every message at once, so that nothing but a message or the server's word ends a wait."""
        history = self.busy
        history.subscriptions.setdefault("prompt", SubscriptionHistory("all"))
        await connection.subscribe(history.topic, "prompt", 1, pb.CommandSubscribe.Exclusive)
        over = self.stage.clients.settled(history, "prompt", connection)
        subscribed.set()
        connection.flow(1, 1_000_000)
        async for got in Arriving(connection, quiet_s=1e6):
            place = (got.ledger_id, got.entry_id)
            history.delivery("prompt", place, got.payload, done=over)
            history.ack_sent("prompt", [place])
            await connection.ack(1, [place])
            self.stage.clients.answered(history, "prompt", connection, {place})

    async def _produce(self, subscribed: list[trio.Event], world: World, connection: Connection) -> None:
        for each in subscribed:
            await each.wait()
        await connection.producer(self.busy.topic, 1, "b")
        while not self.finished.is_set():
            await self._publish(self.busy, "b", world.rng.randrange(1, 8), connection)
            await trio.sleep(world.rng.uniform(0, 0.2))
        await trio.sleep_forever()

    async def _publish(self, history: TopicHistory, name: str, count: int, connection: Connection) -> list[Place]:
        first, self.number = self.number, self.number + count
        run = [message(name, number) for number in range(first, first + count)]
        connection.publish(1, name, first, [(key_of(first + index), each) for index, each in enumerate(run)])
        places: list[Place] = []
        for each, payload in zip(await receipts(connection, count), run, strict=True):
            places.append((each.message_id.ledgerId, each.message_id.entryId))
            history.receipt(connection, name, places[-1], payload)
        return places

    async def _visit(self, world: World, connection: Connection) -> None:
        """Publish some messages, take and acknowledge all there are, leave, and be away for a while."""
        history, rng = self.idle, world.rng
        history.subscriptions.setdefault("idle", SubscriptionHistory())
        await connection.subscribe(history.topic, "idle", 1, pb.CommandSubscribe.Shared)
        over = self.stage.clients.settled(history, "idle", connection)
        await connection.producer(history.topic, 1, "i")
        connection.flow(1, 1000)
        await self._publish(history, "i", rng.randrange(1, 4), connection)
        taken: list[Place] = []
        async for got in Arriving(connection, quiet_s=0.3):
            place = (got.ledger_id, got.entry_id)
            history.delivery("idle", place, got.payload, done=over)
            taken.append(place)
        if taken:
            history.ack_sent("idle", taken)
            await connection.ack(1, taken)
            self.stage.clients.answered(history, "idle", connection, set(taken))
        await connection.close_consumer(1)
        await connection.close_producer(1)
        self.counts["visits"] += 1
        await trio.sleep(rng.uniform(0, 5))

    async def _unload(self) -> None:
        """Unload the busy topic again and again."""
        name = TopicName.parse(self.busy.topic)
        while self.unloading:
            await trio.sleep(self.rng.uniform(0.2, 3))
            self.counts["unloads"] += await self.stage.operate("unload", name, _unloaded(name))

    async def settle(self) -> None:
        await self.until("Liveness", lambda: self.counts["unloads"] >= UNLOADS_MIN, lambda: "the topic is not unloaded")
        self.unloading = False
        self.finished.set()
        with trio.move_on_after(LIVENESS_S):
            while self.busy.undelivered() or self.idle.undelivered():
                await trio.sleep(0.1)
        for history in (self.busy, self.idle):
            withheld = history.undelivered()
            require(not withheld, "EveryConfirmedEntryIsDelivered", f"{history.topic}: {withheld[:5]} are withheld")


def _unloaded(name: TopicName) -> Any:
    async def job(broker: Broker) -> None:
        topic = broker.topics.find(name)
        if topic is not None:
            broker.topics.close_soon(topic)

    return job
