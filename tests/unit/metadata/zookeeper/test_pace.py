"""quire/metadata/zookeeper/pace.py: requests at a rate, in order."""

from __future__ import annotations

import pytest
import trio

from quire.metadata.zookeeper.pace import BURST_S, Pace
from quire.servers.bookie.config import BOOKIE

pytestmark = pytest.mark.seeded


async def times(pace: Pace, count: int) -> list[float]:
    began = trio.current_time()
    found = []
    for _ in range(count):
        await pace.wait()
        found.append(round(trio.current_time() - began, 3))
    return found


async def test_requests_go_at_the_rate_after_what_may_be_made_up_for() -> None:
    pace = Pace(4)
    assert await times(pace, 9) == [0, 0, 0, 0, 0, 0.25, 0.5, 0.75, 1.0]
    await trio.sleep(100 * BURST_S)
    assert await times(pace, 7) == [0, 0, 0, 0, 0, 0.25, 0.5]


async def test_without_a_rate_nothing_waits() -> None:
    assert await times(Pace(0), 1000) == [0] * 1000


async def test_waiting_requests_go_in_their_order() -> None:
    pace, order = Pace(1), list[int]()

    async def ask(number: int) -> None:
        await pace.wait()
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(ask, number)
            await trio.sleep(0.01)
    assert order == sorted(order)


def test_the_key_is_the_rate_of_a_servers_session() -> None:
    assert BOOKIE.build({"zkRequestRateLimit": 2.5}).metadata.zookeeper_of_server.requests_per_second == 2.5
    assert BOOKIE.build().metadata.zookeeper_of_server.requests_per_second == 0
