"""quire/world/tasks.py."""

from __future__ import annotations

import pytest
import trio

from quire.world.tasks import for_each
from tests.support.refusals import raises


async def test_so_many_jobs_run_at_once_and_no_more() -> None:
    running = most = 0
    done: list[int] = []

    async def job(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        done.append(item)

    await for_each(range(10), job, at_once=3, name="job")
    assert (most, sorted(done)) == (3, list(range(10)))
    assert trio.current_time() == pytest.approx(4)
    await for_each([], job, at_once=3, name="job")


async def test_the_first_failure_cancels_the_others_and_comes_alone_in_no_group() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def job(item: int) -> None:
        begun.append(item)
        await trio.sleep(item)
        if item == 2:
            raise KeyError(item)
        ended.append(item)

    await raises(KeyError, for_each(range(1, 100), job, at_once=2, name="job"))
    assert (begun, ended) == ([1, 2, 3], [1])


async def test_errors_after_which_all_are_tried_do_not_keep_the_others_from_it_and_the_first_is_raised() -> None:
    begun: list[int] = []

    async def job(item: int) -> None:
        begun.append(item)
        await trio.sleep(1)
        if item in (3, 30):
            raise OSError(item)

    await raises(OSError, for_each(range(40), job, at_once=7, name="job", tried_all=(OSError,)), r"^3$")
    assert begun == list(range(40))


async def test_an_error_that_cancels_is_raised_before_one_that_does_not() -> None:
    async def job(item: int) -> None:
        raise (OSError, KeyError)[item](item)

    await raises(KeyError, for_each(range(2), job, at_once=1, name="job", tried_all=(OSError,)))


async def test_a_cancelled_caller_cancels_the_jobs() -> None:
    with trio.move_on_after(1) as scope:
        await for_each(range(9), trio.sleep, at_once=9, name="job")
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(1)
