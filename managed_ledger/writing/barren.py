"""Retries after ledgers that failed without a confirmed entry, as on a full disk, each after a longer wait. Pure."""

from __future__ import annotations

from quire.world.backoff import Backoff
from quire.world.doors import Rng

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0


class BarrenLedgers:
    """Successive failed ledgers. Times are trio's, in seconds."""

    def __init__(self, timeout_s: float, rng: Rng) -> None:
        self._timeout_s = timeout_s
        """Time from the first one after which the queued appends fail."""
        self._since: float | None = None
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, rng)

    def fruitful(self) -> None:
        """Reset, because the last ledger confirmed something, or did not fail."""
        self._since = None

    def failed(self, now: float) -> tuple[float | None, float]:
        """Record a failed ledger; return the pause before the next one, and until when its creation may be retried.

        A pause of None means to give up; the one after that starts again."""
        if self._since is None:
            self._since = now
            self._backoff.reset()
        deadline = self._since + self._timeout_s
        pause_s = self._backoff.next()
        if now + pause_s > deadline:
            self._since = None
            return None, deadline
        return pause_s, deadline
