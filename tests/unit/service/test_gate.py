"""Covers quire/service/gate.py, and the common behaviour of quire/service/rare_lock.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from quire.service.gate import Gate
from quire.service.rare_lock import RareLock


async def test_so_many_are_inside_at_a_time_and_each_in_its_turn() -> None:
    gate = Gate(3)
    inside: list[int] = []
    entered: list[int] = []
    most = 0

    async def enter(number: int) -> None:
        nonlocal most
        async with gate:
            entered.append(number)
            inside.append(number)
            most = max(most, len(inside))
            assert len(inside) <= 3
            await trio.sleep(1 + number / 100)
            inside.remove(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(enter, number)
            await trio.testing.wait_all_tasks_blocked()
    assert (most, entered) == (3, list(range(10)))
    assert trio.current_time() >= 4


async def test_to_enter_while_there_is_room_takes_no_turn() -> None:
    gate = Gate(1)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await trio.lowlevel.checkpoint()
        before = turns
        for _ in range(10):
            async with gate:
                pass
        assert turns == before
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("make", [lambda: Gate(1), RareLock], ids=["gate", "rare lock"])
async def test_a_place_is_not_lost_with_a_task_that_is_cancelled(make: Callable[[], Gate | RareLock]) -> None:
    gate = make()
    held, let_go = trio.Event(), trio.Event()

    async def hold() -> None:
        async with gate:
            held.set()
            await let_go.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await held.wait()
        with trio.move_on_after(1) as scope:
            async with gate:
                raise AssertionError("there is no room")
        assert scope.cancelled_caught
        let_go.set()
    with trio.fail_after(1):
        async with gate:
            pass
