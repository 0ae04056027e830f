"""Covers quire/world/faults.py, the lanes of real_offload.py, and their part of quire/servers/process.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from quire.servers.errors import InternalError
from quire.servers.process import ENDS, FAULT_GRACE_S, cut_after_faults, end_at_fault, ending_at_faults, exit_code
from quire.service.log import Event
from quire.world.faults import Faults
from quire.world.real import real_world
from quire.world.unwrap import leaves


def boom(items: list[int], result: None, error: BaseException | None) -> None:
    raise KeyError("confirmed")


@pytest.mark.real_clock
@pytest.mark.expect_error(ENDS)
async def test_a_callback_of_a_thread_that_raises_ends_the_server_with_a_reason_and_a_traceback(log_events) -> None:
    async def serve() -> None:
        world = real_world()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_at_fault, world.faults)
            await trio.testing.wait_all_tasks_blocked()
            lane = world.offload.lane("journal", lambda items: None, boom)
            lane.put(1)
            await trio.sleep(10)

    with pytest.raises(ExceptionGroup) as raised:
        await serve()
    (error,) = leaves(raised.value)
    assert isinstance(error, InternalError)
    assert "a callback of the thread 'journal': KeyError('confirmed')" in str(error)
    assert exit_code(raised.value) == 1
    (event,) = [each for each in log_events if each["level"] == "error"]
    assert "boom" in str(event)


def test_without_a_server_that_waits_for_faults_the_exception_goes_its_way() -> None:
    with pytest.raises(KeyError):
        Faults().call("here", boom, [], None, None)


@pytest.mark.real_clock
async def test_the_first_fault_is_the_one_that_is_told() -> None:
    faults = Faults()
    async with trio.open_nursery() as nursery:
        told: list[str] = []

        async def wait() -> None:
            told.append((await faults.wait()).where)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        for where in ("first", "second"):
            faults.call(where, boom, [], None, None)
    assert told == ["first"]


async def check_ended_by(serve: Callable[[Faults], Awaitable[None]], events: list[Event]) -> None:
    """Run a server that has to end with one InternalError, and with one ERROR in its log that has the traceback and
    the reason."""
    with pytest.raises((InternalError, ExceptionGroup)) as raised:
        await serve(Faults())
    (error,) = leaves(raised.value)
    assert isinstance(error, InternalError)
    assert exit_code(raised.value) == 1
    (event,) = [each for each in events if each["level"] == "error"]
    assert (event["where"], event["reason"]) == ("here", "KeyError('confirmed')")
    assert "boom" in event["exception"]


@pytest.mark.expect_error(ENDS)
async def test_a_fault_while_a_server_opens_ends_it_though_the_opening_hangs(log_events: list[Event]) -> None:
    async def serve(faults: Faults) -> None:
        async with cut_after_faults(faults):
            faults.call("here", boom, [], None, None)
            await trio.sleep_forever()

    await check_ended_by(serve, log_events)


@pytest.mark.expect_error(ENDS)
async def test_a_fault_while_a_server_closes_is_not_passed_over(log_events: list[Event]) -> None:
    async def serve(faults: Faults) -> None:
        async with cut_after_faults(faults):
            async with ending_at_faults(faults):
                await trio.sleep(1)
            faults.call("here", boom, [], None, None)

    await check_ended_by(serve, log_events)


@pytest.mark.expect_error(ENDS)
async def test_a_server_that_serves_ends_in_order_before_it_is_cut(log_events: list[Event]) -> None:
    closed: list[float] = []

    async def serve(faults: Faults) -> None:
        async with cut_after_faults(faults):
            try:
                async with ending_at_faults(faults):
                    await trio.sleep(1)
                    faults.call("here", boom, [], None, None)
                    await trio.sleep_forever()
            finally:
                await trio.sleep(FAULT_GRACE_S / 2)  # the stores around what serves are closed, and not cancelled
                closed.append(trio.current_time())

    await check_ended_by(serve, log_events)
    assert closed == [pytest.approx(1 + FAULT_GRACE_S / 2)]
