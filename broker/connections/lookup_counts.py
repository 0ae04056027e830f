"""Counters of the lookups over client connections; plain numbers, read by the metrics."""

from __future__ import annotations

from quire.service.metrics import Histogram


class LookupCounts:
    """Lookups answered within the pass count as taking no time."""

    __slots__ = ("answers", "failures", "pending", "redirects", "times")

    def __init__(self) -> None:
        self.answers = 0
        """Lookups answered with a broker to connect to."""
        self.redirects = 0
        """Lookups answered with a redirect."""
        self.failures = 0
        self.pending = 0
        """Lookups under way."""
        self.times = Histogram()
        """Milliseconds of all answered lookups, successful or not."""

    def answered_at_once(self) -> None:
        self.answers += 1
        self.times.observe(0.0)
