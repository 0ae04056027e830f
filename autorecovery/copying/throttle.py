"""Throttle: limits units per second."""

from __future__ import annotations

import trio


class Throttle:
    """Rate limit of `rate` units per second, with bursts of one second's units. 0 or less: no limit.

    A larger request passes alone, and later ones wait the longer.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0
        """Time on trio's clock at which everything let through so far is used up."""

    async def take(self, units: float) -> None:
        """Wait until `units` may pass. Callers pass in order of arrival."""
        if self._rate <= 0:
            return
        now = trio.current_time()
        start = max(self._free_at, now - 1.0)
        self._free_at = start + units / self._rate
        if start > now:
            await trio.sleep_until(start)
