"""Ledger after ledger that fails without a confirmed entry, as on a full disk: each waits longer than the one before. Pure."""

from __future__ import annotations

from quire.world.backoff import Backoff
from quire.world.doors import Rng

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0


class BarrenLedgers:
    """Times are trio's, in seconds."""

    def __init__(self, timeout_s: float, rng: Rng) -> None:
        self._timeout_s = timeout_s
        """From the first one on, after which what waits is given up."""
        self._since: float | None = None
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, rng)

    def fruitful(self) -> None:
        """The last ledger confirmed something, or did not fail."""
        self._since = None

    def failed(self, now: float) -> tuple[float | None, float]:
        """One more: how long to pause before the next (None: give up; the one after that begins anew), and until when it may be
        tried for."""
        if self._since is None:
            self._since = now
            self._backoff.reset()
        deadline = self._since + self._timeout_s
        pause_s = self._backoff.next()
        if now + pause_s > deadline:
            self._since = None
            return None, deadline
        return pause_s, deadline
