"""Write latencies and entry sizes of one topic, recorded once per run of entries.

The buckets of the last round (statsUpdateFrequencyInSecs) are what the original exposes; they are not cumulative.
Source: Pulsar's ManagedLedgerMBeanImpl and StatsBuckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from quire.service.measuring.summaries import LATENCY_MS, Histogram
from quire.world.doors import Buffer

SIZE_BOUNDS: Final = (128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 100 << 10, 1 << 20)
"""Inclusive upper bounds of the buckets of entry sizes, in bytes."""
LATENCIES: Final = len(LATENCY_MS) + 3
SIZES: Final = len(SIZE_BOUNDS) + 3
NOTHING: Final = (0,) * (LATENCIES + SIZES)
_NO_LATENCIES: Final = [0] * (len(LATENCY_MS) + 1)
_NO_SIZES: Final = [0] * (len(SIZE_BOUNDS) + 1)


class Published:
    """Distributions of one topic, made with its first entry."""

    __slots__ = (
        "_latencies",
        "_latency_us",
        "_size",
        "_sizes",
        "last_arrived_at",
        "last_entry_id",
        "last_ledger_id",
        "last_round",
    )

    def __init__(self) -> None:
        self._latencies: list[int] | None = None
        """Counts of this round; None while nothing was stored in it, so that an idle topic keeps no lists."""
        self._latency_us = 0.0
        self._sizes: list[int] | None = None
        self._size = 0
        self.last_round: tuple[float, ...] = NOTHING
        """Latency buckets, their count and sum in microseconds, size buckets, their count and sum in bytes, of the last
        round."""

        self.last_ledger_id = self.last_entry_id = -1
        """The last stored entry; -1: none yet."""
        self.last_arrived_at = 0.0
        """Time of the event loop at which it arrived."""

    def confirmed(self, arrived_at: float, now: float, count: int, everywhere: Histogram) -> None:
        """Note `count` entries that are stored now, also in the histogram of the broker. Times of the event loop."""
        latency_ms = 1000 * (now - arrived_at)
        self.last_arrived_at = arrived_at
        index = bisect_left(LATENCY_MS, latency_ms)
        total = latency_ms * count
        latencies = self._latencies
        if latencies is None:
            latencies = self._latencies = [0] * (len(LATENCY_MS) + 1)
        latencies[index] += count
        self._latency_us += 1000 * total
        everywhere.counts[index] += count
        everywhere.total += total

    def arrived(self, payloads: Sequence[Buffer], size: int) -> None:
        """Note entries of `size` bytes together."""
        self._size += size
        sizes = self._sizes
        if sizes is None:
            sizes = self._sizes = [0] * (len(SIZE_BOUNDS) + 1)
        if len(payloads) == 1:
            sizes[bisect_left(SIZE_BOUNDS, size)] += 1
            return
        found = list(map(len, payloads))
        index = bisect_left(SIZE_BOUNDS, max(found))
        if bisect_left(SIZE_BOUNDS, min(found)) == index:  # the rule: they are of about the same size
            sizes[index] += len(found)
            return
        found.sort()
        low = 0
        for each, bound in enumerate(SIZE_BOUNDS):
            high = bisect_left(found, bound + 1, low)
            sizes[each] += high - low
            low = high
        sizes[-1] += len(found) - low

    def end_round(self) -> None:
        """Let what was recorded since the last call be `last_round`."""
        latencies, sizes = self._latencies, self._sizes
        if latencies is None and sizes is None:
            self.last_round = NOTHING
            return
        latencies, sizes = latencies or _NO_LATENCIES, sizes or _NO_SIZES
        self.last_round = (*latencies, sum(latencies), self._latency_us, *sizes, sum(sizes), self._size)
        self._latencies = self._sizes = None
        self._latency_us, self._size = 0.0, 0


def arrived(published: Published | None, payloads: Sequence[Buffer], size: int) -> Published:
    """Note entries of `size` bytes together, for a topic that may have had none before."""
    if published is None:
        published = Published()
    published.arrived(payloads, size)
    return published
