"""Timeouts for waits without a timeout scope per wait: most waits end early, and then cost next to nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

import trio


class Alarms:
    """Alarms of a ledger client, all in one task, which begins with the first alarm."""

    def __init__(self) -> None:
        self._alarms: list[tuple[float, int, trio.Event]] = []
        self._count = 0
        self._running = False
        self._earlier = trio.Event()
        self._rings_at = 0.0
        """Time until which the task sleeps."""

    def set(
        self, deadline: float, event: trio.Event, start: Callable[[Callable[[], Awaitable[None]], str], None]
    ) -> None:
        """Set `event` at that time on trio's clock, unless it is set already.

        `start` starts a task that may live as long as the client.
        """
        self._count += 1
        heappush(self._alarms, (deadline, self._count, event))
        if not self._running:
            self._running = True
            start(self.run, "ledger alarms")
        elif deadline < self._rings_at:
            self._earlier.set()

    async def run(self) -> None:
        """Set events at their time until cancelled."""
        alarms = self._alarms
        while True:
            while alarms and alarms[0][2].is_set():
                heappop(alarms)
            self._earlier = trio.Event()
            self._rings_at = alarms[0][0] if alarms else float("inf")
            with trio.move_on_at(self._rings_at):
                await self._earlier.wait()
            now = trio.current_time()
            while alarms and alarms[0][0] <= now:
                heappop(alarms)[2].set()
