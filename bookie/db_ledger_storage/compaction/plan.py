"""Bounds of compaction, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class CompactionKind(Enum):
    """Minor compactions run often over nearly empty logs, major ones seldom over all that are worth it."""

    MINOR = "minor"
    MAJOR = "major"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Settings of compaction. The original's key is in brackets."""

    rate: float = 1000
    """Entries, or bytes, copied per second; 0: no bound (compactionRateByEntries, compactionRateByBytes)."""
    by_bytes: bool = False
    """`rate` counts bytes (isThrottleByBytes)."""
    outstanding_max: int = 100_000
    """Entries copied before the index is changed (compactionMaxOutstandingRequests)."""
    sync_every: int = 4 << 20
    """Bytes written between two syncs of the copies.

    A sync of the journal waits behind them. Beside copies of 30 MB per second on ext4, one sync in a thousand took 5 ms
    with 4 MB, 8 to 15 ms with 32 MB. With 1 MB more of them waited: the 99th percentile rose from 2 to 4 ms."""
    target_size: int = 0
    """Compare what a log holds with this size rather than with its own; 0: not (useTargetEntryLogSizeForGc)."""
    whole: bool = False
    """The copies of a log count only when all are durable (useTransactionalCompaction)."""


@dataclass(slots=True, kw_only=True)
class CompactionResult:
    """Result of one compaction."""

    kind: CompactionKind
    chosen: int = 0
    logs: list[int] = field(default_factory=list)
    """Logs that were emptied and deleted."""
    stayed: dict[int, str] = field(default_factory=dict)
    """Reason for each chosen log that was not."""
    entries: int = 0
    """Entries copied."""
    copied_bytes: int = 0
    reclaimed_bytes: int = 0
    """Bytes of deleted logs, without the copies."""
