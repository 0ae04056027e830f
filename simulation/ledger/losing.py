"""Bookies that lose what they acknowledged, and copy it back: emptied folders, older images, kills without a journal.

Excluded are losses that no cluster could survive. Every ledger has an ack quorum of two or more, and a bookie loses
its data only while no other one is in limbo; or one bookie, always the same, does not journal entries and loses some
at each crash. Bits flip only where nothing else is lost; the scrubber heals them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.service import open_repair_client
from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.integrity.check import DataIntegrity
from bookie.integrity.peers import OtherCopies
from bookie.scrubber.scrubber import Scrubber
from bookie.sessions.session import BookieSession
from quire.ledger.striping import Striping
from quire.servers.bookie.peers import peers_on
from quire.service.background import keep_trying
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from simulation.common.checkers import require
from simulation.common.nodes import BookieNode, Cluster
from simulation.ledger.faults import HuntedLedgers, LedgerNemesis
from simulation.ledger.swarm import LedgerSwarm
from simulation.machines.disk_image import DiskImage
from simulation.machines.key_value import MapImages
from simulation.machines.metadata import HostMetadata

LOST: Final = "lost data"
FLIPPED: Final = "flipped entry"
WAIT_S: Final = 100.0
"""Virtual seconds that a loss waits for all bookies to be whole."""
ASKED_MAX: Final = 5
"""Ledgers that a returned bookie is asked for."""
ASK_S: Final = 5.0
LIMBO_S: Final = 300.0
"""Virtual seconds in which a healed cluster must have copied everything back."""
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


class CaringNode(BookieNode):
    """Host of a bookie that copies back what it lost, and scrubs."""

    scrubber: Scrubber

    def start_jobs(self, nursery: trio.Nursery, world: World, bookie: Bookie, metadata: HostMetadata) -> None:
        config = AutoRecoveryConfig()

        @asynccontextmanager
        async def peers() -> AsyncGenerator[OtherCopies]:
            async with open_repair_client(world, metadata, config) as client:
                yield peers_on(client, config, bookie_id=self.id)

        self.scrubber = Scrubber(bookie, metadata, peers)
        jobs = {"data integrity": DataIntegrity(bookie, metadata, peers).run, "scrub": self.scrubber.run}
        for name, job in jobs.items():
            tries = partial(keep_trying, name, job, bookie.job_failures, world.rng)
            nursery.start_soon(tries, name=f"bookie {name}")

    @property
    def is_whole(self) -> bool:
        """Return whether it serves, and has all that it should have."""
        bookie = self.up
        return bookie is not None and self.ready.is_set() and not bookie.storage.limbo.ledgers()


class LosingNode(CaringNode):
    """Host of a bookie that loses data."""

    def __init__(self, story: Cluster, name: str, losses: Losses) -> None:
        super().__init__(story, name)
        if name == losses.unjournaled:
            self.config: BookieConfig = replace(self.config, journal_write=False)


class LosingNemesis(LedgerNemesis):
    """Nemesis that takes data from bookies beside everything else."""

    def __init__(self, story: HuntedLedgers, losses: Losses, rng: random.Random) -> None:
        super().__init__(story)
        self._losses = losses
        self._losing = rng

    async def _try_damage(self, node: BookieNode) -> None:
        """Try nothing: a copy of the bookie would take the kill for a loss."""

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
        nodes = [each for each in self.story.bookies if isinstance(each, LosingNode)]
        for _ in range(self._losing.randint(1, 3)):
            await trio.sleep(self._losing.uniform(0, 2))
            with trio.move_on_after(WAIT_S):
                while True:
                    free = [each for each in nodes if each in self._nodes()]
                    if free and self._down < self.story.swarm.down_max and all(each.is_whole for each in nodes):
                        with self._harming():
                            await self._lose_data(self._losing.choice(free))
                        break
                    await trio.sleep(0.1)

    async def _lose_data(self, node: LosingNode) -> None:
        """Crash a bookie, and give it back with emptied folders, or with an older image of its disks."""
        rng, host = self._losing, node.host
        with self._taken(node):
            await node.crash(lose_unsynced=rng.random() < 0.5)
            if rng.random() < 0.4:
                image = host.disk.fork(), host.maps.fork()
                await self._come_back(node)
                await trio.sleep(rng.uniform(0.1, 3))
                others = [each for each in self.story.bookies if each is not node and isinstance(each, LosingNode)]
                if not all([each.is_whole for each in others]):
                    return
                await node.crash(lose_unsynced=rng.random() < 0.5)
                host.disk, host.maps = image
                what = "older image"
            else:
                config = node.config
                folders = [*config.journal_directories, *config.ledger_directories]
                gone = folders if rng.random() < 0.5 else [rng.choice(folders)]
                for folder in gone:
                    _empty(node, folder)
                what = " ".join(gone)
            self.note(LOST, host=node.name, what=what)
            await self._come_back(node)
            await self._ask(node)

    async def _ask(self, node: LosingNode) -> None:
        """Read from a returned bookie the first entries of ledgers in limbo: it must not deny one that it had."""
        bookie, checker = node.up, self.story.checker
        if bookie is None:
            return
        answers: list[v2.Response] = []
        session = BookieSession(bookie, lambda parts: answers.extend(v2.decode_responses(b"".join(parts))))
        wanted = [
            ledger_id
            for ledger_id in bookie.storage.limbo.ledgers()
            if (history := checker.histories.get(ledger_id)) is not None
            and history.confirmed >= 0
            and (metadata := checker.stored.get(ledger_id)) is not None
            and node.id in (first := metadata.fragments[0].bookies)
            and first.index(node.id) in Striping(metadata.ensemble_size, metadata.write_quorum).write_set(0)
        ][:ASKED_MAX]
        session.receive([v2.read_request(ledger_id, 0) for ledger_id in wanted])
        with trio.move_on_after(ASK_S):
            while len(answers) < len(wanted) and node.up is bookie:
                await trio.sleep(0.05)
        for answer in answers:
            assert isinstance(answer, v2.ReadResponse)
            denied = answer.rc in (Rc.NO_ENTRY, Rc.NO_LEDGER)
            require(
                not denied or checker.histories[answer.ledger_id].deleted,
                "LimboDeniesNothing",
                f"{node.id} denies entry {answer.ledger_id}:0",
            )


def _empty(node: BookieNode, folder: str) -> None:
    disk: DiskImage = node.host.disk
    maps: MapImages = node.host.maps
    for path in disk.paths():
        if path.startswith(f"{folder}/") and not path.endswith("quire.lock"):
            disk.remove(path)
    for path in [each for each in maps.paths() if each.startswith(f"{folder}/")]:
        maps.remove(path)


async def until_whole(nodes: list[BookieNode]) -> None:
    """Wait until no bookie is in limbo. TooSlowError."""
    with trio.fail_after(LIMBO_S):
        while not all([node.is_whole for node in nodes if isinstance(node, CaringNode)]):
            await trio.sleep(0.5)
