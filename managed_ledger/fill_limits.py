"""How far one open ledger may be filled, as marks that each append can be compared with at once. Pure.

Age moves the marks: below the least age a ledger has none, so `at_age` is asked every now and then. Times are trio's, in seconds.
"""

from __future__ import annotations

from enum import Enum

from managed_ledger.rollover import NO_LIMIT, RolloverLimits


class Fill(Enum):
    ROOM = "room"
    NEARLY_FULL = "nearly full"
    FULL = "full"


class LedgerMarks:
    """Those of the current ledger of a log, one ledger after the other."""

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
        """This empty ledger is the current one."""
        self._ledger_id = ledger_id
        self._opened_at = now
        self._check_at = 0.0
        self._set(0.0)

    def filled(self, entries: int, size: int) -> Fill:
        """By its entries and bytes alone."""
        if entries >= self.entries_max or size >= self.size_max:
            return Fill.FULL
        return Fill.NEARLY_FULL if entries >= self.entries_near or size >= self.size_near else Fill.ROOM

    def is_due(self, now: float) -> bool:
        """Whether age may matter by now; what fills up before is noticed by whoever fills it."""
        return now >= self._check_at

    def at_age(self, now: float, entries: int, size: int) -> Fill:
        """By its age too; moves the marks."""
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
        """That it is nearly full was noticed: only its end matters now."""
        self.entries_near, self.size_near = self.entries_max, self.size_max

    def lift(self) -> None:
        """It must not be left: no marks, until `at_age` sets them."""
        self.entries_max = self.size_max = self.entries_near = self.size_near = NO_LIMIT
        self._check_at = 0.0

    def rest_until(self, moment: float) -> None:
        """Age does not matter before."""
        self._check_at = moment

    def _set(self, age_s: float) -> None:
        limits = self._limits
        if age_s >= limits.age_min_s:
            self.entries_max, self.size_max = limits.entries_max, limits.size_max
            self.entries_near, self.size_near = limits.entries_near, limits.size_near
        else:
            self.entries_max = self.size_max = self.entries_near = self.size_near = NO_LIMIT
