"""Meter: what a load did, second by second. It is written in the hot path and read by reports."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.lines import Throughput

HOUR_US = 3_600_000_000
TEN_DAYS_MS = 10 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of a run, for the picture and the table."""

    at_s: float
    rate: float
    median: int
    high: int
    """99th percentile."""
    maximum: int


class LoadMeter:
    """Counters and latencies: of the present interval, and of the whole run."""

    def __init__(self, highest: int, unit_ms: float) -> None:
        """`unit_ms`: length of one unit of the latencies."""
        self.unit_ms = unit_ms
        self.latencies: dict[int, int] = defaultdict(int)
        """Latencies since the last sample, each with its number."""
        self.messages = 0
        self.size_bytes = 0
        self.failed = 0
        self.whole = LatencyHistogram(highest)
        self.interval = LatencyHistogram(highest)
        self.samples: list[Sample] = []
        self.expected_interval = 0
        """Distance of two messages in units, for HdrHistogram's correction; 0: none."""
        self._highest = highest
        self._began = self._interval_began = self._sampled_at = time.monotonic()
        self._interval_start = (0, 0, 0)
        self._sampled = 0

    def restart(self) -> None:
        """Begin to count time now: all is connected."""
        self._began = self._interval_began = self._sampled_at = time.monotonic()

    def sample(self) -> Sample:
        """Take the latencies since the last call."""
        now = time.monotonic()
        fresh, self.latencies = self.latencies, defaultdict(int)
        second = LatencyHistogram(self._highest)
        if self.expected_interval:
            for value, count in fresh.items():
                second.record_expected(value, self.expected_interval, count)
        else:
            second.add(fresh)
        self.interval.merge(second)
        self.whole.merge(second)
        elapsed = max(now - self._sampled_at, 1e-9)
        rate = (self.messages - self._sampled) / elapsed
        found = Sample(now - self._began, rate, second.percentile(50), second.percentile(99), second.maximum)
        self._sampled_at, self._sampled = now, self.messages
        self.samples.append(found)
        return found

    def end_interval(self) -> tuple[Throughput, LatencyHistogram]:
        """Return what was counted since the last call, and its latencies."""
        now = time.monotonic()
        before = self._interval_start
        counted = Throughput(
            self.messages - before[0],
            self.size_bytes - before[1],
            max(now - self._interval_began, 1e-9),
            self.failed - before[2],
        )
        found, self.interval = self.interval, LatencyHistogram(self._highest)
        self._interval_start = (self.messages, self.size_bytes, self.failed)
        self._interval_began = now
        return counted, found

    def total(self) -> Throughput:
        """Return what was counted in all."""
        return Throughput(self.messages, self.size_bytes, time.monotonic() - self._began, self.failed)
