"""A machine of a bookie, for tests of starts, stops and crashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from bookie.bookie import Bookie
from quire.metadata.local.memory import MemoryTree
from quire.world.doors import World
from simulation.machines.host import Host
from simulation.machines.world import Universe
from tests.unit.bookie.build import CONFIG, opened


class Machine:
    """A host whose bookie is crashed, stopped and started again."""

    def __init__(self, universe: Universe) -> None:
        self.host: Host = universe.host("bookie")
        self.tree = MemoryTree()
        self.config = CONFIG

    async def live(
        self,
        story: Callable[[Bookie], Awaitable[None]],
        *,
        crash: bool = False,
        crash_after: int = 0,
        lose_unsynced: bool = True,
    ) -> None:
        """Start the bookie, run `story`, then stop cleanly or crash (without `lose_unsynced`: as by SIGKILL).

        With `crash_after`, it crashes after this many changes to the disk.
        """
        failures: list[BaseException] = []

        async def main(world: World, stop: trio.Event) -> None:
            try:
                async with opened(world, self.tree, self.config) as bookie:
                    await story(bookie)
                    if crash:
                        self.host.cut_power(lose_unsynced=lose_unsynced)
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
