"""bookie/settings/pressure.py, as sessions, adds and the server obey it: what clients may have in progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from bookie.adds import Add
from bookie.sessions.session import REQUESTS_PER_PASS
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Stream, World
from tests.support.refusals import refuses
from tests.unit.bookie.build import CONFIG, Client, add_frame, add_frames, with_bookie
from tests.unit.bookie.settings.on_a_port import send, served

pytestmark = pytest.mark.seeded

BIG = bytes(64 << 10)


async def until_idle(seconds: float = 1.0) -> None:
    await trio.sleep(seconds)  # virtual time: everything that can happen has happened


async def test_max_adds_in_progress_limit_bounds_the_entries_on_their_way_into_the_journal() -> None:
    async with with_bookie(config=replace(CONFIG, adds_in_progress_max=2)) as bookie:
        client = Client(bookie)
        client.send(*(add_frame(ledger_id, 0) for ledger_id in range(5)))
        assert (bookie.adds.in_progress, bookie.adds.waiting_entries) == (2, 3)
        answers = await client.take(5)
        assert [each.rc for each in answers if isinstance(each, v2.AddAcks)] == [Rc.OK] * 5
        assert (bookie.adds.in_progress, bookie.adds.waiting_entries) == (0, 0)


async def test_a_run_above_max_adds_in_progress_limit_is_taken_when_nothing_else_is_in_progress() -> None:
    async with with_bookie(config=replace(CONFIG, adds_in_progress_max=2)) as bookie:
        (answer,) = await Client(bookie).ask(add_frames(7, 0, 5))
        assert answer == v2.AddAcks(Rc.OK, 7, 0, 4)


async def test_max_pending_add_requests_bounds_the_entries_that_wait() -> None:
    async with with_bookie(config=replace(CONFIG, adds_in_progress_max=1, adds_waiting_max=2)) as bookie:
        client = Client(bookie)
        client.send(*(add_frame(ledger_id, 0) for ledger_id in range(5)))
        answers = [each for each in await client.take(5) if isinstance(each, v2.AddAcks)]
        assert {each.ledger_id: each.rc for each in answers} == {
            0: Rc.OK,
            1: Rc.OK,
            2: Rc.OK,
            3: Rc.TOO_MANY_REQUESTS,
            4: Rc.TOO_MANY_REQUESTS,
        }


@pytest.mark.parametrize("limit", [0, 3])
async def test_max_reads_in_progress_limit_bounds_the_reads_of_all_connections(limit: int, world: World) -> None:
    async with served(world, reads_in_progress_max=limit) as (bookie, stream):
        await send(stream, add_frames(7, 0, 40))
        await until_idle()
        await bookie.checkpoint()
        seen: list[int] = []
        submit = bookie.read_by_worker

        def counted(*args: Any, **options: Any) -> bool:
            taken = submit(*args, **options)
            seen.append(bookie.reads_in_flight)
            return taken

        bookie.read_by_worker = counted  # type: ignore[method-assign]
        other = await world.network.connect("host", bookie.config.port)
        for each in (stream, other):
            await send(each, b"".join(v2.read_request(7, entry_id) for entry_id in range(20)))
        await until_idle()
        assert bookie.stats.reads == 40, "every read is served in the end"
        assert max(seen) == (limit or 40)
        other.close()


async def test_requests_left_for_the_next_pass_are_served_after_reads_of_others_have_ended(world: World) -> None:
    count = REQUESTS_PER_PASS + 100
    async with served(world, reads_in_progress_max=1) as (bookie, stream):
        workers = bookie._readers.all[0]
        carry_out = bookie.adds.add

        def added(add: Add) -> None:
            if bookie.stats.adds == REQUESTS_PER_PASS - 1:
                workers.waiting += 1  # a read of another connection begins
            carry_out(add)

        bookie.adds.add = added  # type: ignore[method-assign]
        await send(stream, b"".join([add_frame(7 + number % 2, number // 2) for number in range(count)]))
        await until_idle()
        assert (bookie.stats.adds, bookie.read_limit.paused) == (REQUESTS_PER_PASS, 0)
        workers.waiting -= 1
        bookie._reads_answered()
        await until_idle()
        assert bookie.stats.adds == count


@pytest.mark.parametrize(("high", "low", "read"), [(1 << 20, 0, 8), (1 << 20, 1, 8), (4 << 20, 0, 32)])
async def test_a_client_that_takes_no_answers_is_read_up_to_the_high_water_mark(
    high: int, low: int, read: int, world: World
) -> None:
    async with served(world, answers_high_water=high, answers_low_water=low) as (bookie, stream):
        await send(stream, add_frame(7, 0, BIG))
        await until_idle()
        taken = 0
        for number in range(100):
            await send(stream, v2.read_request(7, 0))
            await until_idle(0.01)
            taken = number + 1
            if bookie.stats.reads < taken:
                break
        assert read <= bookie.stats.reads < 100, "then nothing more is read from it"
        buffer = memoryview(bytearray(1 << 20))
        while bookie.stats.reads < taken:
            assert await stream.receive_into(buffer)
        assert bookie.stats.reads == taken, "it is read again when it has taken its answers"


@pytest.mark.parametrize("wait_ms", [-1, 2000])
async def test_a_client_that_takes_no_answers_is_disconnected_after_its_time(wait_ms: int, world: World) -> None:
    keys = {"answers_high_water": 1 << 20, "answer_wait_ms": wait_ms, "close_on_answer_timeout": True}
    async with served(world, **keys) as (_, stream):
        await send(stream, add_frame(7, 0, BIG))
        await until_idle()
        for _ in range(60):
            await send(stream, v2.read_request(7, 0))
        await trio.sleep(60)
        buffer = memoryview(bytearray(1 << 20))
        received = 0
        with trio.move_on_after(60):
            while size := await _receive(stream, buffer):
                received += size
        everything = 60 * len(BIG)
        assert (received >= everything) is (wait_ms < 0)


async def _receive(stream: Stream, buffer: memoryview) -> int:
    try:
        return await stream.receive_into(buffer)
    except OSError:
        return 0


def test_keys_that_contradict_each_other_are_refused() -> None:
    replace(CONFIG, answer_wait_ms=10, close_on_answer_timeout=True).check_pressure()
    refuses(ValueError, replace(CONFIG, answer_wait_ms=10).check_pressure, "closeChannelOnResponseTimeout=true")
    refuses(ValueError, replace(CONFIG, answers_low_water=5 << 20).check_pressure, "serverWriteBufferHighWaterMark")
