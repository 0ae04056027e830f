"""The nemesis of a whole cluster: beside the faults of any cluster, a permanently lost bookie, brokers that pause for
longer than their sessions last, and operators who unload and split bundles meanwhile. Excluded are losses that no
cluster could survive: a second bookie lost, or the last one that could take the place of the first, or one while others
lie.
"""

from __future__ import annotations

from functools import partial

import trio

from broker.ownership.bundles import Bundle
from broker.ownership.namespaces import heartbeat_broker
from broker.ownership.ownership import Ownership
from simulation.cluster.hosts import BrokerNode
from simulation.cluster.record import ClusterRecord
from simulation.common.nodes import BookieNode
from simulation.ledger.flips import FlippingNemesis

BUNDLES_MAX = 8


class ClusterNemesis(FlippingNemesis):
    """Nemesis of one history of a cluster."""

    def __init__(self, story: ClusterRecord) -> None:
        super().__init__(story)
        self.story: ClusterRecord = story
        self._acts |= {
            "lost bookie": self._lose_bookie,
            "sleeping owner": self._sleep,
            "late owner": self._overtake,
            "failover": self._fail_over,
            "client crash": self._crash_client,
            "unload": self._unload,
            "split": self._split,
        }

    def _pair(self) -> tuple[str, str]:
        """Return a client of bookies and a bookie, or a client of brokers and a broker, or two brokers."""
        rng, story = self.rng, self.story
        brokers = [node.name for node in story.brokers]
        chosen = rng.random()
        if chosen < 0.4:
            return super()._pair()
        if chosen < 0.9:
            return rng.choice(story.users.names), rng.choice(brokers)
        one, other = rng.sample(brokers, 2)
        return one, other

    async def _lose_bookie(self) -> bool:
        """Destroy a bookie's disk, once, and only while others can take its place."""
        story = self.story
        living = [node for node in self._nodes() if isinstance(node, BookieNode)]
        if story.lost is not None or self._down or len(story.bookies) <= story.swarm.quorums[0] or not living:
            return False
        node = self.rng.choice(living)
        story.lost = node
        story.lost_at = trio.current_time()
        await node.crash()
        self.note("lost bookie", host=node.name, bookie=node.id)
        return True

    async def _sleep(self) -> bool:
        """Pause a broker that has bundles for longer than its session lasts."""
        node = self._owner()
        if node is None:
            return False
        with self._taken(node):
            seconds = self._past_session()
            self.note("sleeping owner", host=node.name, seconds=round(seconds, 3))
            node.pause()
            await trio.sleep(self.rng.uniform(0.0, seconds))
            self._send_away(node)
            await trio.sleep(seconds)
            node.host.resume()
            if self.rng.random() < 0.5:
                await trio.sleep(self.rng.uniform(0.0, 1.0))  # it resumes, and cannot know yet
            node.mend_metadata()
            self.story.tell(node.name, "HostResumed")
        return True

    async def _overtake(self) -> bool:
        """Expire the session of a broker that has bundles, delay its requests to bookies, and move some of its
        clients."""
        rng, story = self.rng, self.story
        node = self._owner()
        if node is None:
            return False
        lags = [(node.name, bookie.name, rng.choice((0.0, 0.05, 0.3, 1.5))) for bookie in story.bookies]
        self.note("late owner", host=node.name, lags=" ".join(f"{bookie}:{seconds}" for _, bookie, seconds in lags))
        for source, target, seconds in lags:
            self.network.lag(source, target, seconds)
        node.cut_metadata()
        if node.metadata is not None:
            node.metadata.expire()
        await trio.sleep(rng.uniform(0.0, 0.1))
        self._send_away(node)
        await trio.sleep(self._past_session())
        for source, target, _ in lags:
            self.network.lag(source, target, 0.0)
        node.mend_metadata()
        return True

    async def _fail_over(self) -> bool:
        """Crash a broker that has bundles, and keep it down until others have them."""
        node = self._owner()
        if node is None:
            return False
        with self._taken(node):
            self.note("failover", host=node.name)
            await node.crash()
            await trio.sleep(self._past_session())
            await self._come_back(node)
        return True

    async def _crash_client(self) -> bool:
        """Crash a client that produces or consumes, and restart it."""
        host = self.story.universe.host(self.rng.choice(self.story.users.names))
        self.note("client crash", host=host.name)
        await host.crash()
        await host.restart()
        return True

    async def restart_brokers(self, session_s: float) -> None:
        """Kill all brokers while the metadata service is unreachable to them, and start them when it is back.

        Their former sessions live for `session_s` more, as after a restart of the service. Returns when all are
        ready."""
        self.note("brokers anew", hosts=" ".join(node.name for node in self.story.brokers))
        with self._harming():
            await self._restart_brokers(session_s)

    async def _restart_brokers(self, session_s: float) -> None:
        story = self.story
        for node in story.brokers:
            node.cut_metadata()
        await trio.sleep(self.rng.uniform(0.0, 1.0))
        for node in story.brokers:
            former = None if node.metadata is None else node.metadata.session.session
            await node.crash()
            if former is not None:
                story.tree.start_timeout(former, session_s)
        for node in self.rng.sample(story.brokers, len(story.brokers)):
            node.mend_metadata()
            await node.restart()
            await trio.sleep(self.rng.choice((0.0, self.rng.uniform(0.0, 0.1), self.rng.uniform(0.0, 2.0))))
        for node in story.brokers:
            while node.up is None:
                await trio.sleep(0.05)

    async def force_takeover(self) -> None:
        """Inject faults until a topic has moved from one broker to another."""
        while not self.story.takeovers:
            with self._harming():
                await self._fail_over()
            await trio.sleep(1.0)

    def _owner(self) -> BrokerNode | None:
        owners = [node for node in self._serving() if self._bundles(node)]
        return self.rng.choice(owners) if owners else None

    def _past_session(self) -> float:
        """Return a number of seconds longer than a session."""
        return self.story.swarm.session_timeout_s * self.rng.uniform(1.1, 2.5)

    def _send_away(self, node: BrokerNode) -> None:
        """Disconnect some clients from a broker, so that they look for another."""
        for name in self.story.users.names:
            if self.rng.random() < 0.6:
                self.network.reset(name, node.name)

    async def _unload(self) -> bool:
        found = self._any_bundle()
        if found is None:
            return False
        node, ownership, bundle = found
        others = [other.id for other in self._serving() if other is not node]
        destination = self.rng.choice([None, *others])
        self.note("unload", host=node.name, bundle=str(bundle), to=destination)
        await node.ask("unload", partial(ownership.unload, bundle, destination=destination))
        return True

    async def _split(self) -> bool:
        found = self._any_bundle()
        if found is None or len(found[1].owned()) > BUNDLES_MAX:
            return False
        node, ownership, bundle = found
        unload = self.rng.random() < 0.5
        self.note("split", host=node.name, bundle=str(bundle), unload=unload)
        await node.ask("split", partial(ownership.split, bundle, unload=unload))
        return True

    def _any_bundle(self) -> tuple[BrokerNode, Ownership, Bundle] | None:
        choices = [
            (node, node.up, bundle) for node in self._serving() if node.up is not None for bundle in self._bundles(node)
        ]
        return self.rng.choice(choices) if choices else None

    def _serving(self) -> list[BrokerNode]:
        return [node for node in self._nodes() if isinstance(node, BrokerNode) and node.up is not None]

    @staticmethod
    def _bundles(node: BrokerNode) -> list[Bundle]:
        owned = node.up.owned() if node.up is not None else []
        return [bundle for bundle in owned if heartbeat_broker(bundle.namespace) is None]
