"""Keys of a bookie's disks: when a disk counts as full, and what a bookie with a full disk does.

Source: BookKeeper's ServerConfiguration, DiskChecker and LedgerDirsMonitor.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import BYTES, MB, MS, conf_key

WARN_THRESHOLD = 0.90


@dataclass(frozen=True, kw_only=True)
class DiskKeys:
    """Part of `BookieConfig`, which has the slots. Raises ValueError if the thresholds contradict each other."""

    __slots__ = ()

    disk_usage_threshold: float = conf_key(
        "diskUsageThreshold",
        0.95,
        minimum=0.0,
        maximum=1.0,
        doc="Used fraction of a file system, above 0 and below 1, above which a ledger directory accepts no entries.",
    )
    disk_usage_warn_threshold: float | None = conf_key(
        "diskUsageWarnThreshold",
        None,
        minimum=0.0,
        maximum=1.0,
        doc="Used fraction above which a warning is logged and major compaction waits; at most diskUsageThreshold. "
        "Empty: 0.90, or diskUsageThreshold if that is less.",
    )
    disk_usage_low_water_mark: float | None = conf_key(
        "diskUsageLwmThreshold",
        None,
        minimum=0.0,
        maximum=1.0,
        doc="Used fraction of all ledger directories together below which a bookie whose directories are all full "
        "accepts entries again; at most diskUsageThreshold. Empty: diskUsageThreshold.",
    )
    disk_check_interval_ms: int = conf_key(
        "diskCheckInterval",
        10_000,
        minimum=1,
        unit=MS,
        doc="Time between two comparisons of the disks with the thresholds, in milliseconds. While a directory is "
        "full they are at most a second apart.",
    )
    read_only_mode_enabled: bool = conf_key(
        "readOnlyModeEnabled",
        True,
        doc="false: a bookie whose disks are full ends with exit code 5, and it cannot be made read-only over HTTP.",
    )
    read_only_on_any_full: bool = conf_key(
        "readOnlyModeOnAnyDiskFullEnabled",
        True,
        doc="true: a bookie is read-only as soon as one of its ledger directories is full; false: only when all are. "
        "Until then the ledgers of a full directory are refused.",
    )
    journal_backlog_mb: int = conf_key(
        "quireJournalBacklogMaxMb",
        32768,
        minimum=0,
        maximum=1 << 30,
        unit=MB,
        doc="Megabytes of journal that a bookie keeps behind a ledger directory that has failed or hangs, whose "
        "entries only the journal has. Above that it is read-only, until the directory answers or the bookie is "
        "restarted with another disk. 0: until the journal's disk is full.",
    )
    min_usable_for_entry_log: int | None = conf_key(
        "minUsableSizeForEntryLogCreation",
        None,
        minimum=0,
        unit=BYTES,
        doc="Bytes that must be free in a full directory for compaction to write there (isForceGCAllowWhenNoSpace). "
        "Empty: what the unflushed entries and a quarter of quireDiskReserveMb need. Flushes are always tried.",
    )
    min_usable_for_urgent: int | None = conf_key(
        "minUsableSizeForHighPriorityWrites",
        None,
        minimum=0,
        unit=BYTES,
        doc="Bytes that must be free in some ledger directory of a bookie with full disks for the entries of cursors "
        "and recoveries. Empty: none; they may use up quireDiskReserveMb.",
    )
    may_share_partition: bool = conf_key(
        "allowMultipleDirsUnderSameDiskPartition",
        True,
        doc="false: a bookie does not start if two of its directories of one kind are on the same file system.",
    )
    persist_status: bool = conf_key(
        "persistBookieStatusEnabled",
        False,
        doc="true: a bookie that was read-only when it stopped starts read-only. If that was set over HTTP it stays so "
        "until it is changed over HTTP.",
    )

    def __post_init__(self) -> None:
        threshold = self.disk_usage_threshold
        if not 0 < threshold < 1:
            raise ValueError(f"diskUsageThreshold={threshold}: it must be above 0 and below 1")
        for key, value in (
            ("diskUsageWarnThreshold", self.disk_usage_warn_threshold),
            ("diskUsageLwmThreshold", self.disk_usage_low_water_mark),
        ):
            if value is not None and value > threshold:
                raise ValueError(f"{key}={value} is above diskUsageThreshold={threshold}")

    @property
    def warn_threshold(self) -> float:
        """Used fraction above which a directory is almost full."""
        warn = self.disk_usage_warn_threshold
        return min(WARN_THRESHOLD, self.disk_usage_threshold) if warn is None else warn

    @property
    def low_water_mark(self) -> float:
        """Used fraction of all directories below which a bookie with full directories is writable again."""
        mark = self.disk_usage_low_water_mark
        return self.disk_usage_threshold if mark is None else mark
