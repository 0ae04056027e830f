from __future__ import annotations

import trio

from quire.ledger.bookies.deadlines import DeadlineWheel


class Work:
    def __init__(self, ticks: int) -> None:
        self.left = ticks
        self.at: list[float] = []

    def tick(self, now: int) -> bool:
        self.at.append(trio.current_time())
        self.left -= 1
        return self.left > 0


async def test_only_what_is_under_way_is_ticked_and_an_idle_wheel_stands_still(nursery: trio.Nursery) -> None:
    wheel = DeadlineWheel(0.5)
    nursery.start_soon(wheel.run)
    first, second = Work(3), Work(1)
    wheel.watch(first)
    wheel.watch(first)
    wheel.watch(second)
    await trio.sleep(100)
    assert first.at == [0.5, 1.0, 1.5]
    assert second.at == [0.5]
    assert wheel.now == 3
    third = Work(1)
    wheel.watch(third)
    await trio.sleep(10)
    assert third.at == [100.5]


def test_the_ticks_of_a_timeout_never_end_before_it() -> None:
    wheel = DeadlineWheel(0.25)
    assert [wheel.ticks(seconds) for seconds in (0.1, 0.25, 1.0, 1.1)] == [2, 2, 5, 6]
