"""Clients of a simulated cluster: each asks any broker for its topic's owner, and connects to that one.

These are written for the simulator; those of quire.client are in `own_clients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import trio

from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place, TopicHistory
from simulation.common.pulsar_client import ClientError, Connection
from simulation.standalone.clients import Clients

LOOKUP_S = 25.0
"""Virtual seconds for a lookup with its redirects. Brokers hold it until there is an owner."""
CONNECT_S = 3.0
REDIRECTS_MAX = 5


@dataclass
class ClusterClients(Clients):
    """All clients of one history."""

    slowdown: float = 10.0
    brokers: Sequence[str] = ()
    """Hosts of the clients."""
    lookups: int = 0
    redirects: int = 0
    front: str | None = None
    """The single broker that all clients ask, as with a service URL of one address; None: any."""
    own_front: str | None = None
    """The same for clients of quire.client, which keep their first addresses."""
    asking: dict[object, tuple[str, str, float]] = field(default_factory=dict)
    """Lookups under way: topic, asked broker, start time."""
    _settled: dict[tuple[str, str], dict[str, set[Place]]] = field(default_factory=dict)
    """By broker and topic, by subscription: acknowledgements that were answered before the broker began to load the
    topic, or answered by it since."""

    def topic_loading(self, broker: str, history: TopicHistory) -> None:
        """Note that a broker begins to load a topic.

        A broker that has lost it unknowingly may deliver what others have acknowledged since; one that loads it may
        not."""
        self._settled[broker, history.topic] = {
            name: set(seen.answered) for name, seen in history.subscriptions.items()
        }

    def settled(self, history: TopicHistory, subscription: str, connection: Connection) -> set[Place]:
        return set(self._settled[connection.host, history.topic].get(subscription, ()))

    def answered(self, history: TopicHistory, subscription: str, connection: Connection, places: set[Place]) -> None:
        super().answered(history, subscription, connection, places)
        self._settled[connection.host, history.topic].setdefault(subscription, set()).update(places)

    async def connect(self, world: World, nursery: trio.Nursery, name: str, topic: str) -> Connection:
        broker = self.front or world.rng.choice(self.brokers)
        authoritative = False
        for _ in range(REDIRECTS_MAX):
            connection = await self._reach(world, nursery, name, broker)
            question = object()
            self.asking[question] = topic, broker, trio.current_time()
            try:
                with trio.move_on_after(LOOKUP_S) as late:
                    found = await connection.lookup(topic, authoritative=authoritative)
            finally:
                del self.asking[question]
            if late.cancelled_caught:
                break
            self.lookups += 1
            owner = urlsplit(found.brokerServiceUrl).hostname or ""
            if found.response == pb.CommandLookupTopicResponse.Connect and owner == broker:
                return connection
            connection.close()
            if found.response == pb.CommandLookupTopicResponse.Connect:
                return await self._reach(world, nursery, name, owner)
            self.redirects += 1
            broker, authoritative = owner, found.authoritative
        connection.close()
        raise ClientError(f"the lookup of {topic} leads nowhere")

    async def _reach(self, world: World, nursery: trio.Nursery, name: str, broker: str) -> Connection:
        with trio.move_on_after(CONNECT_S):
            return await self.open(world, nursery, name, broker)
        raise ClientError(f"{broker} does not answer")
