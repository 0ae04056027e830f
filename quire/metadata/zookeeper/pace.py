"""Rate of requests to ZooKeeper. Source: BookKeeper's zkRequestRateLimit and Guava's RateLimiter."""

from __future__ import annotations

from typing import Final

import trio

BURST_S: Final = 1.0
"""Seconds of unused requests that may be made up for at once."""


class Pace:
    """Lets callers go on at a rate, in the order of their calls."""

    def __init__(self, per_second: float) -> None:
        """`per_second`: 0: any number."""
        self._interval_s = 1 / per_second if per_second else 0.0
        self._next = float("-inf")
        """Time at which the next request is due."""

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        if not self._interval_s:
            return
        now = trio.current_time()
        due = max(self._next, now - BURST_S)
        self._next = due + self._interval_s
        if due > now:
            await trio.sleep_until(due)
