"""What a broker counts of the lookups that clients ask it over their connections; plain numbers, read by the metrics."""

from __future__ import annotations

from quire.service.metrics import Histogram


class LookupCounts:
    """Lookups answered within the pass count as taking no time."""

    __slots__ = ("answers", "failures", "pending", "redirects", "times")

    def __init__(self) -> None:
        self.answers = 0
        """Told which broker it is."""
        self.redirects = 0
        """Told which broker to ask."""
        self.failures = 0
        self.pending = 0
        """Not answered yet."""
        self.times = Histogram()
        """Milliseconds, of all that were answered, however."""

    def answered_at_once(self) -> None:
        self.answers += 1
        self.times.observe(0.0)
