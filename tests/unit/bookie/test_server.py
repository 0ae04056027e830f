"""A bookie on a port of the simulated network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from struct import pack
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest
import trio

from bookie.bookie import Bookie
from bookie.journal.format import Fence, Record
from bookie.server import GRACE_S, serve_bookie
from quire.metadata import bookies
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.stream import FrameStream
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Stream
from simulation.machines.world import in_world
from tests.unit.bookie.build import CONFIG, KEY, add_frames, entry, opened

pytestmark = pytest.mark.seeded


class Socket:
    """A client's end."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._frames = FrameStream()
        self._answers: list[v2.Response] = []

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.send_nowait([rest]) :]
            if rest:
                await self._stream.wait_writable()

    async def take(self) -> v2.Response | None:
        """Return the next answer; None if the bookie closed the connection."""
        with trio.fail_after(60):
            while not self._answers:
                try:
                    size = await self._stream.receive_into(self._frames.space())
                except OSError:
                    return None
                if size == 0:
                    return None
                self._answers += v2.decode_responses(self._frames.received(size))
        return self._answers.pop(0)


Connect: TypeAlias = Callable[[], Awaitable[Socket]]


@asynccontextmanager
async def with_server() -> AsyncIterator[tuple[Connect, Bookie, MemoryStore]]:
    async with with_stopped_server() as (connect, bookie, store, _):
        yield connect, bookie, store


@asynccontextmanager
async def with_stopped_server() -> AsyncIterator[tuple[Connect, Bookie, MemoryStore, trio.Event]]:
    """Serve a bookie that the test may stop itself."""
    tree = MemoryTree()
    store = MemoryStore(tree)
    async with in_world(1) as world:
        async with opened(world, tree) as bookie, trio.open_nursery() as nursery:
            stop = trio.Event()
            serve = partial(serve_bookie, world, bookie, store, bind_address="0.0.0.0", stop=stop)
            address = await nursery.start(serve, name="bookie")

            async def connect() -> Socket:
                return Socket(await world.network.connect("host", address[1]))

            yield connect, bookie, store, stop
            stop.set()
            begun = trio.current_time()
        assert trio.current_time() - begun < GRACE_S + 0.2, "it stops soon, whoever is connected"
        assert await bookies.available(store) == []


async def test_adds_and_reads_go_over_the_wire() -> None:
    async with with_server() as (connect, _, _):
        socket = await connect()
        await socket.send(add_frames(7, 0, 100))
        last = -1
        while last < 99:
            answer = await socket.take()
            assert isinstance(answer, v2.AddAcks)
            assert (answer.rc, answer.first) == (Rc.OK, last + 1)
            last = answer.last
        await socket.send(v2.read_request(7, 42))
        answer = await socket.take()
        assert isinstance(answer, v2.ReadResponse)
        assert bytes(answer.entry) == entry(7, 42)


async def test_big_entries_go_over_the_wire() -> None:
    async with with_server() as (connect, _, _):
        socket = await connect()
        payload = bytes(range(256)) * 8000
        await socket.send(add_frames(7, 0, 2, payload))
        answer = await socket.take()
        assert isinstance(answer, v2.AddAcks)
        await socket.send(v2.read_request(7, 0))
        while not isinstance(answer, v2.ReadResponse):
            answer = await socket.take()
        assert bytes(answer.entry) == entry(7, 0, payload)


@pytest.mark.parametrize("version", [2, 3])
async def test_entries_of_any_size_that_come_fast_are_stored_as_they_were_sent(version: int) -> None:
    """Requests are copied out of the received chunk before it is filled again."""
    sizes = [100, 17_000, 60_000, 60_000, 60_000, 100_000, v2.LENT_MAX + 1, 60_000] * 8
    entries = [entry(7, number, bytes([number]) * size) for number, size in enumerate(sizes)]
    async with with_server() as (connect, _, _):
        socket, reading = await connect(), await connect()
        if version == 3:
            frames = v3.add_requests(1, 7, range(len(entries)), KEY, entries)
            data = b"".join(b"".join(frame) if isinstance(frame, tuple) else frame for frame in frames)
        else:
            data = b"".join(v2.add_head(len(each), KEY) + each for each in entries)
        await socket.send(data)
        for number, expected in enumerate(entries):
            rc: int = Rc.NO_ENTRY
            while rc in (Rc.NO_ENTRY, Rc.NO_LEDGER):
                await reading.send(v2.read_request(7, number))
                answer = await reading.take()
                assert isinstance(answer, v2.ReadResponse | v2.OtherResponse)
                rc = answer.rc
            assert isinstance(answer, v2.ReadResponse)
            assert bytes(answer.entry) == expected, f"entry {number}, {len(expected)} bytes"


