"""Configuration of managed ledgers: for a broker, and for one log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from cursors.config import CursorConfig
from quire.service.config import MB, MINUTES, MS, SECONDS, conf_key

MINUTE_MS = 60_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerConfig:
    """Keys have Pulsar's names."""

    ensemble_size: int = conf_key(
        "managedLedgerDefaultEnsembleSize", 2, minimum=1, doc="Number of bookies of a new ledger."
    )
    write_quorum: int = conf_key(
        "managedLedgerDefaultWriteQuorum", 2, minimum=1, doc="Number of bookies that each entry is written to."
    )
    ack_quorum: int = conf_key(
        "managedLedgerDefaultAckQuorum",
        2,
        minimum=1,
        doc="Number of bookies that must have an entry on disk before it is confirmed. With 1, the loss of "
        "one disk can lose it.",
    )
    entries_max: int = conf_key(
        "managedLedgerMaxEntriesPerLedger",
        50_000,
        minimum=1,
        doc="Number of entries after which a topic begins its next ledger.",
    )
    size_max_mb: int = conf_key(
        "managedLedgerMaxSizePerLedgerMbytes",
        2048,
        minimum=1,
        unit=MB,
        doc="Megabytes after which a topic begins its next ledger.",
    )
    age_min_minutes: int = conf_key(
        "managedLedgerMinLedgerRolloverTimeMinutes",
        10,
        minimum=0,
        unit=MINUTES,
        doc="Minimum age of a ledger before the next one is begun, even if it has too many entries or bytes.",
    )
    age_max_minutes: int = conf_key(
        "managedLedgerMaxLedgerRolloverTimeMinutes",
        240,
        minimum=1,
        unit=MINUTES,
        doc="Age of a ledger at which a topic begins the next one.",
    )
    retention_minutes: int = conf_key(
        "defaultRetentionTimeInMinutes",
        0,
        minimum=-1,
        unit=MINUTES,
        doc="Time for which acknowledged messages are kept. 0: not at all. -1: no limit.",
    )
    retention_mb: int = conf_key(
        "defaultRetentionSizeInMB",
        0,
        minimum=-1,
        unit=MB,
        doc="Size of the acknowledged messages of a topic that are kept. 0: nothing. -1: no limit.",
    )
    retention_check_s: int = conf_key(
        "retentionCheckIntervalInSeconds",
        120,
        minimum=1,
        unit=SECONDS,
        doc="Time between two checks of all topics for ledgers to delete.",
    )
    cache_size_mb: int = conf_key(
        "managedLedgerCacheSizeMB",
        64,
        minimum=0,
        unit=MB,
        dynamic=True,
        doc="Memory for the newest entries, shared by all topics. 0: no cache.",
    )
    cache_watermark: float = conf_key(
        "managedLedgerCacheEvictionWatermark",
        0.9,
        minimum=0,
        maximum=1,
        dynamic=True,
        doc="Fraction of the cache's size that remains after an eviction.",
    )
    cache_age_ms: int = conf_key(
        "managedLedgerCacheEvictionTimeThresholdMillis",
        1000,
        minimum=1,
        unit=MS,
        dynamic=True,
        doc="Age at which an entry is evicted from the cache even if consumers have not read it yet, in milliseconds.",
    )
    retry_timeout_s: int = conf_key(
        "managedLedgerMetadataOperationsTimeoutSeconds",
        60,
        minimum=1,
        unit=SECONDS,
        doc="Time during which creating a ledger or storing a position is retried before the waiting requests fail.",
    )

    def __post_init__(self) -> None:
        if not self.ack_quorum <= self.write_quorum <= self.ensemble_size:
            raise ValueError(
                f"managedLedgerDefaultAckQuorum={self.ack_quorum} <= "
                f"managedLedgerDefaultWriteQuorum={self.write_quorum} <= "
                f"managedLedgerDefaultEnsembleSize={self.ensemble_size} must hold"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Configuration of one log, which may change while the log is open."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    """Quorums of the ledgers created from now on, including those of the cursors."""
    retention_minutes: int
    retention_mb: int
    """-1: no limit."""
    placement: tuple[tuple[str, bytes], ...] = ()
    """Custom metadata of the ledgers created from now on that says which bookies they may be on; see
    quire.ledger.placement.isolation."""

    @classmethod
    def of(cls, config: ManagedLedgerConfig) -> LogConfig:
        """Return the configuration of a log without special settings."""
        return cls(
            ensemble_size=config.ensemble_size,
            write_quorum=config.write_quorum,
            ack_quorum=config.ack_quorum,
            retention_minutes=config.retention_minutes,
            retention_mb=config.retention_mb,
        )

    @property
    def of_ledgers(self) -> tuple[object, ...]:
        """Return what a new ledger is created with; two that are equal make the same ledger."""
        return self.ensemble_size, self.write_quorum, self.ack_quorum, self.placement


LogConfigSource: TypeAlias = Callable[[], LogConfig]
"""Asked anew at each new ledger and each trim. Answers from memory, and never raises."""


def standard_config(config: ManagedLedgerConfig) -> LogConfigSource:
    """For logs of which nothing else is said."""
    standard = LogConfig.of(config)
    return lambda: standard


def cursors_of(logs: ManagedLedgerConfig, cursors: CursorConfig) -> CursorConfig:
    """The cursors' part, with what they obey and managed ledgers declare."""
    return replace(
        cursors,
        ensemble_size=logs.ensemble_size,
        write_quorum=logs.write_quorum,
        ack_quorum=logs.ack_quorum,
        retry_timeout_s=logs.retry_timeout_s,
    )
