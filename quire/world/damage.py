"""Damage: what was found to be wrong with a file, and the error that refuses to go on with it."""

from __future__ import annotations

import errno
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One file that is not as it was written. `loses`: what it held is not all there any more, so that nothing may be started
    on it; otherwise it is only noted, for nothing is lost by it."""

    file: str
    what: str
    """What is wrong, as the end of a sentence that begins with the file."""
    remedy: str = ""
    """What can be done, a sentence."""
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