async def test_the_bookie_is_announced_while_it_serves() -> None:
    async with with_server() as (_, _, store):
        assert await bookies.available(store) == [CONFIG.bookie_id]
        info = await bookies.service_info(store, CONFIG.bookie_id)
        assert info is not None
        assert info.bookie_endpoint is not None
        assert info.bookie_endpoint.port == CONFIG.port


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("16030102000100") + bytes(600),
        pack("!i", 0) + bytes(60),
        pack("!i", 3) + bytes(60),
        pack("!i", v2.FRAME_MAX + 1),
        pack("!i", -(1 << 31)),
        v2.read_request(7, 1)[:4] + bytes(20)[:2] + b"\xff" * 200,
    ],
    ids=["http", "tls", "0", "3", "over the limit", "negative", "random"],
)
async def test_garbage_closes_its_connection_and_no_other(garbage: bytes) -> None:
    async with with_server() as (connect, _, _):
        good, bad = await connect(), await connect()
        await bad.send(garbage)
        answer = await bad.take()
        while answer is not None:
            assert isinstance(answer, v2.OtherResponse | v2.ReadResponse)
            assert answer.rc in (Rc.BAD_VERSION, Rc.BAD_REQUEST)
            answer = await bad.take()
        await good.send(add_frames(7, 0, 1))
        assert await good.take() == v2.AddAcks(Rc.OK, 7, 0, 0)


async def test_a_client_that_goes_leaves_its_adds_done() -> None:
    async with with_server() as (connect, _, _):
        first = await connect()
        await first.send(add_frames(7, 0, 5) + v2.read_request(7, -1, v2.DO_FENCING, KEY))
        await first.take()
        first._stream.close()
        second = await connect()
        await second.send(add_frames(7, 5, 1))
        assert await second.take() == v2.AddAcks(Rc.FENCED, 7, 5, 5)


async def test_a_bookie_that_stops_waits_for_no_connection_that_asks_nothing() -> None:
    async with with_stopped_server() as (connect, _, _, stop):
        idle, used = await connect(), await connect()
        await used.send(add_frames(7, 0, 1))
        await used.take()
        begun = trio.current_time()
        stop.set()
        assert await idle.take() is None
        assert await used.take() is None
        assert trio.current_time() - begun < 0.1


async def test_a_bookie_that_stops_answers_what_it_has_received() -> None:
    async with with_stopped_server() as (connect, bookie, _, stop):
        idle, adding, reading = await connect(), await connect(), await connect()
        append = bookie.journal.append
        added = 0
        all_added = trio.Event()

        def append_and_stop(record: Record, *more: Any) -> None:
            nonlocal added
            append(record, *more)
            added += record.count if isinstance(record, Run) else 0
            if added == 50:
                all_added.set()
            if isinstance(record, Fence):
                stop.set()

        with patch.object(bookie.journal, "append", append_and_stop):
            await adding.send(add_frames(7, 0, 50))
            await all_added.wait()
            await reading.send(v2.read_request(7, -1, v2.DO_FENCING, KEY))
            await stop.wait()
            begun = trio.current_time()
            assert bookie.journal.queued_bytes, "the fence is under way, and perhaps adds are"
        assert await idle.take() is None
        last = -1
        while last < 49:
            answer = await adding.take()
            assert isinstance(answer, v2.AddAcks)
            assert (answer.rc, answer.first) == (Rc.OK, last + 1)
            last = answer.last
        answer = await reading.take()
        assert isinstance(answer, v2.ReadResponse)
        assert bytes(answer.entry) == entry(7, 49)
        assert [await adding.take(), await reading.take()] == [None, None]
        assert trio.current_time() - begun < GRACE_S / 2


async def test_a_bookie_that_stops_serves_requests_that_wait_for_room_first() -> None:
    async with with_stopped_server() as (connect, bookie, _, stop):
        socket = await connect()
        payload = bytes(1 << 20)
        await socket.send(add_frames(7, 0, 8, payload))
        last = -1
        while last < 7:
            answer = await socket.take()
            assert isinstance(answer, v2.AddAcks)
            last = answer.last
        # More than the peer may leave unread: the last ones are served only when it has received the first.
        await socket.send(b"".join(v2.read_request(7, number % 8) for number in range(16)))
        await trio.sleep(1)
        assert 0 < bookie.stats.reads < 16, "requests wait for room"
        begun = trio.current_time()
        stop.set()
        for number in range(16):
            answer = await socket.take()
            assert isinstance(answer, v2.ReadResponse), f"answer {number}"
            assert (answer.rc, len(answer.entry)) == (Rc.OK, len(entry(7, 0, payload)))
        assert await socket.take() is None
        assert trio.current_time() - begun < GRACE_S / 2


async def test_answers_that_a_peer_takes_slowly_leave_before_the_connection_is_closed() -> None:
    async with with_stopped_server() as (connect, _, _, stop):
        socket = await connect()
        payload = bytes(1 << 20)
        await socket.send(add_frames(7, 0, 1, payload))
        await socket.take()
        await socket.send(b"".join(v2.read_request(7, 0) for _ in range(3)))
        await trio.sleep(1)
        stop.set()
        await trio.sleep(GRACE_S / 2)
        for number in range(3):
            answer = await socket.take()
            assert isinstance(answer, v2.ReadResponse), f"answer {number}"
        assert await socket.take() is None


async def test_a_peer_that_does_not_take_its_answers_is_not_waited_for() -> None:
    async with with_stopped_server() as (connect, bookie, store, stop):
        socket = await connect()
        payload = bytes(1 << 20)
        await socket.send(add_frames(7, 0, 8, payload) + b"".join(v2.read_request(7, 0) for _ in range(8)))
        await trio.sleep(1)
        assert bookie.stats.reads, "there are answers that nobody takes"
        stop.set()
        await trio.sleep(0.1)
        assert await bookies.available(store) == [], "its name goes before its connections do"
