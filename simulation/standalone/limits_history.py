"""Limits provoked and removed: rates of publishing, delivery and subscribing, and backlog quotas.

A round has a topic of its own, and a policy with a small limit, which an operator sets. Clients use the topic until
messages wait for longer than BOUND_S. Then somebody asks why, and removes what is named, and nothing else: the policy,
or what keeps the quota; or waits for as long as is told, if the cause ends by itself. Messages must flow then
(RemovedCausesLetMessagesFlow). The server is killed between now and then; a round that is cut off begins anew, on
another topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from broker.explain import causes
from broker.explain.causes import Cause, Explanation
from broker.ownership.values import Json
from broker.server import Broker
from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE, StandaloneConfig
from quire.servers.standalone.process import run_standalone
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from quire.world.doors import World
from simulation.common.checkers import ViolationError, require
from simulation.common.explained import Explained, explanations_checked
from simulation.common.histories import watched
from simulation.common.operating import operate
from simulation.common.pulsar_client import ClientError, Connection
from simulation.machines.world import Universe, run

SERVER = "server"
PORT = 6650
ROUNDS = 8
BOUND_S = 1.0
"""Virtual seconds after which somebody asks."""
FLOW_S = 4.0
"""Virtual seconds in which messages must flow after the cause was removed."""
PERIOD_S = 15
MESSAGES = 12
SIZE = 200
QUOTA = 1000
BLOCKED = (pb.ProducerBlockedQuotaExceededError, pb.ProducerBlockedQuotaExceededException)
HISTORY_S = 5000.0
SUBSCRIPTION = "s"

_DISPATCH = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": PERIOD_S}
_QUOTA = {"limit": QUOTA, "limitSize": QUOTA, "limitTime": -1}


def _quota(policy: str) -> dict[str, Any]:
    return {"destination_storage": {**_QUOTA, "policy": policy}}


KINDS: tuple[tuple[Cause, str, Any], ...] = (
    (causes.DISPATCH_RATE, "dispatchRate", _DISPATCH),
    (causes.DISPATCH_RATE, "subscriptionDispatchRate", _DISPATCH),
    (causes.PUBLISH_RATE, "publishRate", {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}),
    (causes.SUBSCRIBE_RATE, "subscribeRate", {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": PERIOD_S}),
    (causes.BACKLOG_QUOTA, "backLogQuotaMap", _quota("producer_request_hold")),
    (causes.BACKLOG_QUOTA, "backLogQuotaMap", _quota("producer_exception")),
)
"""Causes, and the policies of a topic that provoke them."""


@dataclass(frozen=True, slots=True)
class LimitsSummary:
    """Summary of one history."""

    seed: int
    digest: str
    crashes: int
    causes: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {ROUNDS} rounds, {self.crashes} crashes, causes removed: {self.causes},"
            f" digest {self.digest[:16]}"
        )


class LimitsStory:
    """One run of the history."""

    def __init__(self, universe: Universe, explained: Explained) -> None:
        self.universe = universe
        self.explained = explained
        self.rng = universe.derive("story")
        self.server = universe.host(SERVER)
        self.ready = trio.Event()
        self.over = trio.Event()
        self.removed: Counter[str] = Counter()
        rng = self.rng
        self.config: StandaloneConfig = STANDALONE.build(
            {
                "brokerServicePort": PORT,
                "bindAddress": SERVER,
                "managedLedgerMaxEntriesPerLedger": rng.choice((5, 50_000)),
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
                "backlogQuotaCheckIntervalInSeconds": 1,
                "keepAliveIntervalSeconds": 2,
                "journalMaxSizeMB": 1,
                "journalPreAllocSizeMB": 1,
                "dbStorage_writeCacheMaxSizeMb": 2,
                "dbStorage_readAheadCacheMaxSizeMb": 1,
                "logSizeLimit": 1 << 20,
                "managedLedgerCacheSizeMB": rng.choice((0, 16)),
                "dispatcherMaxReadBatchSize": rng.choice((3, 1000)),
                "dispatchThrottlingOnNonBacklogConsumerEnabled": rng.choice(("true", "false")),
            }
        )

    async def serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self.ready.set()

        await run_standalone(world, self.config, data_dir="/data", ready=ready, stop=stop, http=False)

    # The client, who is the operator too

    async def user(self, world: World, stop: trio.Event) -> None:
        number = tries = 0
        while number < ROUNDS:
            tries += 1
            try:
                async with trio.open_nursery() as nursery:
                    connection = await Connection.open(world, SERVER, PORT)
                    nursery.start_soon(connection.run, name="user receives")
                    await connection.handshake()
                    await self._round(f"persistent://public/default/t{tries}", connection, world)
                    number += 1
                    nursery.cancel_scope.cancel()
            except* (OSError, ClientError):
                await trio.sleep(0.05)
        self.over.set()
        await trio.sleep_forever()

    async def _round(self, topic: str, connection: Connection, world: World) -> None:
        cause, key, value = self.rng.choice(KINDS)
        kind = self.rng.choice((pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared))
        self.universe.trace.event("user", "Round", topic=topic, cause=cause.code, policy=key)
        await self._set(topic, key, value)
        await connection.subscribe(topic, SUBSCRIPTION, 1, kind)
        if cause is causes.DISPATCH_RATE:
            await self._delivery(topic, key, connection)
        elif cause is causes.PUBLISH_RATE:
            await self._publishing(topic, key, connection)
        elif cause is causes.SUBSCRIBE_RATE:
            await self._subscribing(topic, key, kind, connection)
        else:
            await self._filling(topic, key, value, connection)
        self.removed[cause.code] += 1

    async def _delivery(self, topic: str, key: str, connection: Connection) -> None:
        await self._publish(topic, connection, MESSAGES)
        connection.flow(1, 1000)
        await trio.sleep(BOUND_S)
        found = len(connection.messages)
        if found == MESSAGES:
            return  # not limited without a backlog, if the configuration says so
        answer = self._told(topic, connection, causes.DISPATCH_RATE)
        await self._remove(topic, key, answer)
        await self._flows(answer, lambda: len(connection.messages) > found, connection)

    async def _publishing(self, topic: str, key: str, connection: Connection) -> None:
        await self._publish(topic, connection, MESSAGES)
        connection.publish(1, "p", MESSAGES, [("k", b"last")])
        await trio.sleep(BOUND_S)
        self._check(connection)
        if connection.receipts:
            connection.receipts.clear()
            return  # it was read together with the ones before
        answer = self._told(topic, connection, causes.PUBLISH_RATE)
        await self._remove(topic, key, answer)
        await self._flows(answer, lambda: bool(connection.receipts), connection)

    async def _subscribing(self, topic: str, key: str, kind: int, connection: Connection) -> None:
        await self._publish(topic, connection, MESSAGES)
        await connection.close_consumer(1)
        if not await self._refused(topic, kind, connection):
            return  # the period was over
        await trio.sleep(BOUND_S)
        answer = self._told(topic, connection, causes.SUBSCRIBE_RATE)
        await self._remove(topic, key, answer)
        refused = await self._refused(topic, kind, connection)
        require(not refused, "RemovedCausesLetMessagesFlow", f"{answer.sentence} A consumer is refused again.")
        connection.flow(1, 1000)
        await self._flows(answer, lambda: len(connection.messages) == MESSAGES, connection)

    async def _refused(self, topic: str, kind: int, connection: Connection) -> bool:
        """Subscribe as before; return whether that was refused."""
        try:
            await connection.subscribe(topic, SUBSCRIPTION, 1, kind)
        except ClientError as error:
            if error.code != pb.NotAllowedError:
                raise
            return True
        return False

    async def _filling(self, topic: str, key: str, value: Any, connection: Connection) -> None:
        await self._publish(topic, connection, MESSAGES)
        await connection.close_producer(1)
        wanted = BLOCKED["exception" in value["destination_storage"]["policy"]]
        require(await self._blocked(topic, connection) == wanted, "QuotasAreKept", f"{topic}: a producer is taken")
        answer = self._told(topic, connection, causes.BACKLOG_QUOTA)
        holder = answer.details["holder"]
        require(holder == SUBSCRIPTION, "ExplanationsAreTrue", f"{answer.sentence} But {holder!r} holds nothing.")
        if self.rng.random() < 0.5:
            await self._set(topic, key, None)
        else:
            connection.flow(1, 1000)
            while len(connection.messages) < MESSAGES:
                await connection.changed()
            last = connection.messages[-1][1]
            await connection.ack(1, [(last.ledger_id, last.entry_id)], cumulative=True)
        blocked = await self._blocked(topic, connection)
        require(not blocked, "RemovedCausesLetMessagesFlow", f"{answer.sentence} The producer is refused again.")

    async def _blocked(self, topic: str, connection: Connection) -> int:
        """Make a producer; return the error by which it is refused, 0 if it is not."""
        try:
            await connection.producer(topic, 1, "p")
        except ClientError as error:
            if error.code not in BLOCKED:
                raise
            return error.code
        return 0

    async def _publish(self, topic: str, connection: Connection, count: int) -> None:
        await connection.producer(topic, 1, "p")
        connection.publish(1, "p", 0, [("k", b"m" * SIZE) for _ in range(count)])
        while len(connection.receipts) < count:
            await connection.changed()
        connection.receipts.clear()

    # Asking and removing

    def _told(self, topic: str, connection: Connection, wanted: Cause) -> Explanation:
        """Return why messages of the topic wait, which has to be the cause that was provoked."""
        self._check(connection)
        broker = self.explained.brokers[SERVER]
        loaded = broker.topics.find(TopicName.parse(topic))
        if loaded is None:
            raise ClientError("the topic is being loaded")
        told = broker.explain.told
        if wanted in (causes.DISPATCH_RATE, causes.SUBSCRIBE_RATE):
            answer = told.delivery(loaded, loaded.subscriptions[SUBSCRIPTION])
        else:
            answer = told.producers(loaded)
        require(
            answer.cause is wanted,
            "WaitingMessagesHaveACause",
            f"{answer.sentence} ({answer.code}) But it is {wanted.code}.",
        )
        return answer

    async def _remove(self, topic: str, key: str, answer: Explanation) -> None:
        """Remove a rate, or wait as long as is told."""
        if self.rng.random() < 0.5:
            await self._set(topic, key, None)
            return
        wait_ms = answer.details["wait_ms"]
        assert isinstance(wait_ms, int)
        await trio.sleep(wait_ms / 1000)

    async def _flows(self, answer: Explanation, flows: Callable[[], bool], connection: Connection) -> None:
        with trio.move_on_after(FLOW_S):
            while not flows():
                await connection.changed()
            return
        raise ViolationError("RemovedCausesLetMessagesFlow", f"{answer.sentence} It was removed, and nothing flows.")

    @staticmethod
    def _check(connection: Connection) -> None:
        if connection.closed:
            raise ClientError("the server is gone")

    async def _set(self, topic: str, key: str, value: Any) -> None:
        """Set a policy of a topic, None to remove it. Raises ClientError: the server is gone."""
        name = TopicName.parse(topic)

        def change(fields: Json) -> Json:
            return {**fields, key: value}

        async def job(broker: Broker) -> None:
            await broker.policies.update(name, change)

        if not await self._operate(job):
            raise ClientError("the policy is not set")

    async def _operate(self, job: Callable[[Broker], Awaitable[None]]) -> bool:
        await self.ready.wait()
        broker, incarnation = self.explained.brokers[SERVER], self.server.incarnation

        def is_up() -> bool:
            return self.server.running and self.server.incarnation == incarnation

        def failed(error: BaseException) -> None:
            self.universe.trace.event(SERVER, "Failed", error=f"{type(error).__name__}: {error}")

        return await operate(SERVER, is_up, partial(job, broker), failed, "set a policy")

    # The run

    async def nemesis(self) -> None:
        """Kill the server a few times."""
        for _ in range(self.rng.randrange(0, 3)):
            await trio.sleep(self.rng.uniform(5, 60))
            self.ready = trio.Event()
            await self.server.crash(lose_unsynced=self.rng.random() < 0.5)
            await self.server.restart()

    async def run(self) -> LimitsSummary:
        self.server.start(self.serve)
        await self.ready.wait()
        self.universe.nursery.start_soon(self.nemesis, name="nemesis")
        self.universe.host("user").start(self.user)
        with trio.fail_after(HISTORY_S):
            await self.over.wait()
        return LimitsSummary(
            seed=self.universe.seed,
            digest=self.universe.trace.digest(),
            crashes=len(self.server.crashes),
            causes=" ".join(f"{code} {count}" for code, count in sorted(self.removed.items())),
        )


def run_limits_history(seed: int, *, lines: list[str] | None = None, steps: bool = False) -> LimitsSummary:
    """Run one history; see `run_explain_history`."""
    with watched() as log, explanations_checked() as explained:

        async def main(universe: Universe) -> LimitsSummary:
            if lines is not None:
                universe.trace.lines = lines
            return await LimitsStory(universe, explained).run()

        summary = run(seed, main, keep=lines is not None, steps=steps)
        log.check(())
        return summary
