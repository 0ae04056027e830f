"""A bookie on a port of the simulated network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from struct import pack
from typing import Any
from unittest.mock import patch

import pytest
import trio

from bookie.adds import Add, Adds
from bookie.bookie import Bookie
from bookie.db_ledger_storage.entry_reader import EntryReader
from bookie.journal.format import Fence, Record
from bookie.server import GRACE_S, serve_bookie
from bookie.sessions.session import REQUESTS_PER_PASS
from quire.metadata import bookies
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.stream import FrameStream
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Stream, World
from tests.unit.bookie.build import CONFIG, KEY, add_frame, add_frames, entry, opened


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

    async def acked(self, last: int) -> None:
        """Check that adds are confirmed in order up to this entry."""
        before = -1
        while before < last:
            answer = await self.take()
            assert isinstance(answer, v2.AddAcks)
            assert (answer.rc, answer.first) == (Rc.OK, before + 1)
            before = answer.last

    async def entry(self) -> bytes:
        """Return the entry in the next answer, which belongs to a read."""
        answer = await self.take()
        assert isinstance(answer, v2.ReadResponse)
        return bytes(answer.entry)


@dataclass
class Server:
    bookie: Bookie
    store: MemoryStore
    stop: trio.Event
    connect: Callable[[], Awaitable[Socket]]


@pytest.fixture
async def server(world: World, tree: MemoryTree) -> AsyncIterator[Server]:
    """Serve a bookie that the test may stop itself."""
    store = MemoryStore(tree)
    async with opened(world, tree) as bookie, trio.open_nursery() as nursery:
        stop = trio.Event()
        serve = partial(serve_bookie, world, bookie, store, bind_address="0.0.0.0", stop=stop)
        address = await nursery.start(serve, name="bookie")

        async def connect() -> Socket:
            return Socket(await world.network.connect("host", address[1]))

        yield Server(bookie, store, stop, connect)
        stop.set()
        begun = trio.current_time()
    assert trio.current_time() - begun < GRACE_S + 0.2, "it stops soon, whoever is connected"
    assert await bookies.available(store) == []


async def test_adds_and_reads_go_over_the_wire(server: Server) -> None:
    socket = await server.connect()
    await socket.send(add_frames(7, 0, 100))
    await socket.acked(99)
    await socket.send(v2.read_request(7, 42))
    assert await socket.entry() == entry(7, 42)


class ServedInPass(trio.abc.Instrument):
    """Most requests that were served in one pass of the loop."""

    def __init__(self) -> None:
        self.served = self.most = self.all = 0

    def count(self) -> None:
        self.served += 1
        self.all += 1
        self.most = max(self.most, self.served)

    def before_io_wait(self, timeout: float) -> None:
        self.served = 0


async def test_thousands_of_small_requests_in_one_chunk_are_served_in_several_passes(server: Server, monkeypatch):
    counted = ServedInPass()
    add, read = Adds.add, EntryReader.get_cached

    def counted_add(self: Adds, added: Add) -> None:
        counted.count()
        add(self, added)

    def counted_read(self: EntryReader, ledger_id: int, entry_id: int) -> memoryview | None:
        counted.count()
        return read(self, ledger_id, entry_id)

    monkeypatch.setattr(Adds, "add", counted_add)
    monkeypatch.setattr(EntryReader, "get_cached", counted_read)
    trio.lowlevel.add_instrument(counted)
    socket = await server.connect()
    count = 3 * REQUESTS_PER_PASS
    await socket.send(b"".join([add_frame(ledger_id, n) for n in range(count // 2) for ledger_id in (7, 8)]))
    for n in range(count // 2):
        for ledger_id in (7, 8):
            assert await socket.take() == v2.AddAcks(Rc.OK, ledger_id, n, n)
    assert (counted.all, counted.most) == (count, REQUESTS_PER_PASS)
    await socket.send(b"".join([v2.read_request(7, n % 100) for n in range(count)]))
    for n in range(count):
        assert await socket.entry() == entry(7, n % 100)
    assert (counted.all, counted.most) == (2 * count, REQUESTS_PER_PASS)
    trio.lowlevel.remove_instrument(counted)


async def test_big_entries_go_over_the_wire(server: Server) -> None:
    socket = await server.connect()
    payload = bytes(range(256)) * 8000
    await socket.send(add_frames(7, 0, 2, payload))
    await socket.acked(1)
    await socket.send(v2.read_request(7, 0))
    assert await socket.entry() == entry(7, 0, payload)


@pytest.mark.parametrize("version", [2, 3])
async def test_entries_of_any_size_that_come_fast_are_stored_as_they_were_sent(version: int, server: Server) -> None:
    """Requests are copied out of the received chunk before it is filled again."""
    sizes = [100, 17_000, 60_000, 60_000, 60_000, 100_000, v2.LENT_MAX + 1, 60_000] * 8
    entries = [entry(7, number, bytes([number]) * size) for number, size in enumerate(sizes)]
    socket, reading = await server.connect(), await server.connect()
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


async def test_the_bookie_is_announced_while_it_serves(server: Server) -> None:
    assert await bookies.available(server.store) == [CONFIG.bookie_id]
    info = await bookies.service_info(server.store, CONFIG.bookie_id)
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
async def test_garbage_closes_its_connection_and_no_other(garbage: bytes, server: Server) -> None:
    good, bad = await server.connect(), await server.connect()
    await bad.send(garbage)
    answer = await bad.take()
    while answer is not None:
        assert isinstance(answer, v2.OtherResponse | v2.ReadResponse)
        assert answer.rc in (Rc.BAD_VERSION, Rc.BAD_REQUEST)
        answer = await bad.take()
    await good.send(add_frames(7, 0, 1))
    assert await good.take() == v2.AddAcks(Rc.OK, 7, 0, 0)


async def test_a_client_that_goes_leaves_its_adds_done(server: Server) -> None:
    first = await server.connect()
    await first.send(add_frames(7, 0, 5) + v2.read_request(7, -1, v2.DO_FENCING, KEY))
    await first.take()
    first._stream.close()
    second = await server.connect()
    await second.send(add_frames(7, 5, 1))
    assert await second.take() == v2.AddAcks(Rc.FENCED, 7, 5, 5)


async def test_a_bookie_that_stops_waits_for_no_connection_that_asks_nothing(server: Server) -> None:
    idle, used = await server.connect(), await server.connect()
    await used.send(add_frames(7, 0, 1))
    await used.take()
    begun = trio.current_time()
    server.stop.set()
    assert await idle.take() is None
    assert await used.take() is None
    assert trio.current_time() - begun < 0.1


async def test_a_bookie_that_stops_answers_what_it_has_received(server: Server) -> None:
    idle, adding, reading = await server.connect(), await server.connect(), await server.connect()
    append = server.bookie.journal.of(0).append
    added = 0
    all_added = trio.Event()

    def append_and_stop(record: Record, *more: Any) -> None:
        nonlocal added
        append(record, *more)
        added += record.count if isinstance(record, Run) else 0
        if added == 50:
            all_added.set()
        if isinstance(record, Fence):
            server.stop.set()

    with patch.object(server.bookie.journal, "append", append_and_stop):
        await adding.send(add_frames(7, 0, 50))
        await all_added.wait()
        await reading.send(v2.read_request(7, -1, v2.DO_FENCING, KEY))
        await server.stop.wait()
        begun = trio.current_time()
        assert server.bookie.journal.queued_bytes, "the fence is under way, and perhaps adds are"
    assert await idle.take() is None
    await adding.acked(49)
    assert await reading.entry() == entry(7, 49)
    assert [await adding.take(), await reading.take()] == [None, None]
    assert trio.current_time() - begun < GRACE_S / 2


async def test_a_bookie_that_stops_serves_requests_that_wait_for_room_first(server: Server) -> None:
    socket = await server.connect()
    payload = bytes(1 << 20)
    await socket.send(add_frames(7, 0, 8, payload))
    await socket.acked(7)
    # More than the peer may leave unread: the last ones are served only when it has received the first.
    await socket.send(b"".join(v2.read_request(7, number % 8) for number in range(16)))
    await trio.sleep(1)
    assert 0 < server.bookie.stats.reads < 16, "requests wait for room"
    begun = trio.current_time()
    server.stop.set()
    for number in range(16):
        assert len(await socket.entry()) == len(entry(7, 0, payload)), f"answer {number}"
    assert await socket.take() is None
    assert trio.current_time() - begun < GRACE_S / 2


async def test_answers_that_a_peer_takes_slowly_leave_before_the_connection_is_closed(server: Server) -> None:
    socket = await server.connect()
    payload = bytes(1 << 20)
    await socket.send(add_frames(7, 0, 1, payload))
    await socket.take()
    await socket.send(b"".join(v2.read_request(7, 0) for _ in range(3)))
    await trio.sleep(1)
    server.stop.set()
    await trio.sleep(GRACE_S / 2)
    for number in range(3):
        assert await socket.entry() == entry(7, 0, payload), f"answer {number}"
    assert await socket.take() is None


async def test_a_peer_that_does_not_take_its_answers_is_not_waited_for(server: Server) -> None:
    socket = await server.connect()
    payload = bytes(1 << 20)
    await socket.send(add_frames(7, 0, 8, payload) + b"".join(v2.read_request(7, 0) for _ in range(8)))
    await trio.sleep(1)
    assert server.bookie.stats.reads, "there are answers that nobody takes"
    server.stop.set()
    await trio.sleep(0.1)
    assert await bookies.available(server.store) == [], "its name goes before its connections do"
