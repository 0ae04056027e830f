"""MarkBarrier: decides how far the mark of each journal may move. Pure.

Why this is hard: the ledgers of one journal lie in all directories, which flush at different times. A mark moved after
the flush of one of them would pass records that another has only in memory, and a crash would lose them.

Each flush therefore notes the position that every journal had before it began: its directory now has everything up to
there. The mark of a journal is the lowest of these positions. A failed directory holds it back for ever, unless it has
nothing unflushed of that journal.

Source of the need: BookKeeper's #3329 and #4844.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from bookie.journal.format import NO_MARK, LogMark


class Round(NamedTuple):
    """Facts taken before a flush: positions of the journals, and removed ledgers that they cover, by directory."""

    marks: list[LogMark]
    removed: dict[int, list[int]]


class MarkBarrier:
    """Positions up to which each directory has each journal."""

    def __init__(self, directories: int, marks: Sequence[LogMark]) -> None:
        """`marks`: positions up to which all directories have the journals."""
        self._flushed = [list(marks) for _ in range(directories)]
        self._excused: list[frozenset[int]] = [frozenset()] * directories

    def flushed(self, directory: int, marks: Sequence[LogMark]) -> None:
        """Record that the directory has everything before `marks`, one for each journal."""
        flushed = self._flushed[directory]
        for journal, mark in enumerate(marks):
            flushed[journal] = max(flushed[journal], mark)

    def replayed(self, directory: int, journal: int, mark: LogMark) -> None:
        """Record that the directory has one journal up to `mark`."""
        self._flushed[directory][journal] = max(self._flushed[directory][journal], mark)

    def failed(self, directory: int, needed: Collection[int]) -> None:
        """Record that the directory flushes no more; it has unflushed records of the journals `needed`."""
        journals = range(len(self._flushed[directory]))
        self._excused[directory] = frozenset(journal for journal in journals if journal not in needed)

    def mark(self, journal: int) -> LogMark:
        """Return the position up to which every directory has the journal."""
        return min(
            (
                flushed[journal]
                for flushed, excused in zip(self._flushed, self._excused, strict=True)
                if journal not in excused
            ),
            default=NO_MARK,
        )

    def holding(self, journal: int) -> list[int]:
        """Return the directories that hold back the journal's mark, if others are further."""
        mark = self.mark(journal)
        places = enumerate(zip(self._flushed, self._excused, strict=True))
        at = {directory: flushed[journal] for directory, (flushed, excused) in places if journal not in excused}
        behind = [directory for directory, place in at.items() if place == mark]
        return behind if len(behind) < len(at) else []
