"""Subscription expiry: a subscription without consumers goes in time, one that is used never does.

Messages are published first and never acknowledged. A consumer that names a subscription of before gets them again; if
it was deleted, the subscription is made anew at the end of the topic. What holds:
- OnlyUnusedSubscriptionsExpire: one with a consumer, or left for less than half of the time, is still there. (A crash
  may forget that long that it was used.)
- UnusedSubscriptionsExpire: one that was left is gone in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import message
from simulation.common.pulsar_client import Connection
from simulation.life.part import SLACK_S, Arriving, Part, receipts

LIFE_S = 60.0
MESSAGES = 5
NAMES = ("kept", "returning", "left")


class Leaving(Part):
    name = "leaving"
    keys: ClassVar[Mapping[str, object]] = {"subscriptionExpiryCheckIntervalInMinutes": 0.05}

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.made: dict[str, None] = {}
        """Subscriptions that exist before the messages."""
        self.published = trio.Event()
        self.left_at = 0.0

    @property
    def policies(self) -> Mapping[str, Any]:
        return {"subscription_expiration_time_minutes": 1}

    def start(self) -> None:
        topic = self.topic("l")
        self.run("publisher", topic, self._publish)
        self.run("keeper", topic, partial(self._use, "kept", 1e6, 0.05))
        self.run("returner", topic, partial(self._use, "returning", 4.0, 0.4 * LIFE_S))

    async def _publish(self, world: World, connection: Connection) -> None:
        topic = self.topic("l")
        for number, name in enumerate(NAMES, 1):
            if not self.published.is_set() and name not in self.made:
                await connection.subscribe(topic, name, number, pb.CommandSubscribe.Shared)
                await connection.close_consumer(number)
                self.made[name] = None
        if not self.published.is_set():
            await connection.producer(topic, 1, "p")
            connection.publish(1, "p", 0, [("k", message("p", number)) for number in range(MESSAGES)])
            await receipts(connection, MESSAGES)
            self.left_at = trio.current_time()
            self.published.set()
        await trio.sleep_forever()

    async def _use(self, name: str, here_max_s: float, away_max_s: float, world: World, connection: Connection) -> None:
        """Use a subscription for a while, and be away for a while, again and again."""
        rng = world.rng
        await self.published.wait()
        while True:
            count = await self._count(name, connection, self.expected(connection))
            self.require(count >= MESSAGES, "OnlyUnusedSubscriptionsExpire", f"{name} has only {count} messages")
            self.counts[f"{name} found"] += 1
            with trio.move_on_after(rng.uniform(0, here_max_s)):
                while True:
                    await connection.changed()
            await connection.close_consumer(1)
            await trio.sleep(rng.uniform(0, away_max_s))

    async def _count(self, name: str, connection: Connection, arriving: Arriving) -> int:
        """Return how many messages a subscription has; 0: it is new."""
        await connection.subscribe(self.topic("l"), name, 1, pb.CommandSubscribe.Shared, latest=True)
        connection.flow(1, 1000)
        found = set()
        async for got in arriving:
            found.add((got.ledger_id, got.entry_id))
            if len(found) >= MESSAGES:
                break
        return len(found)

    async def settle(self) -> None:
        await self.until("Liveness", self.published.is_set, lambda: "nothing is published")
        await trio.sleep(max(0.0, self.left_at + LIFE_S - trio.current_time()) + 2 * SLACK_S)

        async def look(world: World, connection: Connection) -> None:
            count = await self._count("left", connection, Arriving(connection, self.stage.read_s))
            self.require(count == 0, "UnusedSubscriptionsExpire", f"it was left for over a minute, and has {count}")

        await self.once("looker", self.topic("l"), look)
