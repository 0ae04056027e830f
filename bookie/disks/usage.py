"""DiskUsage: decides by the used fraction of its disks which ledger directories accept entries (pure).

    writable --- used > threshold ---> full
    full ------- used <= threshold, and another directory is writable or all together are below the low-water mark --->
                 writable

The low-water mark keeps a bookie whose directories are all full from switching back and forth. It counts each file
system once.
Source: BookKeeper's LedgerDirsMonitor and DiskChecker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Space(NamedTuple):
    """Space of the file system that a directory is on, in bytes. `device`: the number of the file system."""

    free: int
    total: int
    device: int

    @property
    def used(self) -> float:
        """Used fraction."""
        return 1 - self.free / self.total if self.total else 1.0


class DiskUsage:
    """Usage of the ledger directories, by their place in the configuration."""

    def __init__(self, count: int, *, threshold: float, warn_threshold: float, low_water_mark: float) -> None:
        self._threshold = threshold
        self._warn_threshold = warn_threshold
        self._low_water_mark = low_water_mark
        self.used = [0.0] * count
        """Used fraction of each directory, as last measured; of several folders the fullest."""
        self.full = [False] * count

    def fill(self) -> None:
        """Count all directories as full until they are measured below the low-water mark."""
        self.full = [True] * len(self.full)

    def almost_full(self, directory: int) -> bool:
        """Return whether a directory is above the threshold of warnings."""
        return self.full[directory] or self.used[directory] > self._warn_threshold

    def measured(self, spaces: Sequence[Sequence[Space]]) -> None:
        """Compare with the thresholds. `spaces`: of each directory, the spaces of its entry logs and its indexes."""
        self.used = [max(space.used for space in each) for each in spaces]
        above = [used > self._threshold for used in self.used]
        full = [was or now for was, now in zip(self.full, above, strict=True)]
        if all(full):
            devices = {space.device: space for each in spaces for space in each}.values()
            free, total = sum(space.free for space in devices), sum(space.total for space in devices)
            if Space(free, total, 0).used >= self._low_water_mark:
                self.full = full
                return
        self.full = above

    def why_full(self, directory: int) -> str:
        """Return why a directory accepts no entries; "" if it does."""
        if not self.full[directory]:
            return ""
        used = f"{100 * self.used[directory]:.1f} % are used"
        if self.used[directory] > self._threshold:
            return f"{used}, above diskUsageThreshold={self._threshold:g}"
        return f"{used}; entries are accepted below {100 * self._low_water_mark:.4g} % of all directories together"
