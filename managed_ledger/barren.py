"""Ledger after ledger that fails without a confirmed entry, as on a full disk: each waits longer than the one before. Pure."""

from __future__ import annotations

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0


class BarrenLedgers:
    """Times are trio's, in seconds."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        """From the first one on, after which what waits is given up."""
        self._since: float | None = None
        self._pause_s = 0.0

    def fruitful(self) -> None:
        """The last ledger confirmed something, or did not fail."""
        self._since = None

    def failed(self, now: float) -> tuple[float | None, float]:
        """One more: how long to pause before the next (None: give up; the one after that begins anew), and until when it may be
        tried for."""
        if self._since is None:
            self._since, self._pause_s = now, RETRY_FIRST_S
        deadline = self._since + self._timeout_s
        if now + self._pause_s > deadline:
            self._since = None
            return None, deadline
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RETRY_MAX_S)
        return pause_s, deadline
