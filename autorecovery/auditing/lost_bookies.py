"""AuditSchedule: decides from the registered bookies when to look for ledgers that lack copies (pure).

    a bookie was known and is not registered          lost
    exactly one is newly lost, and there is a delay   audit when the delay is over, unless it is back by then
    more are, or there is no delay                    audit now
    the delay is set to 0, or again to what it was    audit now
    the delay is set to something else                bookies in their delay get the new one, from now on
    the periodic check                                audit now, unless a bookie is in its delay

A bookie is known from its cookie, or from an earlier registration. A bookie that was audited is ignored until it
returns.

Unlike in the original the delay also applies to an auditor that has just begun: a bookie that died with the former
auditor gets its delay like others.

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
        """Time at which the next audit begins; infinity if no audit is wanted."""
        self.waiting: frozenset[str] = frozenset()
        """Bookies that are lost and were not audited yet."""
        self.delayed = 0
        self.cancelled = 0
        self._known: set[str] = set()
        self._audited: frozenset[str] = frozenset()

    def registered(self, now: float, present: Collection[str], known: Collection[str] = ()) -> None:
        """Take the bookies registered now, writable or read-only, and the bookies that have a cookie."""
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
        """Take a new recovery delay."""
        forced = delay_s <= 0 or delay_s == self.delay_s
        self.delay_s = delay_s
        if forced:
            self.due = min(self.due, now)
        elif now < self.due < inf:
            self.due = now + delay_s
            self.delayed += 1

    def check(self, now: float) -> bool:
        """Begin the periodic check. Return False if a bookie is in its delay, because the check would be of no use."""
        if self.due != inf:
            return False
        self.due = now
        return True

    def begun(self) -> None:
        """Record that an audit has begun: it will see all bookies lost by now."""
        self._audited |= self.waiting
        self.waiting = frozenset()
        self.due = inf

    def failed(self, retry_at: float) -> None:
        """Record that the audit in progress failed."""
        self.due = min(self.due, retry_at)

    def held(self, now: float) -> frozenset[str]:
        """Return the bookies in their delay: an audit that runs for another reason must leave them out."""
        return self.waiting if self.due > now else frozenset()


def lost_of(indexed: Collection[str], present: Collection[str], held: Collection[str]) -> list[str]:
    """Return those of the bookies named by ledgers that are lost and past their delay, sorted."""
    return sorted(set(indexed).difference(present, held))
