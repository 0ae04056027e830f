"""quire.service.measuring.summaries, loop_watch"""

from __future__ import annotations

import math
import time

import pytest
import trio
import trio.lowlevel

from quire.service.measuring.loop_watch import watch_loop
from quire.service.measuring.summaries import QUANTILES, WINDOW_S, Times
from quire.service.metrics import Metrics


def test_quantiles_are_at_most_a_fifth_too_large_and_never_too_small() -> None:
    times, values = Times(), [0.02 * 1.01**number for number in range(1000)]
    for value in values:
        times.observe(value)
    for quantile, found in zip(QUANTILES, times.quantiles(1.0), strict=True):
        exact = sorted(values)[min(len(values), math.ceil(quantile * len(values))) - 1]
        assert exact <= found <= 1.21 * exact


def test_quantiles_are_of_the_last_window_and_the_count_is_of_all() -> None:
    times = Times()
    times.observe(1.0, 100)
    assert times.quantiles(1.0)[0] == pytest.approx(1.0, rel=0.21)
    times.quantiles(1.0 + WINDOW_S)
    times.observe(100.0, 10)
    assert times.quantiles(2.0 + WINDOW_S)[0] < 2, "the window is not complete"
    assert times.quantiles(2.0 + 2 * WINDOW_S)[0] == pytest.approx(100.0, rel=0.21)
    assert math.isnan(times.quantiles(3.0 + 3 * WINDOW_S)[0]), "nothing happened"
    assert (sum(times.counts), times.total) == (110, 1100.0)


async def test_a_summary_has_quantiles_a_count_and_a_sum() -> None:
    metrics, times = Metrics(), Times()
    times.observe(5.0, 4)
    metrics.summary("s", "Times.", ("success",), lambda: [(("true",), times)])
    lines = metrics.exposition().decode().splitlines()
    assert lines[:2] == ["# HELP s Times.", "# TYPE s summary"]
    assert lines[2].startswith('s{quantile="0.5",success="true"} 5.')
    assert lines[-2:] == ['s_count{success="true"} 4.0', 's_sum{success="true"} 20.0']


@pytest.mark.real_clock
async def test_the_longest_pass_of_the_loop_is_that_since_the_last_scrape() -> None:
    metrics = Metrics()
    watch = watch_loop(metrics)
    try:
        await trio.lowlevel.checkpoint()
        time.sleep(0.03)  # noqa: ASYNC251
        await trio.sleep(0.001)
        assert 30 <= watch.longest_ms() < 1000
        await trio.sleep(0.001)
        assert watch.longest_ms() < 30
        assert sum(watch.passes.counts[watch.passes.bounds.index(50.0) :]) >= 1
    finally:
        trio.lowlevel.remove_instrument(watch)
