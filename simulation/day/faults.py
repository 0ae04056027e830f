"""The nemesis of a day: beside what harms any cluster, disks that fail, fill up and hang, bookies that stay away, and
operators, with a liking for compactions under way.

Excluded are losses that no cluster could survive: a second bookie lost for good, or one while others are down; and
flipped bits where a bookie may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

import trio

from bookie.bookie import Bookie
from bookie.gc.schedule import AskedCompactions
from simulation.common.nodes import BookieNode
from simulation.day.swarm import DAY_S, DaySwarm
from simulation.ledger.flips import FlippingNemesis, Lying
from simulation.ledger.taking import TakingNemesis

HANG_S = 60.0
COMPACTION_WAIT_S = 5.0
LOSS_WAIT_S = 3600.0
"""Virtual seconds that a loss waits for all bookies to be whole."""


class DayHarmed(Lying, Protocol):
    """History whose day is harmed."""

    lost: BookieNode | None
    """The bookie whose disk is permanently lost."""

    @property
    def swarm(self) -> DaySwarm: ...


class DayNemesis(TakingNemesis):
    """Nemesis of one day."""

    def __init__(self, story: DayHarmed, losing: Random) -> None:
        super().__init__(story, losing)
        self.story: DayHarmed = story
        self._acts |= {
            "away": self._stay_away,
            "lost bookie": self._lose_bookie,
            "read-only": self._read_only,
            "full disk": self._fill_any_disk,
            "hung disk": self._hang_disk,
            "failed sync": self._fail_sync,
            "failed reads": self._fail_reads,
            "asked compaction": self._ask_compaction,
            "crash amid compaction": self._crash_compaction,
            "suspended compaction": self._suspend_compaction,
        }

    async def run(self, count: int) -> None:
        """Spread `count` faults over the day."""
        swarm = self.story.swarm
        kinds = [kind for kind in swarm.faults if kind in self._acts]
        limit = trio.CapacityLimiter(swarm.overlap)
        self._planned = count
        async with trio.open_nursery() as nursery:
            if swarm.losses:
                nursery.start_soon(self._lose_often, name="losses")
            for at in sorted([self.rng.uniform(0, 0.97 * DAY_S) for _ in range(count)]):
                await trio.sleep(max(0.0, at - trio.current_time()))
                token = object()
                await limit.acquire_on_behalf_of(token)
                kind = self.rng.choice(kinds)
                nursery.start_soon(self._act, kind, limit, token, name=f"fault {kind}")

    async def _lose_often(self) -> None:
        """Take data from bookies at any times of the day."""
        times = sorted([self._losing.uniform(0, 0.9 * DAY_S) for _ in range(self.story.swarm.losses)])
        for at in times:
            await trio.sleep(max(0.0, at - trio.current_time()))
            await self._lose_when_whole(LOSS_WAIT_S, 1.0)

    async def _try_damage(self, node: BookieNode) -> None:
        if not self.story.swarm.losses:
            await FlippingNemesis._try_damage(self, node)

    async def _a_while(self) -> None:
        await trio.sleep(self.rng.choice((self.rng.uniform(0.05, 5.0), self.rng.uniform(10.0, 600.0))))

    def _bookie(self) -> BookieNode | None:
        """Return a bookie that serves, if one may be harmed."""
        nodes = [node for node in self._nodes() if isinstance(node, BookieNode) and node.up is not None]
        return self.rng.choice(nodes) if nodes and self._down < self.story.swarm.down_max else None

    def _serving(self) -> tuple[BookieNode, Bookie] | None:
        node = self._bookie()
        bookie = None if node is None else node.up
        return None if node is None or bookie is None else (node, bookie)

    # --- bookies

    async def _stay_away(self) -> bool:
        node = self._bookie()
        if node is None:
            return False
        with self._taken(node):
            minutes = self.rng.uniform(2, 60)
            self.note("away", host=node.name, minutes=round(minutes))
            await node.crash(lose_unsynced=self.rng.random() < 0.5)
            await trio.sleep(60 * minutes)
            await self._come_back(node)
        return True

    async def _lose_bookie(self) -> bool:
        """Destroy a bookie's disk, once, and only while others can take its place."""
        story = self.story
        node = self._bookie()
        if story.lost is not None or self._down or len(story.bookies) <= story.swarm.quorums[0][0] or node is None:
            return False
        story.lost = node
        await node.crash()
        self.note("lost bookie", host=node.name, bookie=node.id)
        return True

    async def _read_only(self) -> bool:
        """Do what an operator does before maintenance; a restart forgets it, unless the status is kept."""
        found = self._serving()
        if found is None or self._busy:
            return False
        node, bookie = found
        self.note("read-only", host=node.name)
        bookie.set_read_only(True)
        await trio.sleep(self.rng.uniform(1, 3600))
        if node.up is not None:
            node.up.set_read_only(False)
        return True

    async def heal(self) -> None:
        await super().heal()
        for node in self.story.bookies:
            if node.up is not None:
                node.up.set_read_only(False)

    # --- disks

    async def _fill_any_disk(self) -> bool:
        node = self._bookie()
        if node is None:
            return False
        await self._fill_disk(node)
        return True

    async def _fill_disk(self, node: BookieNode) -> None:
        """Leave little or no room for a while; the bookie may crash meanwhile, and restart without room."""
        rng, disk = self.rng, node.host.disk
        free = rng.choice((0, 700, 5000, 30_000, 400_000, 2_000_000))
        with self._taken(node):
            self.note("full disk", host=node.name, free=free)
            disk.limit(free)
            bookie = node.up
            if bookie is not None and rng.random() < 0.5:
                bookie.garbage.force(AskedCompactions())
            await trio.sleep(rng.choice((rng.uniform(0.1, 3), rng.uniform(10, 600))))
            if rng.random() < 0.5:
                await node.crash(lose_unsynced=rng.random() < 0.5)
                if rng.random() < 0.7:
                    await node.restart()
                    await trio.sleep(rng.uniform(0.1, 60))
            disk.limit(None)
            await self._come_back(node)

    async def _hang_disk(self) -> bool:
        node = self._bookie()
        if node is None:
            return False
        with self._taken(node):
            self.note("hung disk", host=node.name)
            node.host.hang(HANG_S)
            await trio.sleep(HANG_S + 1.0)
        return True

    async def _fail_sync(self) -> bool:
        """Fail one sync, perhaps of a compaction; the process ends, perhaps with the machine."""
        found = self._serving()
        if found is None:
            return False
        node, bookie = found
        with self._taken(node):
            self.note("failed sync", host=node.name)
            node.host.disk.fail_syncs()
            if self.rng.random() < 0.5:
                bookie.garbage.force(AskedCompactions())
            with trio.move_on_after(2 * self.story.swarm.flush_interval_ms / 1000):
                await bookie.failed.wait()
            await node.crash(lose_unsynced=self.rng.random() < 0.5)
            node.host.disk.fail_syncs(0)
            await self._come_back(node)
        return True

    async def _fail_reads(self) -> bool:
        """Fail some reads of entry logs, of clients or of a compaction."""
        found = self._serving()
        if found is None:
            return False
        node, bookie = found
        with self._taken(node):
            self.note("failed reads", host=node.name)
            node.host.disk.fail_reads(self.rng.choice((1, 3, 20)))
            if self.rng.random() < 0.7:
                bookie.garbage.force(AskedCompactions())
            await trio.sleep(self.rng.uniform(1, 300))
            node.host.disk.fail_reads(0)
        return True

    # --- compactions

    async def _ask_compaction(self) -> bool:
        found = self._serving()
        if found is None:
            return False
        node, bookie = found
        major = self.rng.random() < 0.5
        self.note("asked compaction", host=node.name, major=major)
        bookie.garbage.force(AskedCompactions(major=major, minor=not major))
        return True

    async def _suspend_compaction(self) -> bool:
        """Suspend compactions, perhaps one under way; a restart forgets it."""
        found = self._serving()
        if found is None:
            return False
        node, bookie = found
        self.note("suspended compaction", host=node.name)
        if self.rng.random() < 0.5:
            await self._until_compacting(bookie)
        suspended = bookie.garbage.schedule.suspended
        suspended.major = suspended.minor = True
        await trio.sleep(self.rng.uniform(1, 7200))
        suspended.major = suspended.minor = False
        return True

    async def _crash_compaction(self) -> bool:
        """Have a bookie compact, and crash it at one of its changes to the disk."""
        found = self._serving()
        if found is None:
            return False
        node, bookie = found
        with self._taken(node):
            bookie.garbage.force(AskedCompactions())
            began = await self._until_compacting(bookie)
            changes: Sequence[int] = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)
            if self.rng.random() < 0.7:
                node.host.crash_after(self.rng.choice(changes))
            else:
                node.host.crash_at_sync(self.rng.choice(changes[:6]))
            with trio.move_on_after(self.rng.choice((0.05, 1.0, 30.0))):
                await node.host.wait_down()
            await node.crash(lose_unsynced=self.rng.random() < 0.8)
            self.note("crash amid compaction", host=node.name, began=began, lost=node.host.crashes[-1].writes)
            await self._come_back(node)
        return True

    @staticmethod
    async def _until_compacting(bookie: Bookie) -> bool:
        """Wait until a bookie compacts, for a while; return whether it does."""
        with trio.move_on_after(COMPACTION_WAIT_S):
            while bookie.garbage.status.compacting is None:
                await trio.sleep(0.002)
            return True
        return False
