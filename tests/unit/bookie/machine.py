"""A machine of a bookie, for tests of starts, stops and crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from bookie.bookie import Bookie
from quire.metadata.local.memory import MemoryTree
from quire.world.doors import World
from simulation.machines.host import Host
from simulation.machines.scheduler import HOST
from simulation.machines.world import Universe
from tests.unit.bookie.build import CONFIG, Client, opened


class Machine:
    """A host whose bookie is crashed, stopped and started again."""

    def __init__(self, universe: Universe) -> None:
        self.host: Host = universe.host("bookie")
        self.tree = MemoryTree()
        self.config = CONFIG

    @asynccontextmanager
    async def life(self, *, crash: bool = False, lose_unsynced: bool = True) -> AsyncIterator[tuple[Bookie, Client]]:
        """Start the bookie; at the end stop it cleanly or crash it (without `lose_unsynced`: as by SIGKILL)."""
        bookies: list[Bookie] = []
        failures: list[Exception] = []
        started, over = trio.Event(), trio.Event()

        async def main(world: World, stop: trio.Event) -> None:
            try:
                async with opened(world, self.tree, self.config) as bookie:
                    bookies.append(bookie)
                    started.set()
                    await over.wait()
            except Exception as error:
                if self.host.running:
                    failures.append(error)
            started.set()

        self.host.start(main)
        await started.wait()
        if not bookies:
            await self.host.wait_down()
            raise failures[0]
        token = HOST.set(self.host.name)
        try:
            yield bookies[0], Client(bookies[0])
            if crash:
                self.host.cut_power(lose_unsynced=lose_unsynced)
        finally:
            HOST.reset(token)
            over.set()
            await self.host.wait_down()
        if failures:
            raise failures[0]

    async def live(
        self,
        story: Callable[[Bookie], Awaitable[None]],
        *,
        crash: bool = False,
        crash_after: int = 0,
    ) -> None:
        """Run `story` as a part of the machine, which crashes after `crash_after` changes to the disk."""
        failures: list[BaseException] = []

        async def main(world: World, stop: trio.Event) -> None:
            try:
                async with opened(world, self.tree, self.config) as bookie:
                    await story(bookie)
                    if crash:
                        self.host.cut_power()
                    await trio.lowlevel.checkpoint()
            except Exception as error:
                if self.host.running:
                    failures.append(error)

        self.host.start(main)
        if crash_after:
            self.host.crash_after(crash_after)
        await self.host.wait_down()
        if failures:
            raise failures[0]
