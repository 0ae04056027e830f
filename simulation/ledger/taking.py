"""Bookies that lose data, for several histories: hosts that copy it back, and the loss of folders or of the newest
state of a disk."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.service import open_repair_client
from bookie.bookie import Bookie
from bookie.integrity.check import DataIntegrity
from bookie.integrity.peers import OtherCopies
from bookie.scrubber.scrubber import Scrubber
from bookie.sessions.session import BookieSession
from quire.ledger.striping import Striping
from quire.metadata.ledger_metadata import LedgerState
from quire.servers.bookie.peers import peers_on
from quire.service.background import keep_trying
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from simulation.common.checkers import require
from simulation.common.nodes import BookieNode
from simulation.ledger.flips import FlippingNemesis, Lying
from simulation.machines.disk_image import DiskImage
from simulation.machines.key_value import MapImages
from simulation.machines.metadata import HostMetadata

LOST: Final = "lost data"
ASKED_MAX: Final = 5
"""Ledgers that a returned bookie is asked for."""
ASK_S: Final = 5.0
LIMBO_S: Final = 300.0
"""Virtual seconds in which a healed cluster must have copied everything back."""


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
        """Return whether it serves, and has all that it should have.

        A directory that has failed may lack what was copied into it, though the memory has no ledger in limbo.
        """
        bookie = self.up
        if bookie is None or not self.ready.is_set() or any(bookie.directories.reasons):
            return False
        return not bookie.storage.limbo.ledgers()


class TakingNemesis(FlippingNemesis):
    """Nemesis that may take data from a bookie, while every other one has all of its own."""

    def __init__(self, story: Lying, losing: random.Random) -> None:
        super().__init__(story)
        self._losing = losing

    async def _try_damage(self, node: BookieNode) -> None:
        """Try nothing: a copy of the bookie would take the kill for a loss."""

    async def _lose_when_whole(self, wait_s: float, look_s: float) -> None:
        """Take data from a bookie once no bookie lacks any; no effect if that takes longer than `wait_s`."""
        nodes = [each for each in self.story.bookies if isinstance(each, CaringNode)]
        with trio.move_on_after(wait_s):
            while True:
                free = [each for each in nodes if each in self._nodes() and not self._has_unnamed(each)]
                if free and self._down < self.story.swarm.down_max and all(each.is_whole for each in nodes):
                    with self._harming():
                        await self._lose_data(self._losing.choice(free))
                    break
                await trio.sleep(look_s)

    def _has_unnamed(self, node: CaringNode) -> bool:
        """Return whether a recovery in progress has written entries to the bookie, which the ledger's metadata names
        only at the close.

        Until then a loss of them puts no ledger into limbo, as with the original. The auditor brings them back.
        """
        bookie = node.up
        return bookie is not None and any(
            metadata.state is LedgerState.IN_RECOVERY
            and node.id not in metadata.fragments[-1].bookies
            and bookie.storage.master_key(ledger_id) is not None
            for ledger_id, metadata in self.story.checker.stored.items()
        )

    async def _lose_data(self, node: CaringNode) -> None:
        """Crash a bookie, and give it back with emptied folders, or with an older image of its disks."""
        rng, host = self._losing, node.host
        with self._taken(node):
            await node.crash(lose_unsynced=rng.random() < 0.5)
            if rng.random() < 0.4:
                image = host.disk.fork(), host.maps.fork()
                await self._come_back(node)
                await trio.sleep(rng.uniform(0.1, 3))
                others = [each for each in self.story.bookies if each is not node and isinstance(each, CaringNode)]
                if self._has_unnamed(node) or not all([each.is_whole for each in others]):
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

    async def _ask(self, node: CaringNode) -> None:
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
