"""Times with quantiles, as BookKeeper's summaries: recorded without an object per observation.

    times = Times()                     # in the hot path: times.observe(0.4, count=12)
    metrics.summary("bookie_journal_JOURNAL_SYNC", "...", ("success",), lambda: [(("true",), times)])

Quantiles are those of the last window of at least WINDOW_S, and are read from counts between bounds that grow by a
fifth: a quantile is at most a fifth too large, never too small. Count and sum grow for ever. Source of the quantiles'
names and of the window: BookKeeper's PrometheusMetricsProvider (prometheusStatsLatencyRolloverSeconds).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import nan
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
WINDOW_S: Final = 60.0
"""Seconds after which the quantiles of a window replace those of the one before."""
STEP: Final = 1.2
BOUNDS: Final = tuple(0.01 * STEP**power for power in range(77))
"""Inclusive upper bounds in milliseconds, from 0.01 to 10,000; also used for bytes and numbers."""
SIZE_BOUNDS: Final = tuple(float(1 << power) for power in range(31))
"""Inclusive upper bounds of sizes and numbers, 1 to 2^30."""


LATENCY_MS = (0.5, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0)
"""Upper bounds of Pulsar's latency buckets, in milliseconds."""


class Histogram:
    """Histogram without an object per observation. Bounds are inclusive upper bounds; one more bucket is above the
    last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = LATENCY_MS) -> None:
        self.bounds = tuple(bounds)
        assert list(self.bounds) == sorted(set(self.bounds)), f"bounds must be ascending: {bounds}"
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        """Sum of everything observed."""

    def observe(self, value: float, count: int = 1) -> None:
        """Note `count` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


class Times(Histogram):
    """Distribution of times in milliseconds, or of sizes with SIZE_BOUNDS, with quantiles."""

    __slots__ = ("_base", "_began", "_quantiles")

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        super().__init__(bounds)
        self._base = list(self.counts)
        self._began = 0.0
        self._quantiles: tuple[float, ...] = (nan,) * len(QUANTILES)

    def quantiles(self, now: float, window_s: float = WINDOW_S) -> tuple[float, ...]:
        """Return the values of QUANTILES in the last complete window, or in the first one before it is complete; NaN if
        nothing was observed in it. `now`: time of the event loop in seconds; `window_s`: length of a window."""
        if not self._began:
            self._began = now
        is_first = not any(self._base)
        if is_first or now - self._began >= window_s:
            window = [count - base for count, base in zip(self.counts, self._base, strict=True)]
            self._quantiles = quantiles_of(window, self.bounds)
            if now - self._began >= window_s:
                self._began, self._base = now, list(self.counts)
        return self._quantiles


def quantiles_of(counts: Sequence[int], bounds: Sequence[float]) -> tuple[float, ...]:
    """Return the upper bounds below which QUANTILES of the observations lie; NaN for each if there are none.

    What lies above the last bound counts as that.

    >>> quantiles_of([50, 25, 20, 5], [1.0, 2.0, 4.0])
    (1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0)
    """
    total = sum(counts)
    if not total:
        return (nan,) * len(QUANTILES)
    ranks = list(accumulate(counts))
    return tuple(bounds[min(bisect_left(ranks, quantile * total - 1e-9), len(bounds) - 1)] for quantile in QUANTILES)
