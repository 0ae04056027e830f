"""Damage: a finding about a file, and the error that refuses to continue with it."""

from __future__ import annotations

import errno
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A damaged file.

    `loses`: data of the file is lost, so nothing may be started on it. Otherwise nothing is lost, and it is only
    reported.
    """

    file: str
    what: str
    """Description of the damage, as the end of a sentence that begins with the file."""
    remedy: str = ""
    """Remedy, as a sentence."""
    loses: bool = True

    def __str__(self) -> str:
        return f"{self.file} {self.what}" + (f". {self.remedy}" if self.remedy else "")


class DamagedError(OSError):
    """A file does not hold what was written and synced, or is missing. Final: nothing was changed; restore the file."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(errno.EIO, finding.what, finding.file)
        self.finding = finding

    def __str__(self) -> str:
        return str(self.finding)
