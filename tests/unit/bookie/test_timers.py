"""A timer calls at its time, and not if it was cancelled."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from bookie.timers import Timers
from tests.support.waiting import until


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
async def timers(events: list[str], nursery: trio.Nursery) -> Timers:
    timers = Timers()
    nursery.start_soon(timers.run, lambda: events.append("after"))
    return timers


async def test_each_is_called_at_its_time_in_order_with_one_after_per_pass(timers: Timers, events: list[str]) -> None:
    now = trio.current_time()

    def called(name: str) -> None:
        events.append(f"{name} {trio.current_time() - now:g}")

    for name, delay in (("c", 3), ("a", 1), ("b", 1)):
        timers.at(now + delay, partial(called, name))
    await until(lambda: len(events) == 5, within=10)
    assert events == ["a 1", "b 1", "after", "c 3", "after"]


async def test_one_that_is_earlier_than_all_others_is_not_late(timers: Timers, events: list[str]) -> None:
    now = trio.current_time()
    timers.at(now + 100, lambda: events.append("late"))
    await trio.sleep(1)
    timers.at(now + 2, lambda: events.append(f"early {trio.current_time() - now:g}"))
    await until(lambda: len(events) == 2, within=5)
    assert events == ["early 2", "after"]


async def test_a_cancelled_one_is_not_called_and_its_time_passes_silently(timers: Timers, events: list[str]) -> None:
    timer = timers.at(trio.current_time() + 1, lambda: events.append("called"))
    timer.cancel()
    timer.cancel()
    await trio.sleep(5)
    assert events == []


async def test_cancelled_ones_do_not_gather(timers: Timers, events: list[str]) -> None:
    for _ in range(100):
        for timer in [timers.at(trio.current_time() + 1000, lambda: None) for _ in range(100)]:
            timer.cancel()
    assert len(timers._heap) <= 2000
    timers.at(trio.current_time() + 1, lambda: events.append("called"))
    await until(lambda: len(events) == 2, within=5)
    assert events == ["called", "after"]
