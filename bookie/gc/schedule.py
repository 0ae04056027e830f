"""When a bookie compacts its entry logs, and how. Pure.

Source: BookKeeper's GarbageCollectorThread.runWithFlags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bookie.db_ledger_storage.compaction.plan import CompactionKind
from bookie.gc_config import GcConfig


class AskedCompactions(NamedTuple):
    """A compaction that was asked for; a major one comes before a minor one."""

    major: bool = True
    minor: bool = True


@dataclass(slots=True)
class Suspended:
    """Compactions that an operator suspended."""

    major: bool = False
    minor: bool = False


class CompactionSchedule:
    """Decides which compaction is due. Times are trio's, in seconds."""

    def __init__(self, config: GcConfig, now: float) -> None:
        self._config = config
        self._last = dict.fromkeys(CompactionKind, now)
        self.suspended = Suspended()

    def due(
        self, now: float, *, asked: AskedCompactions | None = None, full: bool = False, almost_full: bool = False
    ) -> CompactionKind | None:
        """Return the compaction to run now, unless it rests: all while a disk is full, major ones while one is above
        the threshold of warnings. What is asked for does not rest.
        """
        config, suspended = self._config, self.suspended
        if asked is None:
            major = not suspended.major and not full and not almost_full
            minor = not suspended.minor and not full
        else:
            major, minor = asked
        if asked is None:
            major = major and config.major_enabled and now - self._last[CompactionKind.MAJOR] >= config.major_interval_s
            minor = minor and config.minor_enabled and now - self._last[CompactionKind.MINOR] >= config.minor_interval_s
        else:
            always = config.force_allow_compaction
            major = major and (config.major_enabled or (always and config.major_threshold > 0))
            minor = minor and (config.minor_enabled or (always and config.minor_threshold > 0))
        return CompactionKind.MAJOR if major else CompactionKind.MINOR if minor else None

    def goes_on(self, kind: CompactionKind, *, asked: bool, full: bool, almost_full: bool = False) -> bool:
        """Return whether a compaction that runs may go on."""
        if asked:
            return True
        if kind is CompactionKind.MAJOR:
            return not full and not almost_full and not self.suspended.major
        return not full and not self.suspended.minor

    def ran(self, kind: CompactionKind, now: float) -> None:
        """Record the end of a compaction. A major one has done a minor one's work too."""
        self._last[kind] = now
        if kind is CompactionKind.MAJOR:
            self._last[CompactionKind.MINOR] = now

    def bounds(self, kind: CompactionKind) -> tuple[float, float]:
        """Return the threshold of a compaction, and the seconds it may take (0: no bound)."""
        config = self._config
        if kind is CompactionKind.MAJOR:
            return config.major_threshold, max(0, config.major_max_ms) / 1000
        return config.minor_threshold, max(0, config.minor_max_ms) / 1000
