"""quire/world/tasks.py."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from quire.world.tasks import for_each


def run(main) -> None:
    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_so_many_jobs_run_at_once_and_no_more() -> None:
    async def main() -> None:
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

    run(main)


def test_the_first_failure_cancels_the_others_and_comes_alone_in_no_group() -> None:
    async def main() -> None:
        begun: list[int] = []
        ended: list[int] = []

        async def job(item: int) -> None:
            begun.append(item)
            await trio.sleep(item)
            if item == 2:
                raise KeyError(item)
            ended.append(item)

        with pytest.raises(KeyError):
            await for_each(range(1, 100), job, at_once=2, name="job")
        assert (begun, ended) == ([1, 2, 3], [1])

    run(main)


def test_errors_after_which_all_are_tried_do_not_keep_the_others_from_it_and_the_first_is_raised() -> None:
    async def main() -> None:
        begun: list[int] = []

        async def job(item: int) -> None:
            begun.append(item)
            await trio.sleep(1)
            if item in (3, 30):
                raise OSError(item)

        with pytest.raises(OSError, match=r"^3$"):
            await for_each(range(40), job, at_once=7, name="job", tried_all=(OSError,))
        assert begun == list(range(40))

    run(main)


def test_an_error_that_cancels_is_raised_before_one_that_does_not() -> None:
    async def main() -> None:
        async def job(item: int) -> None:
            raise (OSError, KeyError)[item](item)

        with pytest.raises(KeyError):
            await for_each(range(2), job, at_once=1, name="job", tried_all=(OSError,))

    run(main)


def test_a_cancelled_caller_cancels_the_jobs() -> None:
    async def main() -> None:
        with trio.move_on_after(1) as scope:
            await for_each(range(9), trio.sleep, at_once=9, name="job")
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(1)

    run(main)
