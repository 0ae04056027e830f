from __future__ import annotations

import pytest
import trio

from quire.metadata.local.watches import WatchTable
from quire.metadata.store import Changed, Watch

pytestmark = pytest.mark.real_clock


@pytest.fixture
def table() -> WatchTable:
    return WatchTable()


@pytest.fixture
def watch(table: WatchTable) -> Watch:
    return table.add("/a")


async def test_a_change_before_next_is_not_missed_and_told_once(table: WatchTable, watch: Watch) -> None:
    table.fire(["/b", "/a", "/a"])
    assert await watch.next() == Changed("/a")
    with trio.move_on_after(0.001) as scope:
        await watch.next()
    assert scope.cancelled_caught


async def test_a_cancelled_wait_leaves_the_watch_usable(table: WatchTable, watch: Watch) -> None:
    with trio.move_on_after(0):
        await watch.next()
    table.fire(["/a"])
    assert await watch.next() == Changed("/a")


def test_closed_watches_are_forgotten() -> None:
    table = WatchTable()
    one, two = table.add("/a"), table.add("/a")
    one.close()
    one.close()
    assert one.closed
    assert not two.closed
    two.close()
    assert table._watches == {}


async def test_the_first_failure_stays(table: WatchTable, watch: Watch) -> None:
    table.fail(ValueError("first"))
    watch.close()
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            await watch.next()
