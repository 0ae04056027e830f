"""Throttle: no more than so much in a second."""

from __future__ import annotations

import trio


class Throttle:
    """Lets `rate` units a second through, those of one second at once at most. 0 or less: everything.

    What is bigger than that passes alone, and those after it wait the longer.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0
        """When all that was let through has had its time, on trio's clock."""

    async def take(self, units: float) -> None:
        """Wait until so many units may pass. Callers pass in the order in which they came."""
        if self._rate <= 0:
            return
        now = trio.current_time()
        start = max(self._free_at, now - 1.0)
        self._free_at = start + units / self._rate
        if start > now:
            await trio.sleep_until(start)
