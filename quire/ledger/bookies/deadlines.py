"""One ticking task for all deadlines of a ledger client: nothing per entry, nothing at all while nothing is under way."""

from __future__ import annotations

import math
from typing import Protocol

import trio

from quire.world.faults import Faults


class Watched(Protocol):
    """Something that may have requests under way."""

    def tick(self, now: int) -> bool:
        """Give up what is overdue at tick `now`; return whether anything is still under way. Must not raise."""


class DeadlineWheel:
    """Calls `tick` of those who asked for it, every `tick_s` seconds, until they say that nothing is under way."""

    def __init__(self, tick_s: float, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self.tick_s = tick_s
        self.now = 0
        """Ticks so far; stands still while nobody is watched."""
        self._watched: dict[Watched, None] = {}
        self._work = trio.Event()

    def ticks(self, seconds: float) -> int:
        """Ticks after which `seconds` have certainly passed."""
        return math.ceil(seconds / self.tick_s) + 1

    def watch(self, watched: Watched) -> None:
        """Tick it from now on; fine if it is watched already."""
        self._watched[watched] = None
        self._work.set()

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            if not self._watched:
                self._work = trio.Event()
                await self._work.wait()
            await trio.sleep(self.tick_s)
            self.now += 1
            for watched in list(self._watched):
                waits = False
                try:
                    waits = watched.tick(self.now)
                except Exception as error:
                    self._faults.raised("a look at deadlines of bookies", error)
                if not waits:
                    self._watched.pop(watched, None)
