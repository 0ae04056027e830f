"""BookieHealth: what a client knows of each bookie from its own requests. Pure but for the clock.

    failures, overtakings     for a minute: other bookies are asked first               (ReadHealth)
    requests under way        who has far more than the least busy one is asked last    (ReadHealth)
    errors                    counted for the watcher, which puts bookies into quarantine (FaultCounts)
    out of reach              for some seconds: new ledgers go without them if they can
    how long answers take     when a read is worth asking somebody else too

Source: BookKeeper's BookiesHealthInfo, PerChannelBookieClient (which results are errors), PendingReadOp (slow bookies).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import trio

from quire.ledger.errors import BookieError, BookieRefusedError, BookieUnavailableError
from quire.wire.bookkeeper.v2 import Rc

GAIN = 0.125
DEVIATION_GAIN = 0.25
DEVIATIONS = 4.0
"""As TCP smooths round-trip times: RFC 6298."""

UNREACHABLE_S = 3.0
"""So long a bookie that could not be reached is kept out of new ledgers: until its session is over, or it is back."""

DOUBTFUL_S = 60.0
"""So long a bookie that could not be reached has to answer once before a new ledger is made on it."""

HARMLESS = frozenset({Rc.OK, Rc.NO_ENTRY, Rc.NO_LEDGER, Rc.FENCED, Rc.READ_ONLY})
"""Results that say nothing against the bookie."""
OF_THE_LEDGER = frozenset({Rc.UNAUTHORIZED, Rc.BAD_REQUEST, Rc.BAD_VERSION})
"""Errors, but others would answer the same."""


class _Bookie:
    __slots__ = ("deviation_s", "errors", "failed_at", "lost_at", "mean_s", "pending")

    def __init__(self) -> None:
        self.pending = 0
        self.errors = 0
        self.failed_at: float | None = None
        self.lost_at = -inf
        self.mean_s = -1.0
        self.deviation_s = 0.0


class BookieHealth:
    """Of one ledger client; one small record per bookie that it ever asked."""

    def __init__(self, memory_s: float = 60.0) -> None:
        """`memory_s`: so long a failure is a reason to ask others first."""
        self._memory_s = memory_s
        self._bookies: dict[str, _Bookie] = {}

    # --- what happens

    def asked(self, bookie_id: str, count: int = 1) -> None:
        """`count` requests are under way to it."""
        self._of(bookie_id).pending += count

    def answered(self, bookie_id: str, count: int = 1) -> None:
        """They are not any more."""
        self._of(bookie_id).pending -= count

    def took(self, bookie_id: str, seconds: float) -> None:
        """An answer came after so long."""
        bookie = self._of(bookie_id)
        if bookie.mean_s < 0:
            bookie.mean_s = seconds
            bookie.deviation_s = seconds / 2
            return
        error = seconds - bookie.mean_s
        bookie.mean_s += GAIN * error
        bookie.deviation_s += DEVIATION_GAIN * (abs(error) - bookie.deviation_s)

    def overtaken(self, bookie_id: str) -> None:
        """Another bookie, asked later, answered before it."""
        self._of(bookie_id).failed_at = trio.current_time()

    def refused(self, bookie_id: str, rc: int) -> None:
        """It answered with this result code."""
        if rc in HARMLESS:
            return
        bookie = self._of(bookie_id)
        bookie.errors += 1
        if rc not in OF_THE_LEDGER:
            bookie.failed_at = trio.current_time()

    def failed(self, bookie_id: str, error: BookieError) -> None:
        """A request failed, or an add. That a bookie cannot be reached is no error of it: who is gone is not registered either."""
        if isinstance(error, BookieRefusedError):
            self.refused(bookie_id, error.rc)
            return
        bookie = self._of(bookie_id)
        bookie.failed_at = trio.current_time()
        if type(error) is BookieUnavailableError:
            bookie.lost_at = bookie.failed_at
        else:
            bookie.errors += 1

    def reached(self, bookie_id: str) -> None:
        """It answered, whatever that was."""
        self._of(bookie_id).lost_at = -inf

    # --- what is known

    def expected_s(self, bookie_id: str) -> float:
        """In how many seconds it answers nearly always; 0 if it was never asked."""
        bookie = self._bookies.get(bookie_id)
        return 0.0 if bookie is None or bookie.mean_s < 0 else bookie.mean_s + DEVIATIONS * bookie.deviation_s

    def pending(self, bookie_id: str) -> int:
        """Reads that the bookie has not answered."""
        bookie = self._bookies.get(bookie_id)
        return 0 if bookie is None else bookie.pending

    def failed_at(self, bookie_id: str) -> float | None:
        """When the bookie last failed or was overtaken, if that is not too long ago; None otherwise."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None or bookie.failed_at is None:
            return None
        if bookie.failed_at + self._memory_s <= trio.current_time():
            bookie.failed_at = None
        return bookie.failed_at

    def unreachable(self) -> frozenset[str]:
        """The bookies that could not be reached a moment ago, though they may still be registered."""
        since = trio.current_time() - UNREACHABLE_S
        return frozenset([bookie_id for bookie_id, bookie in self._bookies.items() if bookie.lost_at > since])

    def is_doubtful(self, bookie_id: str) -> bool:
        """Return whether the bookie could not be reached some time ago, and has not been since."""
        bookie = self._bookies.get(bookie_id)
        return bookie is not None and bookie.lost_at > trio.current_time() - DOUBTFUL_S

    def take_errors(self) -> Mapping[str, int]:
        """Errors and timeouts per bookie since the last call; those without any are not in it."""
        errors: dict[str, int] = {}
        for bookie_id, bookie in self._bookies.items():
            if bookie.errors:
                errors[bookie_id] = bookie.errors
                bookie.errors = 0
        return errors

    def _of(self, bookie_id: str) -> _Bookie:
        bookie = self._bookies.get(bookie_id)
        if bookie is None:
            bookie = self._bookies[bookie_id] = _Bookie()
        return bookie
