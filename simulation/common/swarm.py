"""Draws of the seed for every history of several hosts: limits, and the possible faults.

Drawing what may happen at all, and not only when, reaches states that an average of everything never does ("swarm
testing").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bookie.config import BookieConfig

FAULTS = (
    "crash",
    "kill",
    "fuse",
    "pause",
    "long pause",
    "partition",
    "one-way cut",
    "reset",
    "lost messages",
    "late messages",
    "slow disk",
    "flipped entry",
    "session expiry",
    "metadata cut",
)
"""Kinds of faults that any cluster may have. crash: power cut, unsynced writes are lost; kill: SIGKILL; fuse: a power
cut amid a disk job."""


def folders(name: str, count: int) -> tuple[str, ...]:
    """Return the paths of `count` directories of a kind.

    >>> folders("/journal", 1), folders("/journal", 2)
    (('/journal',), ('/journal0', '/journal1'))
    """
    return (name,) if count == 1 else tuple(f"{name}{number}" for number in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """Draws for one history."""

    bookies: int
    sizes: tuple[int, ...]
    """Payload bytes to choose from."""
    group_wait_ms: int
    flush_interval_ms: int
    gc_wait_ms: int
    session_timeout_s: float
    late: float
    """Share of the metadata calls and events that are late."""
    latency_max_s: float
    down_max: int
    """Bookies that may be crashed or paused at the same time."""
    overlap: int
    """Faults that may be under way at the same time."""
    calm_s: float
    """Maximum pause between faults."""
    faults: tuple[str, ...]
    """Possible kinds of faults."""
    journals: int = 1
    """Journal directories of a bookie."""
    directories: int = 1
    """Ledger directories of a bookie."""
    bookie_settings: tuple[tuple[str, Any], ...] = ()
    """Fields of BookieConfig with other values than `bookie_config` gives them."""

    def bookie_config(self, name: str) -> BookieConfig:
        return replace(self._plain_config(name), **dict(self.bookie_settings))

    def _plain_config(self, name: str) -> BookieConfig:
        return BookieConfig(
            bookie_id=f"{name}:3181",
            host=name,
            journal_directories=folders("/journal", self.journals),
            ledger_directories=folders("/ledgers", self.directories),
            journal_prealloc_mb=1,
            journal_group_wait_ms=self.group_wait_ms,
            write_cache_mb=2,
            read_cache_mb=1,
            flush_interval_ms=self.flush_interval_ms,
            gc_wait_ms=self.gc_wait_ms,
            read_workers=2,
            urgent_workers=1,
        )
