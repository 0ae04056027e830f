"""Settings of garbage collection and compaction: keys and meanings are those of BookKeeper's bk_server.conf.

Source: BookKeeper's ServerConfiguration, GarbageCollectorThread.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookie.db_ledger_storage.compaction.plan import CompactionOptions
from quire.service.config import BYTES, MS, SECONDS, conf_key


@dataclass(frozen=True, kw_only=True)  # without slots: one of several bases
class GcConfig:
    """Garbage collection and compaction of entry logs."""

    gc_wait_ms: int = conf_key(
        "gcWaitTime",
        300_000,
        minimum=1,
        unit=MS,
        doc="Time between two garbage collections of entry logs, in milliseconds.",
    )
    metadata_rate: int = conf_key(
        "gcMetadataOpRateLimit",
        1000,
        minimum=0,
        doc="Requests to the metadata store that garbage collection makes per second. 0: no bound.",
    )
    overreplicated_wait_ms: int = conf_key(
        "gcOverreplicatedLedgerWaitTime",
        86_400_000,
        unit=MS,
        doc="Time between two searches for ledgers that other bookies have by now, in milliseconds. Such a ledger is "
        "deleted if each of its entries here is read, whole, from all bookies that should have it. 0 or less: they "
        "stay.",
    )
    overreplicated_at_once: int = conf_key(
        "gcOverreplicatedLedgerMaxConcurrentRequests",
        1000,
        minimum=1,
        maximum=100_000,
        doc="Ledgers that such a search checks at the same time.",
    )
    minor_threshold: float = conf_key(
        "minorCompactionThreshold",
        0.2,
        maximum=1.0,
        doc="Part of an entry log that is still needed, below which minor compactions empty and delete it. "
        "0 or less: no minor compactions.",
    )
    minor_interval_s: int = conf_key(
        "minorCompactionInterval",
        3600,
        unit=SECONDS,
        doc="Seconds between two minor compactions, at least gcWaitTime. 0 or less: none.",
    )
    minor_max_ms: int = conf_key(
        "minorCompactionMaxTimeMillis",
        -1,
        unit=MS,
        doc="Longest time of a minor compaction; the next one goes on. 0 or less: no bound.",
    )
    major_threshold: float = conf_key(
        "majorCompactionThreshold",
        0.8,
        maximum=1.0,
        doc="As minorCompactionThreshold, for major compactions, and higher. 0 or less: no major compactions.",
    )
    major_interval_s: int = conf_key(
        "majorCompactionInterval",
        86400,
        unit=SECONDS,
        doc="Seconds between two major compactions, more than between minor ones. 0 or less: none.",
    )
    major_max_ms: int = conf_key(
        "majorCompactionMaxTimeMillis",
        -1,
        unit=MS,
        doc="Longest time of a major compaction; the next one goes on. 0 or less: no bound.",
    )
    throttle_by_bytes: bool = conf_key(
        "isThrottleByBytes",
        False,
        doc="true: compactionRateByBytes bounds compactions; false: compactionRateByEntries.",
    )
    compaction_rate: int = conf_key(
        "compactionRate", 1000, minimum=0, doc="Older name of compactionRateByEntries, which has precedence."
    )
    compaction_rate_entries: int = conf_key(
        "compactionRateByEntries",
        -1,
        doc="Entries that compactions copy per second. -1: as compactionRate. 0: no bound.",
    )
    compaction_rate_bytes: int = conf_key(
        "compactionRateByBytes",
        1_000_000,
        minimum=0,
        unit=BYTES,
        doc="Bytes that compactions copy per second, if isThrottleByBytes. 0: no bound.",
    )
    compaction_outstanding_max: int = conf_key(
        "compactionMaxOutstandingRequests",
        100_000,
        minimum=1,
        doc="Entries that a compaction copies before it syncs them and changes the index.",
    )
    transactional: bool = conf_key(
        "useTransactionalCompaction",
        False,
        doc="true: the copies of an entry log have a log of their own, which counts only when it is whole. false: "
        "those of several share one, and the index is changed as they are made.",
    )
    target_log_size: bool = conf_key(
        "useTargetEntryLogSizeForGc",
        False,
        doc="true: what is needed of an entry log is compared with logSizeLimit if the log is smaller, so that small "
        "logs are taken together.",
    )
    force_allow_compaction: bool = conf_key(
        "forceAllowCompaction",
        False,
        doc="true: a compaction that is asked for runs also if its interval switches it off.",
    )
    force_when_full: bool = conf_key(
        "isForceGCAllowWhenNoSpace",
        False,
        doc="true: a full disk starts a garbage collection with compactions. false: without; compactions are suspended "
        "until there is room.",
    )
    keep_log_map: bool = conf_key(
        "gcEntryLogMetadataCacheEnabled",
        False,
        doc="true: the ledgers of each entry log are kept in a map of their own, so that a start need not read each "
        "log.",
    )
    log_map_directory: str = conf_key(
        "gcEntryLogMetadataCachePath", "", doc="Folder of that map. Empty: the folder of the entry logs."
    )
    location_compaction_interval_s: int = conf_key(
        "entryLocationCompactionInterval",
        -1,
        unit=SECONDS,
        doc="Seconds between two compactions of the location index, and up to as many more. 0 or less: only when "
        "asked for.",
    )

    @property
    def minor_enabled(self) -> bool:
        return self.minor_threshold > 0 and self.minor_interval_s > 0

    @property
    def major_enabled(self) -> bool:
        return self.major_threshold > 0 and self.major_interval_s > 0

    def check_compaction(self) -> None:
        """Raise ValueError if the settings contradict each other."""
        for name, enabled, interval_s in (
            ("minorCompactionInterval", self.minor_enabled, self.minor_interval_s),
            ("majorCompactionInterval", self.major_enabled, self.major_interval_s),
        ):
            if enabled and 1000 * interval_s < self.gc_wait_ms:
                raise ValueError(f"{name}={interval_s} seconds is less than gcWaitTime={self.gc_wait_ms} milliseconds")
        if self.minor_enabled and self.major_enabled:
            if self.minor_interval_s >= self.major_interval_s:
                raise ValueError(
                    f"minorCompactionInterval={self.minor_interval_s} must be less than "
                    f"majorCompactionInterval={self.major_interval_s}"
                )
            if self.minor_threshold >= self.major_threshold:
                raise ValueError(
                    f"minorCompactionThreshold={self.minor_threshold} must be less than "
                    f"majorCompactionThreshold={self.major_threshold}"
                )

    def compaction(self, log_size_max: int) -> CompactionOptions:
        """Return the bounds of compactions of one directory. `log_size_max`: logSizeLimit."""
        entries = self.compaction_rate if self.compaction_rate_entries < 0 else self.compaction_rate_entries
        return CompactionOptions(
            rate=self.compaction_rate_bytes if self.throttle_by_bytes else entries,
            by_bytes=self.throttle_by_bytes,
            outstanding_max=self.compaction_outstanding_max,
            target_size=log_size_max if self.target_log_size else 0,
            whole=self.transactional,
        )
