"""HdrHistogram: counts of values with a fixed number of significant digits (pure).

A value is counted in the bucket of its leading bits, so that a million latencies from 1 us to an hour take a few
thousand counters, and each percentile is right within 0.1 % (three digits). The hard part is that everybody who reads
a percentile must round alike: buckets, equivalent values and the choice of the bucket at a percentile are those of the
original, or the same measurement gives other figures here and there. docs/adr/0010 has why this is no package.
Source: AbstractHistogram.java and Histogram.java of HdrHistogram 2.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

PERCENTILES = (50.0, 95.0, 99.0, 99.9, 99.99, 99.999)
DIGITS = 3


class LatencyHistogram:
    """Counts of integers from 0 to `highest`; a higher value counts as `highest`."""

    def __init__(self, highest: int, digits: int = DIGITS) -> None:
        if highest < 2 or not 1 <= digits <= 5:
            raise ValueError(f"a histogram up to {highest} (at least 2) with {digits} digits (1 to 5)")
        self.highest = highest
        self.digits = digits
        self._half_magnitude = max(math.ceil(math.log2(2 * 10**digits)), 1) - 1
        self._half = 1 << self._half_magnitude
        self._counts: dict[int, int] = {}
        self.total = 0
        self._max = 0
        """Highest value that was recorded."""

    def record(self, value: int, count: int = 1) -> None:
        """Count a value."""
        value = min(max(value, 0), self.highest)
        index = self._index(value)
        self._counts[index] = self._counts.get(index, 0) + count
        self.total += count
        self._max = max(self._max, value)

    def record_expected(self, value: int, interval: int, count: int = 1) -> None:
        """Count a value, and those that a load would have met that waits for an answer before it sends again.

        `interval`: expected distance of two values; 0: none. Source: recordValueWithExpectedInterval."""
        self.record(value, count)
        if interval > 0:
            missing = min(value, self.highest) - interval
            while missing >= interval:
                self.record(missing, count)
                missing -= interval

    def add(self, counts: Mapping[int, int]) -> None:
        """Count values, each as often as it has."""
        for value, count in counts.items():
            self.record(value, count)

    def merge(self, other: LatencyHistogram) -> None:
        """Add the counts of a histogram of the same digits."""
        assert other.digits == self.digits
        for index, count in other._counts.items():
            self._counts[index] = self._counts.get(index, 0) + count
        self.total += other.total
        self._max = max(self._max, other._max)

    @property
    def maximum(self) -> int:
        """Return the highest value of the bucket of the highest value; 0: empty."""
        return self._highest_equivalent(self._index(self._max)) if self.total else 0

    def mean(self) -> float:
        """Return the mean; 0: empty."""
        if not self.total:
            return 0.0
        return sum(self._middle(index) * count for index, count in self._counts.items()) / self.total

    def percentile(self, percent: float) -> int:
        """Return the highest value of the bucket at a percentile; 0: empty."""
        if not self.total:
            return 0
        # (One step towards 0, as the original: 99.9 % of 1000 must be 999, though it is a little more in binary.)
        percent = min(max(math.nextafter(percent, -math.inf), 0.0), 100.0)
        wanted = max(math.ceil(percent * self.total / 100.0), 1)
        seen = 0
        for index in sorted(self._counts):
            seen += self._counts[index]
            if seen >= wanted:
                return self._highest_equivalent(index)
        raise AssertionError("the counts are fewer than their total")

    def percentiles(self, percents: Iterable[float] = PERCENTILES) -> list[int]:
        """Return the values at percentiles."""
        return [self.percentile(each) for each in percents]

    def counts(self) -> Iterator[int]:
        """Yield the counters up to that of the highest value, as they are in the original's array."""
        for index in range(self._index(self._max) + 1):
            yield self._counts.get(index, 0)

    def steps(self) -> list[tuple[int, float]]:
        """Return the highest value of each bucket in use, with the fraction of values up to it."""
        found: list[tuple[int, float]] = []
        seen = 0
        for index in sorted(self._counts):
            seen += self._counts[index]
            found.append((self._highest_equivalent(index), seen / self.total))
        return found

    def _index(self, value: int) -> int:
        bucket = max(value.bit_length() - self._half_magnitude - 1, 0)
        return ((bucket + 1) << self._half_magnitude) + (value >> bucket) - self._half

    def _lowest_and_size(self, index: int) -> tuple[int, int]:
        """Return the lowest value of a bucket, and how many values it has."""
        bucket = (index >> self._half_magnitude) - 1
        part = (index & self._half - 1) + self._half
        if bucket < 0:
            bucket, part = 0, part - self._half
        return part << bucket, 1 << bucket

    def _highest_equivalent(self, index: int) -> int:
        lowest, size = self._lowest_and_size(index)
        return lowest + size - 1

    def _middle(self, index: int) -> int:
        lowest, size = self._lowest_and_size(index)
        return lowest + (size >> 1)
