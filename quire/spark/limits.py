"""Limits of the backlog one trigger takes, in messages and in bytes, shared between partitions. Pure.

Why this is hard: Spark's own limits have one unit (`ReadMaxRows` or `ReadMaxBytes`); the options may give both, and
then both apply. Brokers count entries, each of which may be a batch, so messages are estimated from recent entries of
the partition. And an uneven share between partitions would make a watermark drop rows as late."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

MESSAGES_PER_ENTRY_MIN = 0.01
"""Minimum cost of an entry in messages, for samples that held only pieces of chunked messages."""
MESSAGES_PER_ENTRY_UNKNOWN = 1000.0
"""Messages of an entry of a partition that did not answer: as many as clients put into a batch by default at most, so
that a trigger has too few messages rather than too many."""

_STEPS = 48
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Maximum messages and bytes that one trigger takes, and the messages that it waits for. None: no limit of this
    kind."""

    messages_max: int | None = None
    bytes_max: int | None = None
    messages_min: int | None = None

    @classmethod
    def of(cls, limit: object, configured: Limits) -> Limits:
        """Combine a ReadLimit of Spark with the limits of the options.

        `ReadAllAvailable` has no limit. `ReadMaxRows`, `ReadMaxBytes` and `ReadMinRows` have one unit: the other
        configured limits apply as well, and of two maxima the smaller. Files do not apply. Source:
        pyspark.sql.streaming.datasource."""
        rows, size = getattr(limit, "max_rows", None), getattr(limit, "max_bytes", None)
        if rows is None and size is None and getattr(limit, "min_rows", None) is None:
            return cls()
        return cls(
            messages_max=_least(rows, configured.messages_max),
            bytes_max=_least(size, configured.bytes_max),
            messages_min=configured.messages_min,
        )


def _least(first: int | None, second: int | None) -> int | None:
    return min((number for number in (first, second) if number is not None), default=None)


class Backlog:
    """Available entries of one partition from its position on, and the cost of the first n of them."""

    __slots__ = ("_bytes", "_entries", "_messages_per_entry", "entries")

    def __init__(self, pieces: Sequence[tuple[int, int]], messages_per_entry: float = 1.0) -> None:
        """Take `pieces`: (entries, approximate bytes) by ledger, in order."""
        self.entries = sum(entries for entries, _ in pieces)
        self._entries = list(accumulate((entries for entries, _ in pieces), initial=0))
        self._bytes = list(accumulate((max(size, entries) for entries, size in pieces), initial=0))
        self._messages_per_entry = max(messages_per_entry, MESSAGES_PER_ENTRY_MIN)

    def messages(self, entries: float) -> float:
        return entries * self._messages_per_entry

    def bytes(self, entries: float) -> float:
        """Return the approximate bytes of the first entries, assumed to be even within a ledger."""
        at = min(bisect_right(self._entries, entries), len(self._entries) - 1)
        if at == 0:
            return 0.0
        first, stop = self._entries[at - 1], self._entries[at]
        start, end = self._bytes[at - 1], self._bytes[at]
        return start + (end - start) * (entries - first) / (stop - first)

    def within(self, messages: float, size: float) -> int:
        """Return the maximum number of entries that cost no more than this."""
        taken = self.entries
        if messages < self.messages(taken):
            taken = int((messages + _EPSILON) / self._messages_per_entry)
        if size < self.bytes(taken):
            at = bisect_right(self._bytes, size)
            first, stop = self._entries[at - 1], self._entries[at]
            start, end = self._bytes[at - 1], self._bytes[at]
            taken = min(taken, first + int((size - start + _EPSILON) * (stop - first) / (end - start)))
        return taken


def share(backlogs: Sequence[Backlog], limits: Limits, *, turn: int = 0) -> list[int]:
    """Return the entries to take of each partition.

    Every partition gives the same fraction of its backlog, so that all come to their ends together, as with Kafka's
    source. A fixed share for each would read short partitions ahead of long ones, and a watermark, which follows the
    newest event time, would then drop rows of the long ones as late. What is left of the limits (less than an entry of
    each) goes by turns, beginning with partition `turn`. If there are entries, at least one is taken, even above a
    limit.
    """
    messages_max = math.inf if limits.messages_max is None else limits.messages_max
    bytes_max = math.inf if limits.bytes_max is None else limits.bytes_max
    taken = [backlog.entries for backlog in backlogs]

    def left(taken: Sequence[float]) -> tuple[float, float]:
        pairs = list(zip(backlogs, taken, strict=True))
        return (
            messages_max - sum(backlog.messages(n) for backlog, n in pairs) + _EPSILON,
            bytes_max - sum(backlog.bytes(n) for backlog, n in pairs) + _EPSILON,
        )

    if not any(taken) or min(left(taken)) >= 0:
        return taken
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        fraction = (low + high) / 2
        if min(left([fraction * backlog.entries for backlog in backlogs])) >= 0:
            low = fraction
        else:
            high = fraction
    taken = [int(low * backlog.entries + _EPSILON) for backlog in backlogs]
    messages, size = left(taken)
    order = [(turn + number) % len(backlogs) for number in range(len(backlogs))]
    for number in order:
        backlog, had = backlogs[number], taken[number]
        more = backlog.within(backlog.messages(had) + messages, backlog.bytes(had) + size)
        taken[number] = max(had, min(more, had + 1))
        messages -= backlog.messages(taken[number]) - backlog.messages(had)
        size -= backlog.bytes(taken[number]) - backlog.bytes(had)
    if not any(taken):
        first = next(number for number in order if backlogs[number].entries)
        taken[first] = 1
    return taken
