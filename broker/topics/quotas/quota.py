"""Quotas of a topic's backlog, and what they ask for (pure).

By type: the first limits the bytes that the slowest durable subscription is behind, the second the seconds for which a
message may be left unacknowledged. Each type is a policy of its own: see broker.topics.topic_policies.catalog.

Source: Pulsar's BacklogQuotaManager, AdminResource.checkBacklogQuota.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.topics.topic_policies.kinds import BacklogQuota

KEPT_PERCENT: Final = 90
"""Part of a quota that an eviction leaves. Source: the reduction factor of the original's BacklogQuotaManager."""


class Quotas(NamedTuple):
    """Quotas of one topic."""

    storage: BacklogQuota
    age: BacklogQuota

    @property
    def limit(self) -> bool:
        """Return whether anything is limited. A size below 0, and a time of 0 or below, is no limit."""
        return self.storage.limit_bytes >= 0 or self.age.limit_s > 0


def fits(quota: BacklogQuota, retention: Mapping[str, Any] | None) -> bool:
    """Return whether a quota is below the retention, which would otherwise keep more than it.

    >>> fits(BacklogQuota(limit_bytes=5 << 20), {"retentionSizeInMB": 5, "retentionTimeInMinutes": -1})
    False
    """
    if retention is None:
        return True
    size, minutes = retention.get("retentionSizeInMB", 0), retention.get("retentionTimeInMinutes", 0)
    too_large = size > 0 and quota.limit_bytes >= size << 20
    too_old = minutes > 0 and quota.limit_s >= minutes * 60
    return not (too_large or too_old)


def is_too_large(size: int, quota: BacklogQuota) -> bool:
    """Return whether a backlog of so many bytes is at its quota. Source: PersistentTopic.isSizeBacklogExceeded."""
    return 0 <= quota.limit_bytes <= size


def entries_to_skip(size: int, quota: BacklogQuota, entries: int) -> int:
    """Return how many of the entries of a backlog of `size` bytes have to go, at least 1 if any has.

    >>> entries_to_skip(1000, BacklogQuota(500), 100), entries_to_skip(450, BacklogQuota(500), 100)
    (55, 0)
    """
    above = size - quota.limit_bytes * KEPT_PERCENT // 100
    if above <= 0 or entries <= 0:
        return 0
    return min(entries, -(-entries * above // size))


def seconds_kept(quota: BacklogQuota) -> int:
    """Return the age above which an eviction lets messages go."""
    return quota.limit_s * KEPT_PERCENT // 100
