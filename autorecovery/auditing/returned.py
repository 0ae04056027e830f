"""Bookies that were away since their copies were last verified, found by their sessions (pure).

A bookie that is killed, or loses its session, and returns before its ledgers are copied to other bookies may lack
copies of entries that other bookies confirmed at that moment. The list of registered bookies may not show this, because
the bookie may go and return between two reads. Its session shows it: every start and every lost session gets a new one.

    <root>/underreplication/sessions/<bookie id>    persistent: the session, decimal, in which it last had all copies

A note is written when the check after a return is done, and again periodically while the bookie stays. Its time is the
time up to which all ledgers were verified. A new auditor reads the notes of earlier ones. The originals do not read
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MARGIN_MS: Final = 300_000
"""Milliseconds for which a bookie may have been dead before its node was removed, or an add to it in progress: timeouts
of sessions and of adds, and clock differences.
"""
SETTLED_S: Final = 60.0
"""Seconds from the return of a bookie to the check of its open ledgers: longer than a writer takes to replace a member.
"""


@dataclass(frozen=True, slots=True)
class SessionNote:
    """Stored record of one bookie."""

    session: int
    modified_ms: int | None
    """Time of writing by the metadata service's clock; None if unknown."""


@dataclass(slots=True)
class Return:
    """One returned bookie that is being checked."""

    session: int
    since_ms: int | None
    """Ledgers stored before this time are not affected; None: all are."""
    begun_at: float
    open_ledgers: set[int] | None = None
    """Open ledgers to check again, once all ledgers have been compared."""

    def concerns(self, modified_ms: int | None) -> bool:
        """Return whether a ledger that names the bookie, and was stored then, may lack copies on it.

        >>> Return(7, 100, 0.0).concerns(99), Return(7, 100, 0.0).concerns(100), Return(7, None, 0.0).concerns(5)
        (False, True, True)
        """
        return self.since_ms is None or modified_ms is None or modified_ms >= self.since_ms


class Returns:
    """Bookies that were away and are not verified yet. Times in seconds on one clock."""

    def __init__(self, notes: Mapping[str, SessionNote], checked_ms: int | None) -> None:
        """`checked_ms`: time of the last check of all ledgers, for bookies without a note; None for never."""
        self.notes = dict(notes)
        self.under_way: dict[str, Return] = {}
        self.registered: dict[str, int] = {}
        self._checked_ms = checked_ms

    def registered_now(self, now: float, sessions: Mapping[str, int]) -> None:
        """Take the bookies registered now, with their sessions."""
        self.registered = dict(sessions)
        for bookie_id, each in list(self.under_way.items()):
            if sessions.get(bookie_id) != each.session:
                del self.under_way[bookie_id]
        for bookie_id, session in sessions.items():
            note = self.notes.get(bookie_id)
            if bookie_id in self.under_way or (note is not None and note.session == session):
                continue
            known_ms = self._checked_ms if note is None else note.modified_ms
            since_ms = None if known_ms is None else known_ms - MARGIN_MS
            self.under_way[bookie_id] = Return(session, since_ms, now)

    def to_scan(self) -> dict[str, Return]:
        """Return the bookies for which all ledgers must be compared."""
        return {bookie_id: each for bookie_id, each in self.under_way.items() if each.open_ledgers is None}

    def to_look_at_again(self) -> dict[int, frozenset[str]]:
        """Return ledgers to compare again, and the bookies to compare them with."""
        found: dict[int, set[str]] = {}
        for bookie_id, each in self.under_way.items():
            for ledger_id in each.open_ledgers or ():
                found.setdefault(ledger_id, set()).add(bookie_id)
        return {ledger_id: frozenset(found[ledger_id]) for ledger_id in sorted(found)}

    def is_settled(self, bookie_id: str, now: float) -> bool:
        """Return whether the bookie has been back long enough that a writer which uses it again lacks no copy on it."""
        each = self.under_way.get(bookie_id)
        return each is None or now - each.begun_at >= SETTLED_S

    def done(self) -> list[str]:
        """Return the bookies of which every ledger was compared."""
        return [bookie_id for bookie_id, each in self.under_way.items() if each.open_ledgers == set()]

    def steady(self) -> list[str]:
        """Return the bookies that had all their copies and have not been away since."""
        return [bookie_id for bookie_id in self.registered if bookie_id not in self.under_way]

    def noted(self, bookie_id: str, note: SessionNote) -> None:
        """Record that the note was stored."""
        self.notes[bookie_id] = note
        self.under_way.pop(bookie_id, None)
