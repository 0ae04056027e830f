"""Retention by time: what was consumed stays readable for so long, and goes then.

A subscription acknowledges everything at once. What holds:
- RetainedIsReadable: a confirmed message that is younger than the retention is there.
- RetentionEnds: in the end no ledger is left whose next one began long before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place, message
from simulation.common.pulsar_client import Connection, Message
from simulation.life.part import LIVENESS_S, SKEW_MS, SLACK_S, Arriving, Part, receipts

KEPT_MS = 60_000


class Retaining(Part):
    name = "retaining"
    keys: ClassVar[Mapping[str, object]] = {"retentionCheckIntervalInSeconds": 2}

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.published: dict[Place, int] = {}
        self.begun = trio.current_time()

    @property
    def policies(self) -> Mapping[str, Any]:
        return {"retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}}

    def start(self) -> None:
        self.run("producer", self.topic("k"), self._produce)
        self.run("consumer", self.topic("k"), self._consume)

    async def _produce(self, world: World, connection: Connection) -> None:
        await connection.producer(self.topic("k"), 1, "p")
        number = 0
        while not self.finished.is_set():
            publish_ms = world.clock.wall_ms()
            connection.publish(1, "p", number, [("k", message("p", number))])
            receipt = (await receipts(connection, 1))[0]
            self.published[receipt.message_id.ledgerId, receipt.message_id.entryId] = publish_ms
            number += 1
            await trio.sleep(world.rng.uniform(0.1, 1))
        await trio.sleep_forever()

    async def _consume(self, world: World, connection: Connection) -> None:
        await connection.subscribe(self.topic("k"), "prompt", 1, pb.CommandSubscribe.Exclusive)
        connection.flow(1, 1_000_000)
        async for got in Arriving(connection, quiet_s=1e6):
            await connection.ack(1, [(got.ledger_id, got.entry_id)], cumulative=True)

    async def settle(self) -> None:
        rest_s = self.begun + KEPT_MS / 1000 + 2 * SLACK_S - trio.current_time()
        await trio.sleep(max(3 * SLACK_S, rest_s))
        self.finished.set()
        await trio.sleep(1.5)
        with trio.fail_after(LIVENESS_S):
            found, now_ms = await self._read()
        there = {(each.ledger_id, each.entry_id) for each in found}
        for place, publish_ms in self.published.items():
            age_ms = now_ms - publish_ms
            self.require(
                place in there or age_ms > KEPT_MS - SKEW_MS,
                "RetainedIsReadable",
                f"{place} is gone, {age_ms} ms after it was published",
            )
        self._check_end(found, now_ms)
        self.counts["kept"], self.counts["trimmed"] = len(found), len(self.published.keys() - there)

    async def _read(self) -> tuple[list[Message], int]:
        """Return what a reader finds, and the time before it began."""
        times: list[int] = []

        async def look(world: World, connection: Connection) -> None:
            times.append(world.clock.wall_ms())

        found = await self.read(self.topic("k"))
        await self.once("clock", self.topic("k"), look)
        return found, times[-1]

    def _check_end(self, found: Sequence[Message], now_ms: int) -> None:
        before = None
        for each in found:
            if before is not None and each.ledger_id != before:
                age_ms = now_ms - each.publish_ms
                self.require(
                    age_ms <= KEPT_MS + 2000 * SLACK_S,
                    "RetentionEnds",
                    f"ledger {before} is there, though the next one began {age_ms} ms ago",
                )
            before = each.ledger_id
