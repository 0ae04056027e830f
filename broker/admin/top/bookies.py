"""A bookie as one broker sees it."""

from __future__ import annotations

from typing import Any, NamedTuple


class SeenBookie(NamedTuple):
    """State of a bookie; -1: unknown."""

    bookie_id: str
    state: str
    """writable, readonly or lost."""
    latency_ms: float = -1
    """Time within which nearly all its answers to reads of this broker came."""
    pending_reads: int = 0
    free: int = -1
    total: int = -1
    """Bytes of its disks."""

    def as_json(self) -> dict[str, Any]:
        return {
            "bookie": self.bookie_id,
            "state": self.state,
            "latencyMs": self.latency_ms,
            "pendingReads": self.pending_reads,
            "free": self.free,
            "total": self.total,
        }
