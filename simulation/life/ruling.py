"""Policies of a topic, changed again and again by an operator: what was answered once is what holds.

They are events of the log `__change_events`, which is compacted meanwhile. What holds:
- PoliciesStay: a read finds the last value that was answered, or one that was tried after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import trio

from broker.ownership.values import Json
from broker.server import Broker
from quire.wire.pulsar.names import TopicName
from simulation.common.checkers import require
from simulation.life.part import Part

KEY = "maxUnackedMessagesOnConsumer"
TOPICS = 3
CHANGES_MIN = 20


class PolicyModel:
    """Values of one policy, in the order in which they were tried (pure)."""

    def __init__(self) -> None:
        self.tried = 0
        self.answered = 0

    def check(self, found: int) -> None:
        require(self.answered <= found <= self.tried, "PoliciesStay", f"{found}, not {self.answered} to {self.tried}")


class Ruling(Part):
    name = "ruling"
    keys: ClassVar[Mapping[str, object]] = {
        "brokerServiceCompactionMonitorIntervalInSeconds": 1,
    }

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.models = [PolicyModel() for _ in range(TOPICS + 1)]
        """The last one's policy is set once, at the beginning."""
        self.log = TopicName.parse(self.topic("__change_events"))
        self.ended = trio.Event()

    @property
    def drawn_keys(self) -> Mapping[str, object]:
        return {"quireSystemTopicCompactionThresholdInBytes": self.rng.choice((700, 3000, 1 << 20))}

    def start(self) -> None:
        self.stage.universe.nursery.start_soon(self._rule, name="operator of policies")

    async def _rule(self) -> None:
        rng = self.rng
        while not await self._change(TOPICS):
            await trio.sleep(0.1)
        while not self.finished.is_set():
            number = rng.randrange(TOPICS + 1)
            if number < TOPICS and rng.random() < 0.8:
                await self._change(number)
            else:
                await self._check(number)
            await trio.sleep(rng.uniform(0, 0.8))
        self.ended.set()

    async def _change(self, number: int) -> bool:
        model = self.models[number]
        model.tried += 1
        value, name = model.tried, TopicName.parse(self.topic(f"r{number}"))

        def change(fields: Json) -> Json:
            return {**fields, KEY: value}

        async def job(broker: Broker) -> None:
            await broker.policies.update(name, change)

        changed = await self.stage.operate("change of policies", self.log, job)
        if changed:
            model.answered = value
            self.counts["changes"] += 1
        return changed

    async def _check(self, number: int) -> bool:
        name, model, found = TopicName.parse(self.topic(f"r{number}")), self.models[number], list[int]()

        async def job(broker: Broker) -> None:
            fields = await broker.policies.get(name)
            found.append(0 if fields is None else fields.get(KEY, 0))

        if await self.stage.operate("read of policies", self.log, job):
            model.check(found[-1])
            return True
        return False

    async def settle(self) -> None:
        await self.until("Liveness", lambda: self.counts["changes"] >= CHANGES_MIN, lambda: f"{dict(self.counts)}")
        self.finished.set()
        await self.ended.wait()
        for number in range(TOPICS):
            with trio.fail_after(60):
                while not (await self._change(number) and await self._check(number)):
                    await trio.sleep(0.2)
        with trio.fail_after(60):
            while not await self._check(TOPICS):
                await trio.sleep(0.2)
