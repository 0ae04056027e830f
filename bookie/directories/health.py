"""Health of a bookie's ledger directories and journals: which of them cannot be used, and why.

A directory that fails takes its own ledgers with it and no others:

    failed    a sync, a write or a deletion failed for another reason than a full disk. Final: only a restart can
              determine what is on the disk.
    stalled   it has not finished a flush for STALLED_AFTER_S. It is used again when it has.

Requests for its ledgers are answered with Rc.IO, which makes clients replace this bookie in the ledger's ensemble and
read from another replica. What the directory has not flushed stays in the journals, whose marks do not pass it.

The last directory and the last journal cannot be isolated: then the bookie has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bookie.errors import DirectoryUnavailableError
from quire.service.log import get_logger

log = get_logger(__name__)

STALLED_AFTER_S: Final = 30.0
"""Seconds that a flush may take. Much longer than a flush of a full write cache takes on a slow disk."""


class DirectoryHealth:
    """State of the directories of one kind, `kind` in log lines."""

    def __init__(self, kind: str, folders: tuple[str, ...]) -> None:
        self._kind = kind
        self.folders = folders
        self.reasons = [""] * len(folders)
        """Why each directory cannot be used, "" if it can."""
        self._final = [False] * len(folders)
        self.changed: Callable[[int], None] = lambda index: None
        """Called when a directory can no longer be used, or can be again."""

    def is_final(self, index: int) -> bool:
        """Return whether the directory has failed, so that only a restart helps."""
        return self._final[index]

    @property
    def usable(self) -> list[int]:
        """Return the numbers of the directories that can be used."""
        return [index for index, reason in enumerate(self.reasons) if not reason]

    @property
    def all_failed(self) -> bool:
        return all(self._final)

    @property
    def any_failed(self) -> bool:
        return any(self._final)

    def failed(self, index: int, reason: str) -> None:
        """Record that the directory has failed for good."""
        if self._final[index]:
            return
        self._final[index] = True
        self.reasons[index] = reason
        log.error(
            f"{self._kind} failed, refusing its ledgers until a restart", folder=self.folders[index], reason=reason
        )
        self.changed(index)

    def stalled(self, index: int) -> None:
        """Record that the directory does not answer."""
        if not self.reasons[index]:
            self.reasons[index] = "its disk does not answer"
            log.error(f"{self._kind} does not answer, refusing its ledgers", folder=self.folders[index])
            self.changed(index)

    def answers(self, index: int) -> None:
        """Record that the directory has answered."""
        if self.reasons[index] and not self._final[index]:
            self.reasons[index] = ""
            log.info(f"{self._kind} answers again", folder=self.folders[index])
            self.changed(index)

    def check(self, index: int) -> None:
        """Raise DirectoryUnavailableError if the directory cannot be used."""
        reason = self.reasons[index]
        if reason:
            raise DirectoryUnavailableError(f"{self.folders[index]}: {reason}")
