"""A timer calls at its time, and not if it was cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
import trio.testing

from bookie.timers import Timers


def with_timers(story: Callable[[Timers, list[str]], Awaitable[None]]) -> list[str]:
    events: list[str] = []

    async def main() -> None:
        timers = Timers()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run, lambda: events.append("after"))
            await story(timers, events)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return events


def test_each_is_called_at_its_time_in_order_with_one_after_per_pass() -> None:
    async def story(timers: Timers, events: list[str]) -> None:
        now = trio.current_time()
        for name, delay in (("c", 3), ("a", 1), ("b", 1)):
            timers.at(now + delay, lambda name=name: events.append(f"{name} {trio.current_time() - now:g}"))  # type: ignore[misc]
        await trio.sleep(10)

    assert with_timers(story) == ["a 1", "b 1", "after", "c 3", "after"]


def test_one_that_is_earlier_than_all_others_is_not_late() -> None:
    async def story(timers: Timers, events: list[str]) -> None:
        now = trio.current_time()
        timers.at(now + 100, lambda: events.append("late"))
        await trio.sleep(1)
        timers.at(now + 2, lambda: events.append(f"early {trio.current_time() - now:g}"))
        await trio.sleep(5)

    assert with_timers(story) == ["early 2", "after"]


def test_a_cancelled_one_is_not_called_and_its_time_passes_silently() -> None:
    async def story(timers: Timers, events: list[str]) -> None:
        timer = timers.at(trio.current_time() + 1, lambda: events.append("called"))
        timer.cancel()
        timer.cancel()
        await trio.sleep(5)

    assert with_timers(story) == []


def test_cancelled_ones_do_not_gather() -> None:
    async def story(timers: Timers, events: list[str]) -> None:
        for _ in range(100):
            for timer in [timers.at(trio.current_time() + 1000, lambda: None) for _ in range(100)]:
                timer.cancel()
        assert len(timers._heap) <= 2000
        timers.at(trio.current_time() + 1, lambda: events.append("called"))
        await trio.sleep(5)

    assert with_timers(story) == ["called", "after"]
