"""JournalBacklog: warns of a journal that grows, because its mark cannot move or its files cannot be deleted.

A ledger directory that has failed holds back the marks of the journals whose records it has not stored: only a restart
ends that. A journal's own directory may also fail to delete files. Neither refuses an add, so a person must learn of it
before the disk is full: `quire_bookie_journal_backlog_bytes`, a line in the log for each doubling, and `quire doctor`.
Behind a ledger directory the growth has a bound, at which the bookie takes no more adds. The journal is the only place
that has what the directory has not stored, so nothing else loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bookie.journal.format import NO_MARK, LogMark
from quire.service.log import get_logger

log = get_logger(__name__)

FILES_MAX: Final = 4
"""Full journal files that a bookie may keep before the first warning. A bookie that flushes has fewer than two."""


class JournalBacklog:
    """Backlog of one journal in `folder`, whose files have up to `file_size_max` bytes. Its mark moves more often than
    every `patience_s`, if nothing is wrong. `bound`: bytes that it may have behind a ledger directory; 0: any number.
    """

    def __init__(self, folder: str, file_size_max: int, patience_s: float, bound: int = 0) -> None:
        self._folder = folder
        self._least = FILES_MAX * file_size_max
        self._patience_s = patience_s
        self._bound = bound
        self._warn_at = self._least
        self._trimmed = NO_MARK
        self._since = float("inf")
        """Time since which no file was deleted."""

    def look(self, size: int, trimmed: LogMark, holding: Sequence[str], now: float) -> None:
        """Warn if the journal has grown too long, and to twice the size of the last warning.

        `trimmed`: position up to which its files were deleted. `holding`: folders that hold it back.
        """
        if trimmed != self._trimmed or self._since > now:
            self._trimmed, self._since, self._warn_at = trimmed, now, self._least
        elif size >= self._warn_at and now >= self._since + self._patience_s:
            self._warn_at = 2 * size
            log.warning(
                "journal grows, its files cannot be deleted",
                folder=self._folder,
                bytes=size,
                held_by=", ".join(holding) or "its own folder",
            )

    def why_full(self, size: int, holding: Sequence[str]) -> str:
        """Return why no more adds may be taken; "" if they may. Arguments as of `look`."""
        if not self._bound or not holding or size < self._bound:
            return ""
        return (
            f"{self._folder} has {size >> 20} MB of journal, above quireJournalBacklogMaxMb={self._bound >> 20}: "
            f"{', '.join(holding)} does not store its entries: replace the disk and restart"
        )
