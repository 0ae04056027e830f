"""Faults of single directories of a bookie, each as if it was a disk of its own: full, broken, or hanging for a while.

Only bookies with several directories of a kind have them: one with a single disk is down when that disk is.
"""

from __future__ import annotations

from random import Random
from typing import Final

import trio

from simulation.common.nemesis import FULL_DISK_ERRORS, Harmed, Nemesis
from simulation.common.nodes import BookieNode

FULL: Final = "full directory"
BROKEN: Final = "broken directory"
HUNG: Final = "hung directory"
FOLDER_FAULTS: Final = (FULL, BROKEN, HUNG)
FOLDER_ERRORS: Final = (
    *FULL_DISK_ERRORS,
    "directory failed",
    "flushes fail",
    "directory does not answer",
    "the storage has failed",
    "stop abandoned",
    "journal failed",
    "read failed",
)
"""Expected ERROR texts in the log."""


class FolderNemesis(Nemesis):
    """Nemesis that harms single directories beside everything else."""

    def __init__(self, story: Harmed) -> None:
        super().__init__(story)
        self._folders = story.universe.derive("folders")
        self._breaks = story.universe.derive("breaks")

    def _begin(self, nursery: trio.Nursery) -> None:
        if self.story.swarm.journals * self.story.swarm.directories > 1:
            nursery.start_soon(self._harm_folders, name="directory faults")
        if self.story.swarm.directories > 1:
            nursery.start_soon(self._break_often, name="directories that break in use")

    async def _harm_folders(self) -> None:
        rng = self._folders
        while self.total < self._planned:
            await trio.sleep(rng.uniform(0, 4))
            nodes = [node for node in self._nodes() if isinstance(node, BookieNode)]
            if nodes and self._down < self.story.swarm.down_max:
                with self._harming():
                    await self._harm_folder(rng.choice(nodes), rng)

    async def _break_often(self) -> None:
        rng = self._breaks
        while self.total < self._planned:
            await trio.sleep(rng.uniform(0, 3))
            in_use = [
                (node, number)
                for node in self._nodes()
                if isinstance(node, BookieNode) and node.up is not None and not node.host.disk.folders.any
                for number, storage in enumerate(node.up.storage.directories)
                if storage.unflushed_ledgers()
            ]
            if in_use and self._down < self.story.swarm.down_max:
                with self._harming():
                    await self._break_in_use(*rng.choice(in_use), rng)

    async def _break_in_use(self, node: BookieNode, number: int, rng: Random) -> None:
        """Break a directory that has entries in memory only, wait until others have flushed, and crash.

        Afterwards the bookie starts with the directory as it was: the journal must have kept the entries.
        """
        folder, flush_s = node.config.ledger_directories[number], node.config.flush_interval_ms / 1000
        faults = node.host.disk.folders
        with self._taken(node):
            self.note(BROKEN, host=node.name, folder=folder, amid="use")
            faults.break_(folder)
            with trio.move_on_after(flush_s + 2.0):
                while node.up is not None and not node.up.directories.is_final(number):
                    await trio.sleep(0.02)
            await trio.sleep(rng.uniform(flush_s, 2 * flush_s + 1.0))
            await node.crash(lose_unsynced=rng.random() < 0.5)
            faults.mend(folder)
            await self._come_back(node)

    async def _harm_folder(self, node: BookieNode, rng: Random) -> None:
        """Harm a directory of a bookie for a while; the bookie may crash meanwhile, and start with it."""
        config, faults = node.config, node.host.disk.folders
        kinds = [each for each in (config.journal_directories, config.ledger_directories) if len(each) > 1]
        folder = rng.choice(rng.choice(kinds))
        kind = rng.choice(FOLDER_FAULTS)
        seconds = rng.choice((2.0, 20.0, 60.0)) if kind == HUNG else rng.uniform(0.1, 5)
        with self._taken(node):
            self.note(kind, host=node.name, folder=folder, seconds=round(seconds, 3))
            harm = {FULL: faults.fill, BROKEN: faults.break_, HUNG: faults.hang}[kind]
            harm(folder)
            try:
                if rng.random() < 0.6:
                    await trio.sleep(seconds)
                    faults.mend(folder)
                    if kind == BROKEN or rng.random() < 0.3:
                        await trio.sleep(rng.uniform(0, 2))
                        await node.crash(lose_unsynced=rng.random() < 0.5)
                else:
                    await trio.sleep(rng.uniform(0, seconds))
                    await node.crash(lose_unsynced=rng.random() < 0.5)
                    if rng.random() < 0.5:
                        await node.restart()
                        await trio.sleep(rng.uniform(0.1, 3))
                        await node.crash(lose_unsynced=rng.random() < 0.5)
                    faults.mend(folder)
            except trio.Cancelled:
                faults.mend(folder)  # hosts that stop wait for it
                raise
            await self._come_back(node)
