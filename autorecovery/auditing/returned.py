"""Which bookies were away since their copies were last known to be there, from their sessions (pure).

A bookie that is killed, or loses its session, and is back before anything is copied away may lack copies of the entries that
others confirmed at that moment. The list of registered bookies need not show it: between two looks the bookie may have gone and
come back. Its session shows it: every start and every lost session has another one.

    <root>/underreplication/sessions/<bookie id>    persistent: the session, decimal, in which it was last known to be whole

A note is written when the check after a return is done, and again from time to time while the bookie stays; so its time says
until when all ledgers were looked after. An auditor that begins reads what those before it knew. The originals do not look there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MARGIN_MS: Final = 300_000
"""A bookie may have been dead for so long before its node went, or an add to it under way: timeouts of sessions and of adds, and
what clocks differ by."""
SETTLED_S: Final = 60.0
"""So long after the return of a bookie its open ledgers are looked at: longer than a writer takes to replace a member."""


@dataclass(frozen=True, slots=True)
class SessionNote:
    """Record that is stored of one bookie."""

    session: int
    modified_ms: int | None
    """When it was written, by the metadata service's clock; None if that is not known."""


@dataclass(slots=True)
class Return:
    """One bookie that is back, and is being checked."""

    session: int
    since_ms: int | None
    """Ledgers that were stored before are not concerned; None: all are."""
    begun_at: float
    open_ledgers: set[int] | None = None
    """Once all ledgers were looked at: those to look at again."""

    def concerns(self, modified_ms: int | None) -> bool:
        """Return whether a ledger that names the bookie, and was stored then, may lack copies on it.

        >>> Return(7, 100, 0.0).concerns(99), Return(7, 100, 0.0).concerns(100), Return(7, None, 0.0).concerns(5)
        (False, True, True)
        """
        return self.since_ms is None or modified_ms is None or modified_ms >= self.since_ms


class Returns:
    """Bookies that were away, and are not known to be whole again. Times in seconds on one clock."""

    def __init__(self, notes: Mapping[str, SessionNote], checked_ms: int | None) -> None:
        """`checked_ms`: when all ledgers were checked last, for bookies that have no note; None for never."""
        self.notes = dict(notes)
        self.under_way: dict[str, Return] = {}
        self.registered: dict[str, int] = {}
        self._checked_ms = checked_ms

    def registered_now(self, now: float, sessions: Mapping[str, int]) -> None:
        """These bookies are registered, in these sessions."""
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
        """Those for which all ledgers are to be looked at."""
        return {bookie_id: each for bookie_id, each in self.under_way.items() if each.open_ledgers is None}

    def to_look_at_again(self) -> dict[int, frozenset[str]]:
        """Ledgers, and the bookies to compare them with."""
        found: dict[int, set[str]] = {}
        for bookie_id, each in self.under_way.items():
            for ledger_id in each.open_ledgers or ():
                found.setdefault(ledger_id, set()).add(bookie_id)
        return {ledger_id: frozenset(found[ledger_id]) for ledger_id in sorted(found)}

    def is_settled(self, bookie_id: str, now: float) -> bool:
        """Return whether the bookie is back for so long that a writer which goes on with it lacks nothing of it."""
        each = self.under_way.get(bookie_id)
        return each is None or now - each.begun_at >= SETTLED_S

    def done(self) -> list[str]:
        """Bookies of which every ledger was looked at."""
        return [bookie_id for bookie_id, each in self.under_way.items() if each.open_ledgers == set()]

    def steady(self) -> list[str]:
        """Bookies that were whole, and have not gone since."""
        return [bookie_id for bookie_id in self.registered if bookie_id not in self.under_way]

    def noted(self, bookie_id: str, note: SessionNote) -> None:
        """The note was stored."""
        self.notes[bookie_id] = note
        self.under_way.pop(bookie_id, None)
