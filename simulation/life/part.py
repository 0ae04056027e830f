"""Base of the parts: what a part has of its history, and what the history wants of a part.

A part works in a namespace of its own, whose policies it gives. Its clients are those of the history, so that a part
runs on one server and in a cluster alike. `settle` is called when all harm is over.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, ClassVar, Protocol

import trio

from broker.server import Broker
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import TopicName
from quire.world.doors import World
from simulation.common.checkers import TopicHistory, ViolationError, require
from simulation.common.pulsar_client import ClientError, Connection, Message
from simulation.machines.world import Universe
from simulation.standalone.clients import Clients

LIVENESS_S = 120.0
"""Virtual seconds in which a healed system must do what a part waits for."""
SLACK_S = 8.0
"""Virtual seconds in which a healed system must notice what is due: several rounds of its checks."""
QUIET_S = 2.0
"""Virtual seconds after which a server that nothing disturbs has delivered what there is."""
SKEW_MS = 200
"""Difference of the clocks of two hosts, and what a message may take on its way."""
PAUSE_S = 0.05

Work = Callable[[World, Connection], Awaitable[None]]


class Stage(Protocol):
    """History as its parts use it."""

    universe: Universe
    single: bool
    """True if there is one broker: none answers for a topic that it has lost unknowingly."""
    read_s: float
    """Virtual seconds without a message after which a new consumer of a healed system has received everything."""
    lost_s: float
    """Virtual seconds of calm without a message after which one that has to come counts as lost; see `patience`."""

    @property
    def calm_since(self) -> float:
        """Return the virtual time when the last fault was undone that a connection survives; infinite during one."""

    @property
    def clients(self) -> Clients: ...

    def tell(self, host: str, name: str, /, **fields: object) -> None:
        """Record an event."""

    def follow(self, history: TopicHistory) -> None:
        """Let the history know a topic whose answered acknowledgements are checked."""

    async def operate(self, what: str, topic: TopicName, job: Callable[[Broker], Awaitable[None]]) -> bool:
        """Make the broker that serves a topic do something for an operator; return whether it did."""

    async def exists(self, topic: TopicName) -> bool:
        """Return whether the metadata has the log of a topic."""


class Part(ABC):
    """A part of a history."""

    name: ClassVar[str]
    """Name of the part, and of its namespace in the tenant `public`."""
    keys: ClassVar[Mapping[str, object]] = {}
    """Keys of the brokers' configuration that it needs."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.rng: random.Random = stage.universe.derive(f"part {self.name}")
        self.counts: Counter[str] = Counter()
        """Observations, for the summary."""
        self.healed = False
        self.finished = trio.Event()
        """Set when its clients are to stop working."""
        self._asked = 0

    @property
    def policies(self) -> Mapping[str, Any]:
        """Return policies of its namespace."""
        return {}

    @property
    def drawn_keys(self) -> Mapping[str, object]:
        """Return keys of the brokers' configuration that its seed draws."""
        return {}

    def topic(self, local: str) -> str:
        return f"persistent://public/{self.name}/{local}"

    @abstractmethod
    def start(self) -> None:
        """Start its clients. The server may not serve yet."""

    @abstractmethod
    async def settle(self) -> None:
        """Check everything, after the last fault. Raises ViolationError."""

    # For the parts

    def run(self, name: str, topic: str, work: Work) -> None:
        """Run a client of a topic, which connects again whenever its connection breaks."""
        self.stage.clients.start(f"{self.name}-{name}", work, topic)

    async def once(self, name: str, topic: str, work: Work) -> None:
        """Run a client until `work` has ended once without losing its connection. Raises ViolationError: too late."""
        self._asked += 1
        done = trio.Event()

        async def until_done(world: World, connection: Connection) -> None:
            if not done.is_set():
                await work(world, connection)
                done.set()
            await trio.sleep_forever()

        self.run(f"{name}-{self._asked}", topic, until_done)
        with trio.move_on_after(LIVENESS_S):
            await done.wait()
            return
        raise ViolationError("Liveness", f"{self.name}: {name} of {topic} does not get on")

    def expected(self, connection: Connection) -> Arriving:
        """Return messages that have to come, until one counts as lost."""
        return Arriving(connection, self.stage.lost_s, lambda: self.stage.calm_since)

    async def read(self, topic: str) -> list[Message]:
        """Return all messages of a topic of a healed system, as a reader finds them."""
        found: list[Message] = []

        async def work(world: World, connection: Connection) -> None:
            found.clear()
            await connection.subscribe(topic, "reader", 1, pb.CommandSubscribe.Exclusive, durable=False)
            connection.flow(1, 1_000_000)
            async for message in Arriving(connection, self.stage.read_s):
                found.append(message)

        await self.once("reader", topic, work)
        return found

    async def until(self, name: str, reached: Callable[[], bool], problem: Callable[[], str]) -> None:
        """Wait until something is reached. Raises ViolationError with the problem, at the deadline."""
        with trio.move_on_after(LIVENESS_S):
            while not reached():
                await trio.sleep(PAUSE_S)
            return
        raise ViolationError(name, f"{self.name}: {problem()}")

    def require(self, holds: bool, name: str, details: str) -> None:
        require(holds, name, f"{self.name}: {details}")


class Arriving:
    """Messages of a consumer until none has come for `quiet_s`. Raises ClientError if the connection ends, or the
    server closes the consumer."""

    def __init__(self, connection: Connection, quiet_s: float, calm_since: Callable[[], float] = lambda: 0.0) -> None:
        """`calm_since` returns a time, infinite for none yet, before which nothing counts as quiet."""
        self._connection = connection
        self._quiet_s = quiet_s
        self._calm_since = calm_since

    def __aiter__(self) -> Arriving:
        return self

    async def __anext__(self) -> Message:
        connection = self._connection
        begun = trio.current_time()
        while not connection.messages:
            check_consumer(connection)
            now, since = trio.current_time(), self._calm_since()
            deadline = self._quiet_s + (now if since == inf else max(begun, since))
            if now >= deadline:
                raise StopAsyncIteration
            with trio.move_on_at(deadline):
                await connection.changed()
        return connection.messages.popleft()[1]


def check_consumer(connection: Connection) -> None:
    """Raise ClientError if consumer 1, or the connection, is closed."""
    if connection.closed or 1 in connection.dropped:
        raise ClientError("the consumer is closed")


async def receipts(connection: Connection, count: int) -> list[pb.CommandSendReceipt]:
    """Return the next receipts, when there are so many. Raises ClientError."""
    while len(connection.receipts) < count:
        await connection.changed()
    return [connection.receipts.popleft() for _ in range(count)]
