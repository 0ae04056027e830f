"""Topics that are deleted: for want of use, and by force under their clients' hands.

- OnlyUnusedTopicsAreDeleted: a topic with a subscription is kept, though that has caught up and has no consumer: it
  is delivered what is published next, which a subscription that is made anew would not be.
- UnusedTopicsAreDeleted: in a healed system a topic without clients and subscriptions goes.
- TheDeletedStaysDeleted: the producers and consumers that a topic had when an operator deleted it do not make it again
  when they reconnect, whatever happens to the server: they find no topic.
- TombstonesEnd: a new client makes the topic anew, and then those of before get on, too.
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
from simulation.common.checkers import Place, message
from simulation.common.pulsar_client import ClientError, Connection
from simulation.life.part import SLACK_S, Part, receipts

ROUNDS = 4
CLIENTS = 2
RETRY_S = 1.0


class Round:
    """One topic that is used, deleted by force, and made anew."""

    def __init__(self, number: int) -> None:
        self.local = f"forced{number}"
        self.epochs = [0] * CLIENTS
        self.here: set[str] = set()
        """Clients that are connected, by their connection's last answer."""
        self.deleted = False
        """True from the answer to the deletion on, until somebody makes the topic anew."""
        self.deleting = False
        self.buried: set[str] = set()
        """Clients that the owner had when it deleted the topic; a client may still be connected to an earlier one."""
        self.over = False
        self.refused = 0


