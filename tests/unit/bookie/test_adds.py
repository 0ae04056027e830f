"""Adds that find no room wait for it, in order and for a limited time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from bookie.bookie import Bookie
from bookie.sessions.session import ADDS_WAITING_MAX
from quire.metadata.local.memory import MemoryTree
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from tests.unit.bookie.build import CONFIG, Client, add_frame, entry, opened

pytestmark = pytest.mark.bookie(write_cache_mb=2)
"""Size of a write cache for about four of the entries below; a flush begins with the second one."""

PAYLOAD = bytes(500_000)
WAIT_S = CONFIG.add_wait_ms / 1000


@pytest.fixture
async def gate(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[trio.Event]:
    """Hold all flushes until the event is set, at the end of the test at the latest."""
    gate = trio.Event()
    flush: Callable[[], Awaitable[None]] = bookie.storage.flush

    async def held() -> None:
        await gate.wait()
        await flush()

    monkeypatch.setattr(bookie.storage, "flush", held)
    yield gate
    gate.set()


def send_adds(client: Client, first: int, count: int, *, flags: int = 0) -> None:
    for entry_id in range(first, first + count):
        client.send(add_frame(7, entry_id, PAYLOAD, flags=flags))


async def acks(client: Client, count: int) -> list[tuple[int, int]]:
    """Return (code, entry id) of the answers to this many adds, in order of arrival."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        (answer,) = await client.take()
        assert isinstance(answer, v2.AddAcks)
        found += [(answer.rc, entry_id) for entry_id in range(answer.first, answer.last + 1)]
    return found


async def test_adds_above_the_write_cache_are_answered_in_order_after_the_flush(gate, bookie, client):
    send_adds(client, 0, 12)
    await trio.sleep(WAIT_S / 2)
    answered = len(await acks(client, 1))
    assert 0 < answered < 12
    assert bookie.adds.waiting_bytes > 0
    gate.set()
    assert await acks(client, 12 - answered) == [(Rc.OK, i) for i in range(answered, 12)]
    assert bookie.adds.waiting_bytes == client.session.adds_waiting == 0
    assert bookie.stats.adds == 12
    await client.holds(7, range(12), PAYLOAD)


async def test_adds_that_wait_too_long_are_refused_and_not_stored(gate, bookie, client):
    began = trio.current_time()
    send_adds(client, 0, 6)
    found = await acks(client, 6)
    taken = [entry_id for rc, entry_id in found if rc == Rc.OK]
    assert taken == list(range(len(taken)))
    assert found[len(taken) :] == [(Rc.TOO_MANY_REQUESTS, i) for i in range(len(taken), 6)]
    assert len(taken) < 6
    assert began + WAIT_S <= trio.current_time() < began + WAIT_S + 1
    gate.set()
    assert (await client.read(7, 5)).rc == Rc.NO_ENTRY
    assert bookie.stats.adds_refused == 6 - len(taken)
    await trio.sleep(5)
    send_adds(client, 6, 1)
    assert await acks(client, 1) == [(Rc.OK, 6)]


async def test_each_add_has_its_own_deadline(gate: trio.Event, bookie: Bookie, client: Client) -> None:
    send_adds(client, 0, 5)
    taken = await acks(client, 4)
    assert {rc for rc, _ in taken} == {Rc.OK}
    await trio.sleep(WAIT_S / 2)
    send_adds(client, 5, 1)
    assert await acks(client, 1) == [(Rc.TOO_MANY_REQUESTS, 4)]
    late = trio.current_time()
    assert await acks(client, 1) == [(Rc.TOO_MANY_REQUESTS, 5)]
    assert trio.current_time() - late > WAIT_S / 3


async def test_reads_are_answered_while_adds_wait(gate: trio.Event, bookie: Bookie) -> None:
    writer, reader = Client(bookie), Client(bookie)
    send_adds(writer, 0, 6)
    await acks(writer, 1)
    for client in (reader, writer):
        began = trio.current_time()
        answer = await client.read(7, 0)
        assert bytes(answer.entry) == entry(7, 0, PAYLOAD)
        assert trio.current_time() == began
    assert bookie.adds.waiting_bytes > 0


async def test_adds_of_others_do_not_overtake_those_that_wait(gate: trio.Event, bookie: Bookie) -> None:
    first, second = Client(bookie), Client(bookie)
    send_adds(first, 0, 6)
    second.send(add_frame(8, 0))
    await trio.sleep(1)
    assert second.answers == []
    gate.set()
    assert await acks(second, 1) == [(Rc.OK, 0)]
    assert [rc for rc, _ in await acks(first, 6)] == [Rc.OK] * 6


async def test_a_fence_refuses_the_adds_that_wait(gate: trio.Event, bookie: Bookie) -> None:
    writer, recovery = Client(bookie), Client(bookie)
    send_adds(writer, 0, 5)
    assert {rc for rc, _ in await acks(writer, 4)} == {Rc.OK}
    assert bytes((await recovery.fence(7)).entry) == entry(7, 3, PAYLOAD)
    gate.set()
    assert await acks(writer, 1) == [(Rc.FENCED, 4)]
    assert (await recovery.read(7, 4)).rc == Rc.NO_ENTRY


@pytest.mark.bookie(journal_memory_mb=1)
async def test_adds_above_the_journals_bound_wait_until_it_has_written(client: Client) -> None:
    send_adds(client, 0, 4)
    assert client.answers == []
    assert client.session.adds_waiting > 0
    assert await acks(client, 4) == [(Rc.OK, i) for i in range(4)]


async def test_what_waits_is_bounded_in_all(gate: trio.Event, bookie: Bookie, client: Client) -> None:
    bookie.adds.waiting_max = 600_000
    send_adds(client, 0, 6)
    assert client.answers == [v2.AddAcks(Rc.TOO_MANY_REQUESTS, 7, 5, 5)]
    assert bookie.adds.waiting_bytes <= 600_000


async def test_a_session_with_much_that_waits_is_paused_until_half_of_it_has_found_room(gate, bookie, client):
    session = client.session
    room = trio.Event()
    session.on_room = room.set
    sent = 0
    while not session.is_paused:
        send_adds(client, sent, 1)
        sent += 1
    assert session.adds_waiting > ADDS_WAITING_MAX
    assert not session.has_room
    gate.set()
    with trio.fail_after(WAIT_S):
        await room.wait()
    assert session.has_room
    assert not session.is_paused
    assert [rc for rc, _ in await acks(client, sent)] == [Rc.OK] * sent


async def test_adds_of_a_client_that_has_gone_are_still_carried_out(gate: trio.Event, bookie: Bookie):
    writer, reader = Client(bookie), Client(bookie)
    send_adds(writer, 0, 5)
    writer.session.close()
    gate.set()
    await trio.sleep(5)
    assert bytes((await reader.read(7, 4)).entry) == entry(7, 4, PAYLOAD)


async def test_a_bookie_that_stops_refuses_the_adds_that_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = trio.Event()
    async with opened(world, MemoryTree(), replace(CONFIG, write_cache_mb=2)) as bookie:
        client = Client(bookie)
        with monkeypatch.context() as patch:
            patch.setattr(bookie.storage, "flush", gate.wait)
            send_adds(client, 0, 5)
            assert len(await acks(client, 4)) == 4
        gate.set()
    assert client.answers == [v2.AddAcks(Rc.TOO_MANY_REQUESTS, 7, 4, 4)]
