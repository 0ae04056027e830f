"""Message TTL: what is too old may be missing from a subscription, and nothing else.

A producer goes on; the consumer of one subscription comes and goes, and acknowledges some of what it gets. What holds:
- OnlyTheExpiredIsMissing: a confirmed message between two that one consumer gets in turn was older than the TTL.
- TheExpiredIsGone: in a healed system a subscription that was left alone delivers nothing that is long too old.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any, ClassVar

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place, message, require
from simulation.common.pulsar_client import Connection
from simulation.life.part import SKEW_MS, SLACK_S, Arriving, Part, receipts

SUBSCRIPTION = "late"


class ExpiryModel:
    """Confirmed messages of a topic, and gaps in what consumers of one subscription got (pure)."""

    def __init__(self, ttl_s: int) -> None:
        self.ttl_ms = 1000 * ttl_s
        self.published: dict[Place, int] = {}
        """Publish times of confirmed messages."""
        self._gaps: list[tuple[Place, Place, int]] = []
        """Between which places nothing was delivered, and when."""

    def confirmed(self, place: Place, publish_ms: int) -> None:
        self.published[place] = publish_ms

    def gap(self, after: Place, before: Place, now_ms: int) -> None:
        """Note that a consumer got nothing between two places at a time, neither of them included."""
        self._gaps.append((after, before, now_ms))

    def check(self) -> int:
        """Check all gaps; return how many messages were missing."""
        places = sorted(self.published)
        missing: set[Place] = set()
        for after, before, now_ms in self._gaps:
            for place in places[bisect_right(places, after) : bisect_left(places, before)]:
                missing.add(place)
                age_ms = now_ms - self.published[place]
                require(
                    age_ms >= self.ttl_ms - SKEW_MS,
                    "OnlyTheExpiredIsMissing",
                    f"{place} was passed over when it was {age_ms} ms old; the TTL is {self.ttl_ms} ms",
                )
        return len(missing)


class Expiring(Part):
    name = "expiring"
    keys: ClassVar[Mapping[str, object]] = {"messageExpiryCheckIntervalInMinutes": 0.02}

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.ttl_s = self.rng.choice((1, 2, 4))
        self.model = ExpiryModel(self.ttl_s)
        self.acked: Place = (-1, -1)
        """End of what acknowledgements were sent for, answered or not."""
        self.subscribed = trio.Event()
        self.away = trio.Event()
        """Set when the consumer that comes and goes does so no more."""

    @property
    def policies(self) -> Mapping[str, Any]:
        return {"message_ttl_in_seconds": self.ttl_s}

    def start(self) -> None:
        self.run("producer", self.topic("e"), self._produce)
        self.run("consumer", self.topic("e"), self._come_and_go)

    async def _produce(self, world: World, connection: Connection) -> None:
        await self.subscribed.wait()
        await connection.producer(self.topic("e"), 1, "p")
        number = 0
        while not self.finished.is_set():
            publish_ms = world.clock.wall_ms()
            connection.publish(1, "p", number, [("k", message("p", number))])
            receipt = (await receipts(connection, 1))[0]
            self.model.confirmed((receipt.message_id.ledgerId, receipt.message_id.entryId), publish_ms)
            number += 1
            await trio.sleep(world.rng.uniform(0.02, 0.3))
        await trio.sleep_forever()

    async def _come_and_go(self, world: World, connection: Connection) -> None:
        """Be away for a while, then take some messages and acknowledge them."""
        rng = world.rng
        if self.subscribed.is_set():
            await trio.sleep(rng.uniform(0, 3 * self.ttl_s))
        if self.away.is_set():
            await trio.sleep_forever()
        await connection.subscribe(self.topic("e"), SUBSCRIPTION, 1, pb.CommandSubscribe.Exclusive)
        self.subscribed.set()
        await self._take(world, connection, rng.uniform(0.1, 3), rng.randrange(1, 30))
        await connection.close_consumer(1)

    async def _take(self, world: World, connection: Connection, seconds: float, permits: int) -> list[int]:
        """Take messages for so long, and acknowledge them; return the ages in ms of those that were delivered."""
        ages: list[int] = []
        last = self.acked
        connection.flow(1, permits)
        with trio.move_on_after(seconds):
            async for got in Arriving(connection, quiet_s=1e6):
                place, now_ms = (got.ledger_id, got.entry_id), world.clock.wall_ms()
                if place > last:
                    self.model.gap(last, place, now_ms)
                    last = place
                ages.append(now_ms - got.publish_ms)
                self.counts["delivered"] += 1
        if last > self.acked and world.rng.random() < 0.7:
            self.acked = last
            await connection.ack(1, [last], cumulative=True)
        return ages

    async def settle(self) -> None:
        self.away.set()
        await trio.sleep(3 * self.ttl_s + self.ttl_s + SLACK_S)
        topic, stopped = self.topic("e"), trio.Event()

        async def come_back(world: World, connection: Connection) -> None:
            await connection.subscribe(topic, SUBSCRIPTION, 1, pb.CommandSubscribe.Exclusive)
            begun_ms = world.clock.wall_ms()
            ages = await self._take(world, connection, 4.0, 1_000_000)
            limit_ms = self.model.ttl_ms + 1000 * SLACK_S
            self.require(
                max(ages, default=0) <= limit_ms, "TheExpiredIsGone", f"a message of {max(ages, default=0)} ms came"
            )
            ended_ms = world.clock.wall_ms()
            fresh = [place for place, at_ms in self.model.published.items() if begun_ms <= at_ms < ended_ms - 1000]
            missing = len(fresh) - len(ages)
            self.require(missing <= 0, "OnlyTheExpiredIsMissing", f"{missing} of {len(fresh)} did not come")
            stopped.set()

        await self.once("returner", topic, come_back)
        self.finished.set()
        self.counts["expired"] = self.model.check()
