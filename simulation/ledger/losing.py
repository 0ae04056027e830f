"""Bookies that lose what they acknowledged, and copy it back: emptied folders, older images, kills without a journal.

Excluded are losses that no cluster could survive. Every ledger has an ack quorum of two or more, and a bookie loses
its data only while no other one is in limbo; or one bookie, always the same, does not journal entries and loses some
at each crash. Bits flip only where nothing else is lost; the scrubber heals them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import trio

from bookie.config import BookieConfig
from simulation.common.nodes import Cluster
from simulation.ledger.faults import HuntedLedgers, LedgerNemesis
from simulation.ledger.swarm import LedgerSwarm
from simulation.ledger.taking import LOST, CaringNode, TakingNemesis

FLIPPED: Final = "flipped entry"
WAIT_S: Final = 100.0
"""Virtual seconds that a loss waits for all bookies to be whole."""
SCRUB_ERRORS: Final = ("an entry is damaged", "damaged entries cannot be healed", "a damaged header or map")
"""Expected ERROR texts in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Draws of a seed, on top of those of any history of ledgers."""

    way: str
    """wiped: bookies lose folders; unjournaled: one bookie journals no entries; scrubbed: bits flip."""
    full_disks: bool
    unjournaled: str = ""
    """Name of that bookie."""
    surely: bool = False
    """True if each history has a loss, whatever faults it draws."""


WAYS: Final = ("wiped", "wiped", "unjournaled", "scrubbed")
LIMBO_WAYS: Final = ("wiped", "wiped", "unjournaled")
"""The ways that lead to limbo."""


def draw_losses(swarm: LedgerSwarm, rng: random.Random, *, ways: Sequence[str] = WAYS) -> tuple[LedgerSwarm, Losses]:
    """Draw which data is lost, and how bookies watch and scrub their disks."""
    way = rng.choice(ways)
    settings: dict[str, Any] = {
        "integrity_check": True,
        "integrity_stamp": True,
        "integrity_rate_mb": rng.choice((0, 1, 32)),
        "scrub_interval_s": rng.choice((0, 2, 10)) if way != "scrubbed" else rng.choice((1, 5)),
        "scrub_rate": rng.choice((50, 1000)),
        "disk_usage_threshold": rng.choice((0.5, 0.95, 0.999)),
        "disk_check_interval_ms": rng.choice((100, 2000)),
        "read_only_on_any_full": rng.random() < 0.5,
    }
    settings["disk_usage_warn_threshold"] = min(0.9, settings["disk_usage_threshold"])
    faults = {*swarm.faults, FLIPPED} if way == "scrubbed" else {*swarm.faults} - {FLIPPED}
    quorums = swarm.quorums
    if way != "scrubbed":
        quorums = tuple(each for each in quorums if each[2] > 1) or ((2, 2, 2),)
    drawn = replace(
        swarm,
        quorums=quorums,
        faults=tuple(sorted(faults)),
        bookie_settings=(*swarm.bookie_settings, *settings.items()),
    )
    name = f"b{rng.randrange(swarm.bookies)}" if way == "unjournaled" else ""
    return drawn, Losses(way=way, full_disks=rng.random() < 0.3, unjournaled=name)


class LosingNode(CaringNode):
    """Host of a bookie that loses data."""

    def __init__(self, story: Cluster, name: str, losses: Losses) -> None:
        super().__init__(story, name)
        if name == losses.unjournaled:
            self.config: BookieConfig = replace(self.config, journal_write=False)


class LosingNemesis(TakingNemesis, LedgerNemesis):
    """Nemesis that takes data from bookies beside everything else."""

    def __init__(self, story: HuntedLedgers, losses: Losses, rng: random.Random) -> None:
        super().__init__(story, rng)
        self.story: HuntedLedgers = story
        self._losses = losses

    def _begin(self, nursery: trio.Nursery) -> None:
        super()._begin(nursery)
        if self._losses.way == "wiped":
            nursery.start_soon(self._lose_often, name="losses")
        elif self._losses.way == "unjournaled" and self._losses.surely:
            nursery.start_soon(self._kill_unjournaled, name="losses")

    async def _kill_unjournaled(self) -> None:
        """Kill the bookie that journals no entries, once it is whole."""
        (node,) = [each for each in self.story.bookies if each.name == self._losses.unjournaled]
        assert isinstance(node, LosingNode)
        await trio.sleep(self._losing.uniform(0, 2))
        with trio.move_on_after(WAIT_S):
            while node not in self._nodes() or self._down >= self.story.swarm.down_max or not node.is_whole:
                await trio.sleep(0.1)
            with self._harming(), self._taken(node):
                await node.crash(lose_unsynced=self._losing.random() < 0.5)
                self.note(LOST, host=node.name, what="memory")
                await self._come_back(node)

    async def _lose_often(self) -> None:
        for _ in range(self._losing.randint(1, 3)):
            await trio.sleep(self._losing.uniform(0, 2))
            await self._lose_when_whole(WAIT_S, 0.1)
