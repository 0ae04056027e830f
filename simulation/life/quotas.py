"""Backlog quotas: above them producers are refused, or the oldest messages let go; below them nothing is.

A producer goes on; the consumer of one subscription is away for a while, takes everything, and is away again. What
holds, for the two policies that refuse producers:
- RefusedAboveTheQuotaOnly: a producer is refused with the error of the policy, and only while what was sent and not
  acknowledged may be near the quota.
- QuotasAreKept: in a healed system a backlog that nobody takes stops growing.
- QuotasAreLifted: when it is taken, the producer gets on.
For the third, which evicts:
- EvictionRefusesNobody: no producer is refused.
- OnlyTheOldestAreEvicted: what comes is all that was confirmed behind the first message that comes.
- QuotasAreKept: in a healed system no more than about the quota comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place, message
from simulation.common.pulsar_client import ClientError, Connection
from simulation.life.part import LIVENESS_S, SLACK_S, Arriving, Part, receipts

SUBSCRIPTION = "slow"
LIMIT = 6000
SIZE = 150
OVERHEAD = 40
"""Bytes of an entry beside its payload, at least."""
PACE_S = 0.12
TAKEN_MAX = 200
"""Messages after which a consumer acknowledges and leaves, though more may come."""
REFUSALS = {
    "producer_request_hold": pb.ProducerBlockedQuotaExceededError,
    "producer_exception": pb.ProducerBlockedQuotaExceededException,
}


class Quota(Part):
    """A namespace with one of the three policies."""

    policy: ClassVar[str]
    keys: ClassVar[Mapping[str, object]] = {"backlogQuotaCheckIntervalInSeconds": 1}

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.confirmed: dict[Place, None] = {}
        self.acked: Place = (-1, -1)
        self.sent_since = 0
        """Messages sent since the last answered acknowledgement, or after it was sent."""
        self.refused = 0
        self.subscribed = trio.Event()
        self.resting = False
        """True while the consumer stays away."""

    @property
    def policies(self) -> Mapping[str, Any]:
        quota = {"limit": LIMIT, "limitSize": LIMIT, "limitTime": -1, "policy": self.policy}
        return {
            "backlog_quota_map": {"destination_storage": quota},
            "retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        }

    def start(self) -> None:
        self.run("producer", self.topic("q"), self._produce)
        self.run("consumer", self.topic("q"), self._consume)

    async def _produce(self, world: World, connection: Connection) -> None:
        await self.subscribed.wait()
        sent = self.sent_since
        try:
            await connection.producer(self.topic("q"), 1, "p")
        except ClientError as error:
            if error.code in REFUSALS.values():
                self._refused(error.code, max(sent, self.sent_since))
                await trio.sleep(0.2)
            raise
        number = 0
        while not self.finished.is_set():
            connection.publish(1, "p", number, [("k", message("p", number, SIZE))])
            self.sent_since += 1
            receipt = (await receipts(connection, 1))[0]
            self.confirmed[receipt.message_id.ledgerId, receipt.message_id.entryId] = None
            number += 1
            await trio.sleep(world.rng.uniform(0, PACE_S))
        await trio.sleep_forever()

    def _refused(self, code: int, sent: int) -> None:
        """Check a refusal. `sent`: messages that may be behind, when it was asked for or answered."""
        self.refused += 1
        self.counts["refused"] += 1
        wanted = REFUSALS.get(self.policy)
        self.require(wanted is not None, "EvictionRefusesNobody", "a producer was refused")
        self.require(code == wanted, "RefusedAboveTheQuotaOnly", f"the error is {pb.ServerError.Name(code)}")
        if not (self.stage.single or self.healed):
            return  # by a broker that does not know yet what another one was acknowledged
        behind = sent * (2 * OVERHEAD + SIZE)
        self.require(behind >= LIMIT // 2, "RefusedAboveTheQuotaOnly", f"at most {behind} of {LIMIT} bytes are behind")

    async def _consume(self, world: World, connection: Connection) -> None:
        rng = world.rng
        if self.subscribed.is_set():
            await trio.sleep(rng.uniform(0, 8))
        while self.resting:
            await trio.sleep(0.2)
        await self._drain(connection, [])
        await connection.close_consumer(1)

    async def _drain(self, connection: Connection, found: list[Place], quiet_s: float = 2 * PACE_S) -> None:
        """Take everything and acknowledge it. `found` gets what comes."""
        await connection.subscribe(self.topic("q"), SUBSCRIPTION, 1, pb.CommandSubscribe.Exclusive)
        self.subscribed.set()
        connection.flow(1, 1_000_000)
        async for got in Arriving(connection, quiet_s):
            found.append((got.ledger_id, got.entry_id))
            if len(found) >= TAKEN_MAX or (self.resting and quiet_s < 1):
                break
        if found:
            sent = self.sent_since
            await connection.ack(1, [found[-1]], cumulative=True)
            self.acked = max(self.acked, found[-1])
            self.sent_since -= sent
            # Sent after what came, and before the acknowledgement: still behind.
            self.sent_since += len([place for place in self.confirmed if place > self.acked]) + 1
            self.counts["taken"] += len(found)

    def _behind(self) -> list[Place]:
        return sorted(place for place in self.confirmed if place > self.acked)

    async def settle(self) -> None:
        self.resting = True
        await trio.sleep(9)
        if self.policy in REFUSALS:
            await self._settle_refusing()
        else:
            await self._settle_evicting()
        self.finished.set()

    async def _settle_refusing(self) -> None:
        before = self.refused
        await self.until("QuotasAreKept", lambda: self.refused > before, lambda: f"{len(self._behind())} are behind")
        count = len(self.confirmed)
        await trio.sleep(SLACK_S)
        grown = len(self.confirmed) - count
        self.require(grown == 0, "QuotasAreKept", f"{grown} were taken of a producer above the quota")
        self.resting = False
        with trio.move_on_after(LIVENESS_S):
            while len(self.confirmed) == count:
                await trio.sleep(0.1)
        self.require(len(self.confirmed) > count, "QuotasAreLifted", "the producer is refused for ever")

    async def _settle_evicting(self) -> None:
        limit_count = LIMIT // (SIZE + OVERHEAD)
        await self.until("Liveness", lambda: len(self._behind()) > 3 * limit_count, lambda: f"{len(self._behind())}")
        self.finished.set()
        await trio.sleep(SLACK_S)
        behind, found = self._behind(), list[Place]()

        async def drain(world: World, connection: Connection) -> None:
            await self._drain(connection, found, SLACK_S)

        await self.once("drainer", self.topic("q"), drain)
        self.require(bool(found), "OnlyTheOldestAreEvicted", "everything was evicted")
        missing = set(behind) - set(found)
        self.require(
            not missing or max(missing) < found[0], "OnlyTheOldestAreEvicted", f"{sorted(missing)[-5:]} are missing"
        )
        size = len(found) * SIZE
        self.require(size <= 1.5 * LIMIT, "QuotasAreKept", f"over {size} bytes came, the quota is {LIMIT}")
        self.require(len(found) >= limit_count // 2, "OnlyTheOldestAreEvicted", f"only {len(found)} messages came")
        self.counts["evicted"] = len(missing)


class Holding(Quota):
    name = "holding"
    policy = "producer_request_hold"


class Excepting(Quota):
    name = "excepting"
    policy = "producer_exception"


class Evicting(Quota):
    name = "evicting"
    policy = "consumer_backlog_eviction"
