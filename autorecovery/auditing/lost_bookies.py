"""AuditSchedule: when to look for ledgers that lack copies, from who is registered (pure).

    a bookie was known and is not registered          lost
    exactly one is newly lost, and there is a delay   audit when the delay is over, unless it is back by then
    more are, or there is no delay                    audit now
    the delay is set to 0, or again to what it was    audit now
    the delay is set to something else                what is waited for waits for the new delay, from now on
    the check that comes from time to time            audit now, unless one is waited for

A bookie is known from its cookie, or as it was registered before. One that was audited is no news until it comes back.

Unlike in the original the delay holds for an auditor that has just begun, too: whoever died with the former auditor is waited
for like others.

Source: BookKeeper's Auditor (submitAuditTask, submitLostBookieRecoveryDelayChangedEvent).
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf


class AuditSchedule:
    """Times are the caller's, in seconds on one clock."""

    def __init__(self, delay_s: int) -> None:
        self.delay_s = delay_s
        self.due = inf
        """When the next audit is to begin; infinity for "no audit is wanted"."""
        self.waiting: frozenset[str] = frozenset()
        """Bookies that are lost, and were not audited yet."""
        self.delayed = 0
        self.cancelled = 0
        self._known: set[str] = set()
        self._audited: frozenset[str] = frozenset()

    def registered(self, now: float, present: Collection[str], known: Collection[str] = ()) -> None:
        """Who is registered now, writable or not, and who has a cookie."""
        self._known.update(present, known)
        lost = self._known.difference(present)
        self._audited &= lost
        were_waiting, self.waiting = self.waiting, self.waiting & lost
        if were_waiting and not self.waiting and self.due > now:
            self.due = inf
            self.cancelled += 1
        new = lost - self._audited - self.waiting
        if not new:
            return
        self.waiting |= new
        if self.delay_s <= 0 or len(self.waiting) > 1:
            self.due = min(self.due, now)
        elif self.due == inf:
            self.due = now + self.delay_s
            self.delayed += 1

    def delay_set(self, now: float, delay_s: int) -> None:
        """Somebody said how long a lost bookie is waited for."""
        forced = delay_s <= 0 or delay_s == self.delay_s
        self.delay_s = delay_s
        if forced:
            self.due = min(self.due, now)
        elif now < self.due < inf:
            self.due = now + delay_s
            self.delayed += 1

    def check(self, now: float) -> bool:
        """It is time to look without a reason. False if one is waited for, so that this is to no use."""
        if self.due != inf:
            return False
        self.due = now
        return True

    def begun(self) -> None:
        """An audit has begun: it will see whoever is lost by now."""
        self._audited |= self.waiting
        self.waiting = frozenset()
        self.due = inf

    def failed(self, retry_at: float) -> None:
        """The audit that had begun was not done."""
        self.due = min(self.due, retry_at)

    def held(self, now: float) -> frozenset[str]:
        """Bookies that are waited for: an audit that runs for another reason is to leave them out."""
        return self.waiting if self.due > now else frozenset()


def lost_of(indexed: Collection[str], present: Collection[str], held: Collection[str]) -> list[str]:
    """Of the bookies that ledgers name, those that are lost for good, sorted."""
    return sorted(set(indexed).difference(present, held))
