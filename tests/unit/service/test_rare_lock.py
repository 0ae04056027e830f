"""Covers quire/service/rare_lock.py."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from quire.service.rare_lock import RareLock

pytestmark = pytest.mark.real_clock


async def test_one_task_at_a_time_is_inside() -> None:
    lock = RareLock()
    inside: list[int] = []
    done: list[int] = []

    async def enter(number: int) -> None:
        async with lock:
            inside.append(number)
            for _ in range(3):
                assert inside == [number]
                await trio.lowlevel.checkpoint()
            inside.remove(number)
            done.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(enter, number)
    assert sorted(done) == [0, 1, 2, 3, 4]


async def test_a_lock_that_is_free_again_keeps_nothing() -> None:
    lock = RareLock()
    async with lock:
        assert lock._held
    assert not lock._held


async def test_a_free_lock_is_taken_in_the_same_turn_and_those_that_wait_have_it_in_their_order() -> None:
    lock = RareLock()
    turns: list[str] = []

    async def other() -> None:
        turns.append("other")

    order: list[int] = []

    async def enter(number: int) -> None:
        async with lock:
            order.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with lock:
            turns.append("lock")
            for number in range(5):
                nursery.start_soon(enter, number)
                await trio.testing.wait_all_tasks_blocked()
    assert turns == ["lock", "other"]
    assert order == [0, 1, 2, 3, 4]