class Deleting(Part):
    name = "deleting"
    keys: ClassVar[Mapping[str, object]] = {"brokerDeleteInactiveTopicsFrequencySeconds": 1}

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.subscribed = False
        self.unacked: set[Place] = set()
        """Confirmed messages of the used topic that were never acknowledged."""
        self.round = Round(0)

    @property
    def policies(self) -> Mapping[str, Any]:
        return {
            "inactive_topic_policies": {
                "deleteWhileInactive": True,
                "maxInactiveDurationSeconds": 2,
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            },
            "retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        }

    def start(self) -> None:
        self.run("user", self.topic("used"), self._use)
        self.run("leaver", self.topic("unused"), partial(self._leave, "unused", 1e9))
        self.stage.universe.nursery.start_soon(self._rounds, name="rounds of deletion")

    # Topics without use

    async def _use(self, world: World, connection: Connection) -> None:
        """Publish to a topic with a subscription, now and then, and let the subscription catch up."""
        topic, rng = self.topic("used"), world.rng
        if not self.subscribed:
            await connection.subscribe(topic, "idle", 1, pb.CommandSubscribe.Shared)
            await connection.close_consumer(1)
            self.subscribed = True
        await connection.producer(topic, 1, "p")
        connection.publish(1, "p", 0, [("k", message("p", 0))])
        published = (await receipts(connection, 1))[0].message_id
        self.unacked.add((published.ledgerId, published.entryId))
        await connection.close_producer(1)
        await trio.sleep(rng.uniform(0, 3))
        await connection.subscribe(topic, "idle", 1, pb.CommandSubscribe.Shared, latest=True)
        connection.flow(1, 1000)
        found: set[Place] = set()
        async for got in self.expected(connection):
            found.add((got.ledger_id, got.entry_id))
            if self.unacked <= found:
                break
        lost = self.unacked - found
        self.require(not lost, "OnlyUnusedTopicsAreDeleted", f"a subscription lacks {sorted(lost)[:5]}")
        self.unacked.clear()  # from here on they may be acknowledged
        await connection.ack(1, sorted(found))
        await connection.close_consumer(1)
        self.counts["visits"] += 1
        await trio.sleep(rng.uniform(0, 8))

    async def _leave(self, local: str, away_s: float, world: World, connection: Connection) -> None:
        """Publish to a topic, and leave it."""
        await connection.producer(self.topic(local), 1, "p")
        connection.publish(1, "p", 0, [("k", message("p", 0))])
        await receipts(connection, 1)
        await trio.sleep(world.rng.uniform(0, 4))
        await connection.close_producer(1)
        await trio.sleep(away_s)

    # Topics that are deleted by force

    async def _rounds(self) -> None:
        for number in range(ROUNDS):
            self.round = made = Round(number)
            topic = self.topic(made.local)
            for client in range(CLIENTS):
                self.run(f"{made.local}-p{client}", topic, partial(self._produce, made, client))
            self.run(f"{made.local}-c", topic, partial(self._consume, made))
            await self._round(made)

    async def _round(self, made: Round) -> None:
        rng, name = self.rng, TopicName.parse(self.topic(made.local))
        while not made.deleted:
            while len(made.here) < CLIENTS + 1:
                await trio.sleep(0.05)
            await trio.sleep(rng.uniform(0, 1))
            # A deletion without an answer may be done, or not; its clients may be connected again, to a new topic.
            made.deleting = True
            if await self.stage.operate("delete by force", name, _delete(made, name)):
                made.here.clear()
                made.deleted = True
            made.deleting = False
        self.counts["deleted"] += 1
        await trio.sleep(rng.uniform(3, 10))
        if made.refused and len(made.buried) == CLIENTS + 1:
            self.require(
                not await self.stage.exists(name), "TheDeletedStaysDeleted", f"{name.full} is there after its deletion"
            )
        made.deleted = False
        await self.once("maker", name.full, self._make)
        made.over = True

    async def _make(self, world: World, connection: Connection) -> None:
        """Make the topic anew, and stay for a while."""
        await connection.producer(self.topic(self.round.local), 9, "another")
        await trio.sleep(2)

    async def _produce(self, made: Round, client: int, world: World, connection: Connection) -> None:
        name = f"{made.local}-p{client}"
        epoch = made.epochs[client]
        if await self._reaches(made, name, partial(self._connect, made, name, epoch, connection)):
            made.epochs[client] += 1
            await self._stay(made, name, connection)
            await connection.close_producer(1)
        if made.over:
            await trio.sleep_forever()
        await trio.sleep(RETRY_S)

    async def _connect(self, made: Round, name: str, epoch: int, connection: Connection) -> None:
        await connection.producer(self.topic(made.local), 1, name, epoch=epoch)

    async def _consume(self, made: Round, world: World, connection: Connection) -> None:
        name, topic = f"{made.local}-c", self.topic(made.local)

        async def subscribe() -> None:
            await connection.subscribe(topic, "forced", 1, pb.CommandSubscribe.Shared, name=name)

        if await self._reaches(made, name, subscribe):
            await self._stay(made, name, connection)
            await connection.close_consumer(1)
        if made.over:
            await trio.sleep_forever()
        await trio.sleep(RETRY_S)

    async def _stay(self, made: Round, name: str, connection: Connection) -> None:
        """Stay connected to the end of the round, or until the server ends it. Raises ClientError."""
        try:
            while not made.over and 1 not in connection.dropped:
                with trio.move_on_after(0.5):
                    await connection.changed()
        finally:
            made.here.discard(name)

    async def _reaches(self, made: Round, name: str, connect: Any) -> bool:
        """Return whether a client gets on; note what it finds."""
        was_deleted = made.deleted
        try:
            await connect()
        except ClientError as error:
            made.here.discard(name)
            if error.code == pb.TopicNotFound and made.deleted:
                made.refused += 1
                self.counts["refused"] += 1
            if error.code < 0:
                raise
            return False
        self.require(
            # A client that was not connected when the topic was deleted may make it again, for the others too.
            not (was_deleted and made.deleted and name in made.buried and len(made.buried) == CLIENTS + 1),
            "TheDeletedStaysDeleted",
            f"{name} is let on to {made.local} again",
        )
        if not made.deleting:
            made.here.add(name)
        return True

    async def settle(self) -> None:
        visits = self.counts["visits"]
        name = TopicName.parse(self.topic("unused-at-last"))
        await self.once("last leaver", name.full, partial(self._leave, "unused-at-last", 0))
        await trio.sleep(2)
        await self._gone(name)
        await self.until("Liveness", lambda: self.counts["visits"] > visits, lambda: "the used topic is not visited")

    async def _gone(self, name: TopicName) -> None:
        with trio.move_on_after(10 * SLACK_S):
            while await self.stage.exists(name):
                await trio.sleep(0.5)
            return
        self.require(False, "UnusedTopicsAreDeleted", f"{name.full} is still there")


def _delete(made: Round, name: TopicName) -> Any:
    async def job(broker: Broker) -> None:
        topic = broker.topics.find(name)
        if topic is not None:
            consumers = [each.name for found in topic.subscriptions.values() for each in found.consumers]
            made.buried = {*topic.producers, *consumers}
        await broker.administration.delete_topic(name, force=True)

    return job
