"""Covers quire/world/faults.py, the lanes of real_offload.py, and `end_at_fault` of quire/servers/process.py."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from quire.servers.errors import InternalError, leaves
from quire.servers.process import end_at_fault, exit_code
from quire.world.faults import Faults
from quire.world.real import real_world


def boom(items: list[int], result: None, error: BaseException | None) -> None:
    raise KeyError("confirmed")


@pytest.mark.real_clock
@pytest.mark.expect_error("internal error, the server ends")
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
