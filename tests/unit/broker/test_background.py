"""Work that continues after its requester has disconnected."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.background import AT_ONCE_MAX, for_all, see_through
from broker.errors import ServiceNotReadyError, TopicBusyError
from tests.support.refusals import raises


async def test_what_was_begun_is_ended_when_the_caller_is_cancelled() -> None:
    done: list[str] = []

    async def main() -> None:
        async def job() -> None:
            await trio.sleep(5)
            done.append("done")

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(1):
                await see_through(nursery, job, name="job")
            assert not done

    await main()
    assert done == ["done"]


@pytest.mark.real_clock
async def test_the_result_and_the_brokers_errors_come_back() -> None:
    async def seven() -> int:
        return 7

    async def busy() -> None:
        raise TopicBusyError("busy")

    async with trio.open_nursery() as nursery:
        assert await see_through(nursery, seven, name="seven") == 7
        await raises(TopicBusyError, see_through(nursery, busy, name="busy"))


@pytest.mark.real_clock
@pytest.mark.expect_error("job failed")
async def test_our_own_mistake_is_logged_and_does_not_take_the_broker_down() -> None:
    async def job() -> None:
        raise ZeroDivisionError

    async with trio.open_nursery() as nursery:
        await raises(ServiceNotReadyError, see_through(nursery, job, name="job"))


@pytest.mark.real_clock
async def test_who_waits_for_work_that_is_broken_off_is_told() -> None:
    told: list[Exception] = []

    async with trio.open_nursery() as outer, trio.open_nursery() as inner:

        async def ask() -> None:
            try:
                await see_through(inner, trio.sleep_forever, name="job")
            except ServiceNotReadyError as error:
                told.append(error)

        outer.start_soon(ask)
        await wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
    assert len(told) == 1


async def test_of_many_jobs_all_are_tried_some_at_a_time_and_the_first_error_is_raised() -> None:
    begun: list[int] = []

    async def job(number: int) -> None:
        begun.append(number)
        await trio.sleep(1)
        if number in (3, 30):
            raise TopicBusyError(str(number))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises_the_first)
            await wait_all_tasks_blocked()
            assert len(begun) == AT_ONCE_MAX

    async def raises_the_first() -> None:
        await raises(TopicBusyError, for_all(range(40), job, name="jobs"), match=r"^3$")

    await main()
    assert begun == list(range(40))
