"""Deadlines of a ledger client in one ticking task: no cost per entry, and none while no request is pending."""

from __future__ import annotations

import math
from typing import Protocol

import trio

from quire.world.faults import Faults


class Watched(Protocol):
    """Object that may have pending requests."""

    def tick(self, now: int) -> bool:
        """Fail requests overdue at tick `now`; return whether requests are still pending. Must not raise."""


class DeadlineWheel:
    """Wheel that calls `tick` of watched objects every `tick_s` seconds, until they have no pending request."""

    def __init__(self, tick_s: float, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self.tick_s = tick_s
        self.now = 0
        """Ticks so far; does not advance while no object is watched."""
        self._watched: dict[Watched, None] = {}
        self._work = trio.Event()

    def ticks(self, seconds: float) -> int:
        """Return the number of ticks after which `seconds` have certainly passed."""
        return math.ceil(seconds / self.tick_s) + 1

    def watch(self, watched: Watched) -> None:
        """Watch an object from now on; no effect if it is watched already."""
        self._watched[watched] = None
        self._work.set()

    async def run(self) -> None:
        """Tick until cancelled."""
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
