"""Counts of the compactions of one topic."""

from __future__ import annotations


class CompactionCounts:
    """Counts since the topic was loaded. Times in ms since 1970, 0: never."""

    __slots__ = (
        "duration_ms",
        "entries_written",
        "failed",
        "failed_at_ms",
        "removed",
        "removed_last",
        "succeeded",
        "succeeded_at_ms",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.succeeded_at_ms = 0
        self.failed_at_ms = 0
        self.duration_ms = 0
        """Duration of the last one, successful or not."""
        self.removed = 0
        """Messages that were left out."""
        self.removed_last = 0
        """The same, of the last one."""
        self.entries_written = 0
        self.written_bytes = 0

    def success(self, *, now_ms: int, duration_ms: int, removed: int, entries: int, size: int) -> None:
        self.succeeded += 1
        self.succeeded_at_ms, self.duration_ms = now_ms, duration_ms
        self.removed += removed
        self.removed_last = removed
        self.entries_written += entries
        self.written_bytes += size

    def failure(self, *, now_ms: int, duration_ms: int) -> None:
        self.failed += 1
        self.failed_at_ms, self.duration_ms = now_ms, duration_ms

    def as_json(self) -> dict[str, int]:
        """Return the statistics of a topic, with the original's names."""
        return {
            "lastCompactionRemovedEventCount": self.removed_last,
            "lastCompactionSucceedTimestamp": self.succeeded_at_ms,
            "lastCompactionFailedTimestamp": self.failed_at_ms,
            "lastCompactionDurationTimeInMills": self.duration_ms,
        }
