"""BookieHealth: health of each bookie as seen from this client's requests. Pure except for the clock.

    failures, overtakings     for a minute: other bookies are asked first              (ReadHealth)
    pending requests          a bookie with far more than the least busy is asked last  (ReadHealth)
    errors                    counted for the watcher, which quarantines bookies      (FaultCounts)
    unreachable               for some seconds: new ledgers avoid them if possible
    answer times              decide when a read is sent to a second bookie

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
"""Deviations added to the mean, as TCP does for round-trip times: RFC 6298."""

UNREACHABLE_S = 3.0
"""Seconds for which an unreachable bookie is kept out of new ledgers: until its session expires, or it is back."""

DOUBTFUL_S = 60.0
"""Seconds after a failure to reach a bookie during which it must answer once before a new ledger uses it."""

HARMLESS = frozenset({Rc.OK, Rc.NO_ENTRY, Rc.NO_LEDGER, Rc.FENCED, Rc.READ_ONLY})
"""Results that do not count against the bookie."""
OF_THE_LEDGER = frozenset({Rc.UNAUTHORIZED, Rc.BAD_REQUEST, Rc.BAD_VERSION})
"""Errors that other bookies would return too."""


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
    """Health records of one ledger client, one small record per bookie it has used."""

    def __init__(self, memory_s: float = 60.0) -> None:
        """`memory_s`: seconds for which a failure is a reason to ask other bookies first."""
        self._memory_s = memory_s
        self._bookies: dict[str, _Bookie] = {}

    # --- events

    def asked(self, bookie_id: str, count: int = 1) -> None:
        """Record that `count` requests were sent to the bookie."""
        self._of(bookie_id).pending += count

    def answered(self, bookie_id: str, count: int = 1) -> None:
        """Record that `count` requests are no longer pending."""
        self._of(bookie_id).pending -= count

    def took(self, bookie_id: str, seconds: float) -> None:
        """Record the time an answer took."""
        bookie = self._of(bookie_id)
        if bookie.mean_s < 0:
            bookie.mean_s = seconds
            bookie.deviation_s = seconds / 2
            return
        error = seconds - bookie.mean_s
        bookie.mean_s += GAIN * error
        bookie.deviation_s += DEVIATION_GAIN * (abs(error) - bookie.deviation_s)

    def overtaken(self, bookie_id: str) -> None:
        """Record that another bookie, asked later, answered before this one."""
        self._of(bookie_id).failed_at = trio.current_time()

    def refused(self, bookie_id: str, rc: int) -> None:
        """Record an answer with this result code."""
        if rc in HARMLESS:
            return
        bookie = self._of(bookie_id)
        bookie.errors += 1
        if rc not in OF_THE_LEDGER:
            bookie.failed_at = trio.current_time()

    def failed(self, bookie_id: str, error: BookieError) -> None:
        """Record a failed request or add.

        An unreachable bookie gets no error count: a dead one does not stay registered.
        """
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
        """Record that the bookie answered, whatever the answer was."""
        self._of(bookie_id).lost_at = -inf

    # --- queries

    def expected_s(self, bookie_id: str) -> float:
        """Return the time within which the bookie nearly always answers, in seconds; 0 if it was never asked."""
        bookie = self._bookies.get(bookie_id)
        return 0.0 if bookie is None or bookie.mean_s < 0 else bookie.mean_s + DEVIATIONS * bookie.deviation_s

    def pending(self, bookie_id: str) -> int:
        """Return the number of reads that the bookie has not answered."""
        bookie = self._bookies.get(bookie_id)
        return 0 if bookie is None else bookie.pending

    def failed_at(self, bookie_id: str) -> float | None:
        """Return when the bookie last failed or was overtaken, if that is recent; None otherwise."""
        bookie = self._bookies.get(bookie_id)
        if bookie is None or bookie.failed_at is None:
            return None
        if bookie.failed_at + self._memory_s <= trio.current_time():
            bookie.failed_at = None
        return bookie.failed_at

    def unreachable(self) -> frozenset[str]:
        """Return the bookies that could not be reached a moment ago, though they may still be registered."""
        since = trio.current_time() - UNREACHABLE_S
        return frozenset([bookie_id for bookie_id, bookie in self._bookies.items() if bookie.lost_at > since])

    def is_doubtful(self, bookie_id: str) -> bool:
        """Return whether the bookie could not be reached some time ago and has not been reached since."""
        bookie = self._bookies.get(bookie_id)
        return bookie is not None and bookie.lost_at > trio.current_time() - DOUBTFUL_S

    def take_errors(self) -> Mapping[str, int]:
        """Return the errors and timeouts per bookie since the last call, without bookies that have none."""
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
