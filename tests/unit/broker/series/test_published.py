"""broker.series.published"""

from __future__ import annotations

import pytest

from broker.series.published import LATENCIES, Published, arrived
from quire.service.measuring.summaries import LATENCY_MS, Histogram


def test_latencies_are_counted_per_entry_here_and_for_the_whole_broker() -> None:
    published, everywhere = Published(), Histogram()
    published.confirmed(1.0, 1.015, 20, everywhere)
    published.confirmed(1.0, 3.0, 1, everywhere)
    published.end_round()
    *buckets, count, total_us = published.last_round[:LATENCIES]
    assert dict(zip((*LATENCY_MS, "more"), buckets, strict=True)) == dict.fromkeys((*LATENCY_MS, "more"), 0) | {
        20.0: 20,
        "more": 1,
    }
    assert (count, sum(everywhere.counts)) == (21, 21)
    assert total_us == pytest.approx(20 * 15_000 + 2_000_000)
    assert everywhere.total == pytest.approx(2300)


def test_the_sizes_of_a_run_are_counted_each_in_its_bucket() -> None:
    sizes = [1, 128, 129, 1024, 1025, 5000, 1 << 20, (1 << 20) + 1]
    published = arrived(None, [bytes(size) for size in sizes], sum(sizes))
    assert arrived(published, [b"x" * 100, b"y" * 128], 228) is published
    published.end_round()
    assert published.last_round[LATENCIES:] == (4, 1, 1, 1, 0, 1, 0, 1, 1, 10, sum(sizes) + 228)


def test_a_round_forgets_the_round_before_it() -> None:
    published = arrived(None, [b"x"], 1)
    published.end_round()
    published.end_round()
    assert not any(published.last_round)
