"""Fill limits of one open ledger, as marks that are cheap to compare with at each append. Pure.

Age moves the marks: below the least age a ledger has none, so `at_age` is asked every now and then. Times are trio's,
in seconds.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from managed_ledger.writing.rollover import NO_LIMIT, RolloverLimits


class Fill(Enum):
    ROOM = "room"
    NEARLY_FULL = "nearly full"
    FULL = "full"


class LedgerMarks:
    """Fill marks of a log's current ledger; reset for each new ledger."""

    __slots__ = (
        "_check_at",
        "_ledger_id",
        "_limits",
        "_opened_at",
        "entries_max",
        "entries_near",
        "size_max",
        "size_near",
    )

    def __init__(self, limits: RolloverLimits) -> None:
        self._limits = limits
        self._ledger_id = 0
        self._opened_at = self._check_at = 0.0
        self.entries_max = self.size_max = self.entries_near = self.size_near = NO_LIMIT

    def begin(self, ledger_id: int, now: float) -> None:
        """Start with a new, empty ledger."""
        self._ledger_id = ledger_id
        self._opened_at = now
        self._check_at = 0.0
        self._set(0.0)

    def filled(self, entries: int, size: int) -> Fill:
        """Return the fill state by entries and bytes alone."""
        if entries >= self.entries_max or size >= self.size_max:
            return Fill.FULL
        return Fill.NEARLY_FULL if entries >= self.entries_near or size >= self.size_near else Fill.ROOM

    def is_due(self, now: float) -> bool:
        """Return whether age may matter by now. A ledger that fills up earlier is noticed by the append that fills
        it."""
        return now >= self._check_at

    def at_age(self, now: float, entries: int, size: int) -> Fill:
        """Return the fill state, including age, and move the marks."""
        age_s = now - self._opened_at
        self._set(age_s)
        limits = self._limits.of_ledger(
            self._ledger_id
        )  # asked for seldom, and not kept: there are thousands of ledgers
        self._check_at = self._opened_at + limits.next_check(age_s)
        if limits.is_full(entries, size, age_s):
            return Fill.FULL
        return Fill.NEARLY_FULL if limits.is_nearly_full(entries, size, age_s) else Fill.ROOM

    def pass_near(self) -> None:
        """Record that a nearly full ledger was noticed: only its end matters from now on."""
        self.entries_near, self.size_near = self.entries_max, self.size_max

    def lift(self) -> None:
        """Remove the marks, because the ledger must not be left, until `at_age` sets them."""
        self.entries_max = self.size_max = self.entries_near = self.size_near = NO_LIMIT
        self._check_at = 0.0

    def rest_until(self, moment: float) -> None:
        """Ignore age until this time."""
        self._check_at = moment

    def _set(self, age_s: float) -> None:
        limits = self._limits
        if age_s >= limits.age_min_s:
            self.entries_max, self.size_max = limits.entries_max, limits.size_max
            self.entries_near, self.size_near = limits.entries_near, limits.size_near
        else:
            self.entries_max = self.size_max = self.entries_near = self.size_near = NO_LIMIT


NO_MARKS: Final = LedgerMarks(RolloverLimits(entries_max=NO_LIMIT, size_max=NO_LIMIT, age_min_s=0.0, age_max_s=0.0))
"""Marks of logs without an open ledger, shared and never changed: a broker may have a hundred thousand of them."""
