from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from quire.ledger.bookies.alarms import Alarms


@asynccontextmanager
async def with_alarms() -> AsyncIterator[tuple[Callable[[float], trio.Event], list[str]]]:
    """Yield a function that sets an alarm in a number of seconds, and the names of the started tasks."""
    alarms = Alarms()
    started: list[str] = []
    async with trio.open_nursery() as nursery:

        def start(task: Callable[[], Awaitable[None]], name: str) -> None:
            started.append(name)
            nursery.start_soon(task)

        def alarm(seconds: float) -> trio.Event:
            event = trio.Event()
            alarms.set(trio.current_time() + seconds, event, start)
            return event

        yield alarm, started
        nursery.cancel_scope.cancel()


async def test_alarms_ring_when_they_are_due_whatever_the_order_in_which_they_were_set() -> None:
    async with with_alarms() as (alarm, started):
        began = trio.current_time()
        events = {seconds: alarm(seconds) for seconds in (3.0, 1.0, 2.0)}
        await trio.testing.wait_all_tasks_blocked()
        events[0.5] = alarm(0.5)
        for seconds in (0.5, 1.0, 2.0, 3.0):
            await events[seconds].wait()
            assert trio.current_time() == began + seconds
        await alarm(1.0).wait()
        assert trio.current_time() == began + 4
        assert len(started) == 1, "one task for all"


async def test_an_alarm_nobody_waits_for_any_more_wakes_nobody() -> None:
    async with with_alarms() as (alarm, _):
        for _ in range(100):
            alarm(1.0).set()
        await alarm(5.0).wait()
        assert trio.current_time() >= 5
