"""Choosing the entry logs to compact. Pure.

Source: BookKeeper's GarbageCollectorThread.doCompactEntryLogs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bookie.db_ledger_storage.log_map import LogUsage

BUCKETS: Final = 10


def bucket_of(share: float) -> int:
    """Return the bucket of a log by the part of it that is needed: 0 for less than 10 %, 9 for 90 % and more.

    >>> [bucket_of(share) for share in (0.0, 0.09, 0.1, 0.57, 1.0)]
    [0, 0, 1, 5, 9]
    """
    return min(BUCKETS - 1, int(share * BUCKETS))


def needed_share(usage: LogUsage, log_size: int) -> float:
    """Return the needed part of a log. `log_size`: of a full log, to compare with instead of this log's size; 0: not.

    With it, logs that are small are taken together.
    """
    if log_size and usage.share < 1.0:
        return usage.remaining / max(usage.total, log_size)
    return usage.share


def chosen(usages: Iterable[LogUsage], threshold: float, log_size: int = 0) -> list[LogUsage]:
    """Return the logs of which less than `threshold` is needed, the emptiest bucket first, the oldest log first in it.

    Logs that nothing needs are not among them: they are deleted as they are.

    >>> some = [LogUsage(log_id, 100, needed, 1, True, 0) for log_id, needed in enumerate((90, 35, 5, 31, 0))]
    >>> [usage.log_id for usage in chosen(some, 0.5)]
    [2, 4, 1, 3]
    """
    below = [
        (bucket_of(share), usage.log_id, usage)
        for usage in usages
        if usage.ledgers and (share := needed_share(usage, log_size)) < threshold
    ]
    return [usage for _, _, usage in sorted(below)]


def in_buckets(usages: Iterable[LogUsage]) -> tuple[int, ...]:
    """Return the number of logs in each bucket."""
    counts = [0] * BUCKETS
    for usage in usages:
        counts[bucket_of(usage.share)] += 1
    return tuple(counts)
