"""The nemesis of a simulated cluster: faults of many kinds, several at a time, each undone after a while.

Which kinds there are, and how often, is drawn by the seed. Subclasses add those that only their history knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Protocol

import trio

from quire.world.doors import World
from simulation.common.nodes import BookieNode, Cluster, Node
from simulation.machines.damage import Contents, SeenStore, bookie_contents, trial

FULL_DISK_ERRORS = ("no room", "checkpoint failed", "last checkpoint failed", "journal group not written")
"""Expected ERROR texts in the log."""
TRIALS_SHARE = 0.5
"""Fraction of killed bookies of which a damaged copy is tried."""


class Harmed(Cluster, Protocol):
    """History whose hosts are harmed."""

    @property
    def nodes(self) -> Sequence[Node]: ...

    @property
    def clients(self) -> Sequence[Node]:
        """Return the hosts with clients of bookies."""

    @property
    def bookies(self) -> Sequence[BookieNode]: ...


class Nemesis:
    """Nemesis of one history."""

    def __init__(self, story: Harmed) -> None:
        self.story = story
        self.rng = story.universe.derive("nemesis")
        self._trials = story.universe.derive("trials")
        self.done: Counter[str] = Counter()
        """Faults by kind."""
        self.network = story.universe.network
        self._down = 0
        self._busy: dict[str, None] = {}
        """Nodes harmed as a whole, at most once at a time."""
        self._planned = 1
        self._disks = story.universe.derive("full disks")
        self._fills_disks = False
        self._under_way = 0
        self._undone_at = 0.0
        self._acts: dict[str, Callable[[], Awaitable[bool]]] = {
            "crash": self._crash,
            "kill": self._kill,
            "fuse": self._fuse,
            "pause": self._pause,
            "long pause": self._long_pause,
            "partition": self._partition,
            "one-way cut": self._one_way_cut,
            "reset": self._reset,
            "lost messages": self._lose,
            "late messages": self._late,
            "slow disk": self._slow_disk,
            "session expiry": self._expire,
            "metadata cut": self._cut_metadata,
        }

    def fill_disks(self) -> None:
        """Fill disks of bookies now and then, beside the drawn faults. Call before the history begins."""
        self._fills_disks = True
        for bookie in self.story.bookies:
            bookie.config = replace(bookie.config, disk_reserve_mb=self._disks.choice((0, 1, 1, 64)))

    @property
    def total(self) -> int:
        return sum(self.done.values())

    @property
    def calm_since(self) -> float:
        """Return the virtual time when the last fault was undone; infinite while one is under way."""
        return inf if self._under_way else self._undone_at

    @contextmanager
    def _harming(self) -> Iterator[None]:
        """Count as a fault under way."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._undone_at = trio.current_time()

    def note(self, kind: str, **fields: object) -> None:
        """Record a fault."""
        self.done[kind] += 1
        self.story.tell("", "Fault", kind=kind, **fields)

    async def run(self, count: int) -> None:
        """Inject `count` faults or more, at most `overlap` at a time; return when all are undone."""
        swarm = self.story.swarm
        kinds = [kind for kind in swarm.faults if kind in self._acts] or ["crash"]
        limit = trio.CapacityLimiter(swarm.overlap)
        self._planned = count
        async with trio.open_nursery() as nursery:
            self._begin(nursery)
            if self._fills_disks:
                nursery.start_soon(self._fill_disks, name="disk filler")
            while self.total < count:
                await trio.sleep(self.rng.uniform(0, swarm.calm_s))
                token = object()
                await limit.acquire_on_behalf_of(token)
                kind = self.rng.choice(kinds)
                nursery.start_soon(self._act, kind, limit, token, name=f"fault {kind}")

    def _begin(self, nursery: trio.Nursery) -> None:
        """Start the continuous faults beside the drawn ones."""

    @property
    def progress(self) -> float:
        """Return the completed fraction, 0 to 1."""
        return min(1.0, self.total / self._planned)

    async def _act(self, kind: str, limit: trio.CapacityLimiter, token: object) -> None:
        try:
            with self._harming():
                if not await self._acts[kind]():
                    await self._reset()
        finally:
            limit.release_on_behalf_of(token)

    async def heal(self) -> None:
        """Undo the remaining faults: every host of the history up, every link whole."""
        self.story.tell("", "Healed")
        with self._harming():
            self.network.heal()
            for node in self.story.nodes:
                node.host.resume()
                node.host.slow(1)
                node.host.disk.limit(None)
                node.host.disk.folders.mend_all()
                await node.restart()
            for bookie in self.story.bookies:
                await bookie.wait_up()

    # --- targets

    def _nodes(self) -> list[Node]:
        return [node for node in self.story.nodes if node.host.running and node.name not in self._busy]

    def _victim(self) -> Node | None:
        """Return a host that may be taken down: any client, or a bookie if not too many are down."""
        bookies = self._down < self.story.swarm.down_max
        nodes = [node for node in self._nodes() if bookies or not isinstance(node, BookieNode)]
        clients = [node for node in nodes if not isinstance(node, BookieNode)]
        if bookies and self.rng.random() < 0.7:
            clients = [node for node in nodes if isinstance(node, BookieNode)] or clients
        return self.rng.choice(clients) if clients else None

    def _pair(self) -> tuple[str, str]:
        """Return hosts that communicate: a client and a bookie, in this order."""
        one: Node = self.rng.choice(self.story.clients)
        return one.name, self.rng.choice(self.story.bookies).name

    @contextmanager
    def _taken(self, node: Node) -> Iterator[None]:
        self._busy[node.name] = None
        self._down += isinstance(node, BookieNode)
        try:
            yield
        finally:
            del self._busy[node.name]
            self._down -= isinstance(node, BookieNode)

    # --- hosts

    async def _crash(self) -> bool:
        return await self._cut_power("crash", lose_unsynced=True)

    async def _kill(self) -> bool:
        return await self._cut_power("kill", lose_unsynced=False)

    async def _cut_power(self, kind: str, *, lose_unsynced: bool) -> bool:
        node = self._victim()
        if node is None:
            return False
        with self._taken(node):
            await node.crash(lose_unsynced=lose_unsynced)
            dropped = node.host.crashes[-1]
            self.note(kind, host=node.name, lost_writes=dropped.writes, lost_batches=dropped.batches)
            if isinstance(node, BookieNode) and not lose_unsynced and self._trials.random() < TRIALS_SHARE:
                await self._try_damage(node)
            await self._come_back(node)
        return True

    async def _try_damage(self, node: BookieNode) -> None:
        """Start copies of a killed bookie, one of them damaged. Raises ViolationError."""

        async def opening(world: World, wanted: Contents | None) -> Contents:
            return await bookie_contents(world, node.config, SeenStore(self.story.tree), wanted)

        outcome = await trial(self.story.universe, node.host, opening, self._trials)
        self.story.tell(node.name, "Trial", outcome=outcome)

    async def _fuse(self) -> bool:
        bookies = [node for node in self._nodes() if isinstance(node, BookieNode)]
        if not bookies or self._down >= self.story.swarm.down_max:
            return False
        node = self.rng.choice(bookies)
        with self._taken(node):
            if self.rng.random() < 0.5:
                node.host.crash_after(self.rng.choice((0, 1, 2, 5, 10, 20)))
            else:
                node.host.crash_at_sync(self.rng.choice((0, 1, 2, 4)))
            with trio.move_on_after(0.5):
                await node.host.wait_down()
            await node.crash()
            self.note("fuse", host=node.name, lost_writes=node.host.crashes[-1].writes)
            await self._come_back(node)
        return True

    async def _come_back(self, node: Node) -> None:
        await trio.sleep(self.rng.choice((0.0, self.rng.uniform(0, 0.5), self.rng.uniform(0, 3))))
        await node.restart()
        self.story.tell(node.name, "HostRestarted")
        if isinstance(node, BookieNode):
            with trio.move_on_after(2 * self.story.swarm.session_timeout_s):
                await node.wait_up()

    async def _pause(self) -> bool:
        return await self._stop("pause", self.rng.uniform(0.01, 0.9 * self.story.swarm.session_timeout_s))

    async def _long_pause(self) -> bool:
        return await self._stop("long pause", self.story.swarm.session_timeout_s * self.rng.uniform(1.1, 2.5))

    async def _stop(self, kind: str, seconds: float) -> bool:
        node = self._victim()
        if node is None:
            return False
        with self._taken(node):
            self.note(kind, host=node.name, seconds=round(seconds, 3))
            node.pause()
            await trio.sleep(seconds)
            node.resume()
            self.story.tell(node.name, "HostResumed")
        return True

    async def _slow_disk(self) -> bool:
        node: Node = self.rng.choice(self.story.bookies)
        factor = self.rng.choice((5, 30, 100))
        self.note("slow disk", host=node.name, factor=factor)
        node.host.slow(factor)
        await self._a_while()
        node.host.slow(1)
        return True

    async def _fill_disks(self) -> None:
        """Fill one disk after the other, beside everything else."""
        while self.total < self._planned:
            await trio.sleep(self._disks.uniform(0, 3))
            nodes = [node for node in self._nodes() if isinstance(node, BookieNode)]
            if nodes and self._down < self.story.swarm.down_max:
                with self._harming():
                    await self._fill_disk(self._disks.choice(nodes))

    async def _fill_disk(self, node: BookieNode) -> None:
        """Leave little or no room on a disk for a while; the bookie may crash meanwhile, and restart without room."""
        rng, disk = self._disks, node.host.disk
        free = rng.choice((0, 700, 5000, 30_000, 400_000))
        with self._taken(node):
            self.note("full disk", host=node.name, free=free)
            disk.limit(free)
            await trio.sleep(rng.uniform(0.1, 3))
            if rng.random() < 0.5:
                await node.crash(lose_unsynced=rng.random() < 0.5)
                if rng.random() < 0.7:
                    await node.restart()
                    await trio.sleep(rng.uniform(0.1, 3))
            disk.limit(None)
            await self._come_back(node)

    # --- the network

    async def _partition(self) -> bool:
        nodes = self.story.nodes
        one = self.rng.sample(nodes, self.rng.randint(1, max(1, len(nodes) // 2)))
        other = [node for node in nodes if node not in one]
        away = self.rng.random() < 0.5
        self.note("partition", hosts=" ".join(node.name for node in one), metadata=away)
        links = [(a.name, b.name) for a in one for b in other]
        for a, b in links:
            self.network.cut(a, b)
            self.network.cut(b, a)
        for node in one if away else ():
            node.cut_metadata()
        await self._a_while()
        for node in one if away else ():
            node.mend_metadata()
        for a, b in links:
            self.network.mend(a, b)
            self.network.mend(b, a)
        return True

    async def _one_way_cut(self) -> bool:
        one, other = self._pair()
        if self.rng.random() < 0.5:
            one, other = other, one
        self.note("one-way cut", source=one, target=other)
        self.network.cut(one, other)
        await self._a_while()
        self.network.mend(one, other)
        return True

    async def _reset(self) -> bool:
        one, other = self._pair()
        self.note("reset", one=one, other=other)
        self.network.reset(one, other)
        return True

    async def _lose(self) -> bool:
        one, other = self._pair()
        self.note("lost messages", one=one, other=other)
        for _ in range(self.rng.randint(1, 3)):
            self.network.lose(one, other)
            await trio.sleep(self.rng.uniform(0, 0.02))
        return True

    async def _late(self) -> bool:
        pairs = [self._pair() for _ in range(self.rng.randint(1, 4))]
        links = [(a, b) if self.rng.random() < 0.5 else (b, a) for a, b in pairs]
        self.note("late messages", links=" ".join(f"{a}>{b}" for a, b in links))
        for a, b in links:
            self.network.lag(a, b, self.rng.uniform(0.01, 1.0))
        await self._a_while()
        for a, b in links:
            self.network.lag(a, b, 0.0)
        return True

    async def _a_while(self) -> None:
        await trio.sleep(self.rng.choice((self.rng.uniform(0.05, 0.5), self.rng.uniform(0.5, 4.0))))

    # --- the metadata service

    async def _expire(self) -> bool:
        nodes = [node for node in self._nodes() if node.metadata is not None]
        if not nodes:
            return False
        node = self.rng.choice(nodes)
        assert node.metadata is not None, "chosen so"
        self.note("session expiry", host=node.name)
        node.metadata.expire()
        return True

    async def _cut_metadata(self) -> bool:
        node = self.rng.choice(self.story.nodes)
        seconds = self.story.swarm.session_timeout_s * self.rng.choice((0.3, 1.5))
        self.note("metadata cut", host=node.name, seconds=round(seconds, 3))
        node.cut_metadata()
        await trio.sleep(seconds)
        node.mend_metadata()
        return True
