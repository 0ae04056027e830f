"""Deduplication: a producer sends again what it may have sent, and never is a message there twice.

Each time it connects, it begins at a number that it has sent before. What holds:
- SequenceIdsAreTrue: the last sequence id of a PRODUCER_SUCCESS is one that was sent, and is not below a number with a
  receipt once the broker stores something for this producer (one that has lost the topic unknowingly may answer with
  what it knew, and stores nothing); in the end it is the last number of the log.
- NoMessageTwice: each number up to the last is in the log once, in order.
- AllAckedEntriesAreReadable: every number with a receipt is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from quire.world.doors import World
from simulation.common.checkers import message, numbered, require
from simulation.common.pulsar_client import Connection
from simulation.life.part import Part, receipts

PRODUCER = "p"
DUPLICATE = (1 << 64) - 1
"""Ledger of the receipt for a duplicate: -1."""
MESSAGES_MIN = 60


class SequenceModel:
    """Numbers of one producer: sent, answered, and told (pure)."""

    def __init__(self) -> None:
        self.sent = -1
        self.confirmed = -1
        """The last number with a receipt; all before it have one too."""
        self._told = -1
        self._confirmed_before = -1

    def connected(self, told: int) -> None:
        """Note the last sequence id of a PRODUCER_SUCCESS; -1: the topic has none."""
        require(told <= self.sent, "SequenceIdsAreTrue", f"{told} is told as stored, and {self.sent} is the last sent")
        self._told = told
        self._confirmed_before = self.confirmed

    def receipt(self, number: int, *, stored: bool) -> None:
        """Note a receipt over the newest connection: of a new entry if `stored`, else of a duplicate."""
        if stored:
            require(
                self._told >= self._confirmed_before,
                "SequenceIdsAreTrue",
                f"{self._told} is told as stored, and {self._confirmed_before} had a receipt before",
            )
            require(
                number > self._told, "NoMessageTwice", f"{number} is stored again, though {self._told} was told as last"
            )
        self.confirmed = max(self.confirmed, number)

    def check_log(self, numbers: Sequence[int]) -> None:
        """Check the numbers in the log, in its order."""
        wrong = next((place for place, number in enumerate(numbers) if number != place), None)
        if wrong is not None:
            twice = numbers[wrong] < wrong
            name = "NoMessageTwice" if twice else "NoOutOfOrderEntries"
            require(False, name, f"number {numbers[wrong]} follows {numbers[max(0, wrong - 1)]} in the log")
        lost = len(numbers) <= self.confirmed
        require(not lost, "AllAckedEntriesAreReadable", f"{self.confirmed} had a receipt; the log has {len(numbers)}")


class Deduplicating(Part):
    name = "deduplicating"

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.model = SequenceModel()
        self.window = self.rng.choice((1, 4, 12))

    @property
    def policies(self) -> Mapping[str, Any]:
        return {
            "deduplicationEnabled": True,
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        }

    def start(self) -> None:
        self.run("producer", self.topic("d"), self._produce)

    async def _produce(self, world: World, connection: Connection) -> None:
        rng, model = world.rng, self.model
        if self.finished.is_set():
            await trio.sleep_forever()
        made = await connection.producer(self.topic("d"), 1, PRODUCER)
        model.connected(made.last_sequence_id)
        number = max(0, model.confirmed + 1 - rng.choice((0, 0, 1, 4)))
        while not self.finished.is_set():
            await self._send(connection, number, rng.randrange(1, self.window + 1))
            number = model.confirmed + 1 - (1 if rng.random() < 0.2 else 0)
            await trio.sleep(rng.uniform(0, 0.3))
        await connection.close_producer(1)
        await trio.sleep_forever()

    async def _send(self, connection: Connection, first: int, count: int) -> None:
        """Send numbers from `first` on, and wait for their receipts."""
        model = self.model
        model.sent = max(model.sent, first + count - 1)
        run = [("k", message(PRODUCER, number)) for number in range(first, first + count)]
        connection.publish(1, PRODUCER, first, run)
        for expected, receipt in enumerate(await receipts(connection, count), first):
            self.require(receipt.sequence_id == expected, "NoOutOfOrderEntries", f"a receipt of {receipt.sequence_id}")
            stored = receipt.message_id.ledgerId != DUPLICATE
            model.receipt(expected, stored=stored)
            self.counts["stored" if stored else "duplicates"] += 1

    async def settle(self) -> None:
        model = self.model
        await self.until("Liveness", lambda: model.confirmed >= MESSAGES_MIN, lambda: f"{model.confirmed} confirmed")
        self.finished.set()
        await trio.sleep(1)
        found = [numbered(each.payload)[1] for each in await self.read(self.topic("d"))]
        model.check_log(found)

        async def ask(world: World, connection: Connection) -> None:
            made = await connection.producer(self.topic("d"), 1, PRODUCER)
            last = made.last_sequence_id
            self.require(last == found[-1], "SequenceIdsAreTrue", f"{last} is told as stored, the log has {found[-1]}")

        await self.once("asker", self.topic("d"), ask)
