"""Bugs to plant in bookies with several directories; see bugs.py."""

from __future__ import annotations

from collections.abc import Callable, Collection

from bookie.directories.barrier import MarkBarrier
from bookie.journal.format import LogMark
from simulation.common.patching import Patch


def _directory_passed() -> list[Patch]:
    """The mark of a journal moves as soon as one ledger directory has flushed, not all."""

    def mark(self: MarkBarrier, journal: int) -> LogMark:
        return max(flushed[journal] for flushed in self._flushed)

    return [(MarkBarrier, "mark", mark)]


def _failed_directory_passed() -> list[Patch]:
    """The marks pass what a failed directory has only in memory."""

    def failed(self: MarkBarrier, directory: int, needed: Collection[int]) -> None:
        self._excused[directory] = frozenset(range(len(self._flushed[directory])))

    return [(MarkBarrier, "failed", failed)]


BUGS_OF_DIRECTORIES: dict[str, Callable[[], list[Patch]]] = {
    "directory-passed": _directory_passed,
    "failed-directory-passed": _failed_directory_passed,
}
"""Bugs by name; the docstring describes each."""
