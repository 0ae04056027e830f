"""The nemesis of the ledger tier: faults of every kind that a seed allows, several at a time, each undone after a while.

What is never done, as the loss would be ours: more than one damaged copy of a ledger's entries, or one where the ack quorum is
a single bookie. Everything else a right cluster must bear: a crash takes only what was never acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from simulation.ledger_hosts import BookieNode, Node

if TYPE_CHECKING:
    from simulation.ledger_history import LedgerStory

ENTRY_HEAD = 48
"""Bytes of an entry before what a digest of any kind and its payload begin; what is flipped lies behind."""


class Nemesis:
    """Of one history."""

    def __init__(self, story: LedgerStory) -> None:
        self.story = story
        self.rng = story.universe.derive("nemesis")
        self.done: Counter[str] = Counter()
        """Faults by kind."""
        self.network = story.universe.network
        self._down = 0
        self._busy: dict[str, None] = {}
        """Nodes that are being harmed as a whole: not twice at a time."""
        self._liars: dict[int, str] = {}
        """By ledger: the bookie with a damaged copy."""
        self._ambushes = 0
        self._planned = 1
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
            "hunt": self._hunt,
            "flipped entry": self._flip,
            "session expiry": self._expire,
            "metadata cut": self._cut_metadata,
        }

    @property
    def total(self) -> int:
        return sum(self.done.values())

    def note(self, kind: str, **fields: object) -> None:
        """A fault happens."""
        self.done[kind] += 1
        self.story.tell("", "Fault", kind=kind, **fields)

    async def run(self, count: int) -> None:
        """`count` faults and more, of which at most `overlap` are under way at a time; returns when all are undone."""
        swarm = self.story.swarm
        kinds = [kind for kind in swarm.faults if kind in self._acts] or ["crash"]
        limit = trio.CapacityLimiter(swarm.overlap)
        self._planned = count
        async with trio.open_nursery() as nursery:
            if "hunt" in swarm.faults:
                nursery.start_soon(self._hunt_often, name="hunter")
            while self.total < count:
                await trio.sleep(self.rng.uniform(0, swarm.calm_s))
                token = object()
                await limit.acquire_on_behalf_of(token)
                kind = self.rng.choice(kinds)
                nursery.start_soon(self._act, kind, limit, token, name=f"fault {kind}")

    @property
    def progress(self) -> float:
        """How much of it is over, 0 to 1."""
        return min(1.0, self.total / self._planned)

    async def _hunt_often(self) -> None:
        """Hunts, one after the other, beside everything else."""
        while self.total < self._planned:
            await trio.sleep(self.rng.uniform(0, self.story.swarm.calm_s))
            await self._hunt()

    async def _act(self, kind: str, limit: trio.CapacityLimiter, token: object) -> None:
        try:
            if not await self._acts[kind]():
                await self._reset()
        finally:
            limit.release_on_behalf_of(token)

    # --- whom

    def _nodes(self) -> list[Node]:
        return [node for node in self.story.nodes if node.host.running and node.name not in self._busy]

    def _victim(self) -> Node | None:
        """Somebody who may go down: any client, or a bookie if not too many are."""
        bookies = self._down < self.story.swarm.down_max
        nodes = [node for node in self._nodes() if bookies or not isinstance(node, BookieNode)]
        clients = [node for node in nodes if not isinstance(node, BookieNode)]
        if bookies and self.rng.random() < 0.7:
            clients = [node for node in nodes if isinstance(node, BookieNode)] or clients
        return self.rng.choice(clients) if clients else None

    def _pair(self) -> tuple[Node, Node]:
        """A client and a bookie, mostly; in this order."""
        one: Node = self.rng.choice(self.story.clients)
        return one, self.rng.choice(self.story.bookies)

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
            await self._come_back(node)
        return True

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
                await self.story.until_up(node)

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
        self.note("one-way cut", source=one.name, target=other.name)
        self.network.cut(one.name, other.name)
        await self._a_while()
        self.network.mend(one.name, other.name)
        return True

    async def _reset(self) -> bool:
        one, other = self._pair()
        self.note("reset", one=one.name, other=other.name)
        self.network.reset(one.name, other.name)
        return True

    async def _lose(self) -> bool:
        one, other = self._pair()
        self.note("lost messages", one=one.name, other=other.name)
        for _ in range(self.rng.randint(1, 3)):
            self.network.lose(one.name, other.name)
            await trio.sleep(self.rng.uniform(0, 0.02))
        return True

    async def _late(self) -> bool:
        pairs = [self._pair() for _ in range(self.rng.randint(1, 4))]
        links = [(a.name, b.name) if self.rng.random() < 0.5 else (b.name, a.name) for a, b in pairs]
        self.note("late messages", links=" ".join(f"{a}>{b}" for a, b in links))
        for a, b in links:
            self.network.lag(a, b, self.rng.uniform(0.01, 1.0))
        await self._a_while()
        for a, b in links:
            self.network.lag(a, b, 0.0)
        return True

    async def _a_while(self) -> None:
        await trio.sleep(self.rng.choice((self.rng.uniform(0.05, 0.5), self.rng.uniform(0.5, 4.0))))

    # --- disks

    async def _flip(self) -> bool:
        """One bit of one copy of a confirmed entry, in an entry log."""
        checker = self.story.checker
        candidates = [
            history
            for history in checker.histories.values()
            if history.confirmed >= 0
            and not history.deleted
            and (metadata := checker.stored.get(history.ledger_id)) is not None
            and metadata.ack_quorum > 1
        ]
        for _ in range(20 if candidates else 0):
            history = self.rng.choice(candidates)
            entry_id = self.rng.randint(0, history.confirmed)
            metadata = checker.stored[history.ledger_id]
            striping = Striping(metadata.ensemble_size, metadata.write_quorum)
            index = self.rng.choice(striping.write_set(entry_id))
            bookie_id = metadata.fragment_at(entry_id).bookies[index]
            if self._liars.get(history.ledger_id, bookie_id) != bookie_id:
                continue
            node = self.story.by_id[bookie_id]
            place = node.location(history.ledger_id, entry_id)
            if place is None:
                continue
            path, offset = place
            end = ENTRY_HEAD + len(history.payloads[entry_id]) - 12
            node.host.disk.flip(path, offset + self.rng.randrange(16, max(32, end)), self.rng.randrange(8))
            self._liars[history.ledger_id] = bookie_id
            self.note("flipped entry", ledger=history.ledger_id, first=entry_id, last=entry_id, bookie=bookie_id)
            return True
        return False

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

    # --- writers

    async def _hunt(self) -> bool:
        """While the links between a writer and its bookies lag, one of these crashes, perhaps the writer right after it, and
        the ledger is taken over at once."""
        rng = self.rng
        story = self.story
        nodes = {node.name: node for node in self._nodes()}
        stored = story.checker.stored
        prey = [
            history
            for history in story.checker.histories.values()
            if history.writer in nodes
            and (metadata := stored.get(history.ledger_id)) is not None
            and metadata.state is LedgerState.OPEN
            and metadata.ensemble_size > 1
        ]
        if not prey or self._down >= story.swarm.down_max:
            return False
        prey = [history for history in prey if history.confirmed < history.lap] or prey
        history = rng.choice(prey[-4:])
        writer = nodes[history.writer]
        ensemble = stored[history.ledger_id].fragments[-1].bookies
        victim = story.by_id[rng.choice(ensemble)]
        if victim.name not in nodes:
            return False
        self.note("hunt", ledger=history.ledger_id, victim=victim.name, writer=writer.name)
        links = self._lag_writer(writer.name, ensemble)
        with self._taken(victim):
            await trio.sleep(rng.uniform(0.003, 0.15))
            await victim.crash(lose_unsynced=rng.random() < 0.5)
            with trio.move_on_after(rng.uniform(0.0, 1.0)):
                while history.ledger_id in stored and victim.id in stored[history.ledger_id].fragments[-1].bookies:
                    await trio.sleep(0.002)
            await trio.sleep(rng.choice((0.0, rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.2))))
            story.rush(history.ledger_id)
            if rng.random() < 0.6 and writer.host.running and writer.name not in self._busy:
                with self._taken(writer):
                    await writer.crash()
                    self._end_lags(links)
                    await trio.sleep(rng.uniform(0, 1.0))
                    await writer.restart()
            self._end_lags(links)
            await self._come_back(victim)
        return True

    def _lag_writer(self, writer: str, ensemble: Sequence[str]) -> list[tuple[str, str]]:
        """Let links between a writer and bookies lag: both ways within the ensemble, and to those that may join it."""
        rng = self.rng
        links = []
        for node in self.story.bookies:
            inside = node.id in ensemble
            there = rng.choice((0.0, 0.0, 0.01, 0.05, 0.2) if inside else (0.0, 0.1, 0.4))
            back = rng.choice((0.0, 0.0, 0.02, 0.1)) if inside else 0.0
            for source, target, seconds in ((writer, node.name, there), (node.name, writer, back)):
                if seconds:
                    self.network.lag(source, target, seconds)
                    links.append((source, target))
        return links

    def _end_lags(self, links: Sequence[tuple[str, str]]) -> None:
        for source, target in links:
            self.network.lag(source, target, 0.0)

    # --- recoveries

    def recovery_begins(self, recoverer: str, writer: str, metadata: LedgerMetadata) -> None:
        """Perhaps lie in ambush: while the bookies are fenced, links to some lag, and requests to some are lost."""
        if self.rng.random() >= self.story.swarm.ambush or self._ambushes >= self.story.swarm.overlap:
            return
        names = [self.story.by_id[bookie_id].name for bookie_id in metadata.fragments[-1].bookies]
        lags, lost = (self._split if self.rng.random() < 0.5 else self._tangle)(recoverer, writer, names)
        self.note("ambush", recoverer=recoverer, writer=writer, lost=" ".join(lost))
        self._ambushes += 1
        self.story.universe.nursery.start_soon(self._ambush, recoverer, lags, lost, name="ambush")

    def _tangle(
        self, recoverer: str, writer: str, bookies: Sequence[str]
    ) -> tuple[list[tuple[str, str, float]], list[str]]:
        """Any links lag, any bookies lose what they are asked: (links and how much they lag, those who lose)."""
        rng = self.rng
        lags = [(writer, name, rng.choice((0.0, 0.1, 0.3, 0.6))) for name in bookies]
        lags += [(name, recoverer, rng.choice((0.0, 0.0, 0.03, 0.05))) for name in bookies]
        return lags, [name for name in bookies if rng.random() < 0.35]

    def _split(
        self, recoverer: str, writer: str, bookies: Sequence[str]
    ) -> tuple[list[tuple[str, str, float]], list[str]]:
        """What the writer sends reaches one bookie at once, another only after the recovery has asked for it, and the others later
        still; the first one is asked late too, and the second one not fenced with the others, as that request is lost."""
        rng = self.rng
        first, second, *others = rng.sample(bookies, len(bookies)) if len(bookies) > 1 else [*bookies, *bookies]
        lags = [(recoverer, first, rng.uniform(0.03, 0.1)), (writer, second, rng.uniform(0.15, 0.3))]
        lags += [(writer, name, rng.uniform(0.4, 0.8)) for name in others]
        return lags, [second]

    async def _ambush(self, recoverer: str, lags: list[tuple[str, str, float]], lost: list[str]) -> None:
        for source, target, seconds in lags:
            if seconds and source != target:
                self.network.lag(source, target, seconds)
        for name in lost:
            self.network.cut(recoverer, name)
        await trio.sleep(self.rng.uniform(0.001, 0.02))
        for name in lost:
            self.network.lose(recoverer, name)
            self.network.mend(recoverer, name)
        await trio.sleep(self.rng.uniform(0.2, 1.0))
        for source, target, _ in lags:
            self.network.lag(source, target, 0.0)
        self._ambushes -= 1
