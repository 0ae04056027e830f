"""A cluster as the parts of `simulation.life` use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import trio

from broker.server import Broker
from managed_ledger.stored_list import log_path
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.pulsar.names import TopicName
from simulation.cluster.clients import ClusterClients
from simulation.cluster.hosts import BrokerNode
from simulation.cluster.swarm import ClusterSwarm
from simulation.common.checkers import TopicHistory
from simulation.common.explained import Explained
from simulation.common.nemesis import Nemesis
from simulation.common.operating import operate, serves
from simulation.life.patience import delivery_bound_s, read_bound_s
from simulation.machines.world import Universe


class StagedCluster(Protocol):
    """History of a cluster that has parts."""

    universe: Universe
    swarm: ClusterSwarm
    users: ClusterClients
    nemesis: Nemesis
    watched: dict[str, TopicHistory]
    explained: Explained

    @property
    def tree(self) -> MemoryTree: ...

    @property
    def brokers(self) -> Sequence[BrokerNode]: ...

    def tell(self, host: str, name: str, /, **fields: object) -> None: ...


class ClusterStage:
    """`Stage` of a cluster."""

    single = False

    def __init__(self, story: StagedCluster) -> None:
        self.universe = story.universe
        self._story = story
        self._rng = story.universe.derive("operators")
        swarm = story.swarm
        client = swarm.broker_config("", {}).ledger_client.client
        copies = swarm.quorums[1]
        self.read_s = read_bound_s(client, copies=copies, metadata_latency_max_s=swarm.latency_max_s)
        self.lost_s = delivery_bound_s(self.read_s)

    @property
    def clients(self) -> ClusterClients:
        return self._story.users

    def tell(self, host: str, name: str, /, **fields: object) -> None:
        self._story.tell(host, name, **fields)

    @property
    def calm_since(self) -> float:
        return self._story.nemesis.calm_since

    def follow(self, history: TopicHistory) -> None:
        self._story.watched[history.topic] = history

    @property
    def _running(self) -> Mapping[str, Broker]:
        """Return the brokers that serve, by host."""
        known = self._story.explained.brokers
        return {node.name: known[node.name] for node in self._story.brokers if node.up is not None}

    async def operate(self, what: str, topic: TopicName, job: Callable[[Broker], Awaitable[None]]) -> bool:
        """Ask a broker that serves the topic, or any of them, which takes it if nobody has it."""
        running = self._running
        if not running:
            return False
        host = next((name for name, broker in running.items() if serves(broker, topic)), "")
        host = host or self._rng.choice(list(running))
        node = next(each for each in self._story.brokers if each.name == host)
        incarnation = node.host.incarnation

        def is_up() -> bool:
            return node.host.running and node.host.incarnation == incarnation

        def failed(error: BaseException) -> None:
            self.tell(host, "Failed", work=what, error=f"{type(error).__name__}: {error}")

        async def at_owner(broker: Broker) -> None:
            await broker.ownership.lookup(topic, authoritative=True)
            await job(broker)

        return await operate(host, is_up, partial(at_owner, running[host]), failed, what)

    async def exists(self, topic: TopicName) -> bool:
        await trio.lowlevel.checkpoint()
        return await MemoryStore(self._story.tree).get(log_path(topic.managed_ledger_path)) is not None
