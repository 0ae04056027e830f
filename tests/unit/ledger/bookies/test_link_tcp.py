from __future__ import annotations

from typing import Any

import pytest
import trio

from quire.ledger.bookies.link_tcp import TcpLink, address_of
from quire.ledger.errors import BookieProtocolError, BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import Listener, Stream, World
from quire.world.outbox import Outbox


class Passes:
    """A turn whose beginning and end the test observes."""

    def __init__(self) -> None:
        self.working = False
        self.marked: list[Outbox] = []
        self.flushes = 0

    def mark(self, outbox: Outbox) -> None:
        self.marked.append(outbox)

    def flush(self) -> None:
        self.working = False
        self.flushes += 1
        marked, self.marked = self.marked, []
        for outbox in marked:
            outbox.flush()


class Peer:
    """Yield a link, its received data, and the other end of its connection."""

    def __init__(self, world: World, nursery: trio.Nursery, listener: Listener, **options: Any) -> None:
        host, port = listener.address
        self.responses: list[v2.Response] = []
        self.errors: list[BookieUnavailableError] = []
        self.news = trio.Event()
        self.listener = listener
        self.link = TcpLink(world.network, nursery, f"{host}:{port}", **options)
        self.link.set_receiver(self._received)
        self.link.closed = self._closed

    def _received(self, chunk: Buffer) -> None:
        self.responses += v2.decode_responses(chunk)
        self.news.set()

    def _closed(self, error: BookieUnavailableError) -> None:
        self.errors.append(error)
        self.news.set()

    async def hear(self) -> None:
        with trio.fail_after(60):
            await self.news.wait()
        self.news = trio.Event()


async def peer_of(world: World, nursery: trio.Nursery, **options: Any) -> Peer:
    return Peer(world, nursery, await world.network.listen("127.0.0.1", 0), **options)


@pytest.fixture
async def peer(world: World, nursery: trio.Nursery) -> Peer:
    return await peer_of(world, nursery)


async def received(stream: Stream, size: int) -> bytes:
    """Receive exactly `size` bytes."""
    buffer = bytearray(size)
    at = 0
    with trio.fail_after(60):
        while at < size:
            count = await stream.receive_into(memoryview(buffer)[at:])
            assert count
            at += count
    return bytes(buffer)


async def send(stream: Stream, data: bytes) -> None:
    while data:
        data = data[stream.send_nowait([data]) :]
        await stream.wait_writable()


async def test_what_was_sent_before_the_connection_stood_arrives_first_and_in_order(peer: Peer) -> None:
    peer.link.send([b"one", (b"two-head", b"two-payload")])
    stream = await peer.listener.accept()
    assert await received(stream, 22) == b"onetwo-headtwo-payload"
    peer.link.send([b"three"])
    peer.link.send([b"four"])
    assert await received(stream, 9) == b"threefour"


async def test_frames_of_a_pass_leave_when_the_turn_ends_it(world: World, nursery: trio.Nursery) -> None:
    passes = Passes()
    peer = await peer_of(world, nursery, turn=passes)
    peer.link.send([b"early"])
    stream = await peer.listener.accept()
    assert await received(stream, 5) == b"early"
    peer.link.send([b"one"])
    peer.link.send([b"two"])
    nothing = bytearray(6)
    with trio.move_on_after(10):
        await stream.receive_into(memoryview(nothing))
    assert bytes(nothing) == bytes(6)
    passes.flush()
    assert await received(stream, 6) == b"onetwo"


async def test_what_answers_cause_leaves_in_their_own_pass(world: World, nursery: trio.Nursery) -> None:
    passes = Passes()
    seen: list[tuple[bool, int]] = []
    peer = await peer_of(world, nursery, turn=passes)

    def answer(chunk: Buffer) -> None:
        seen.append((passes.working, passes.flushes))
        peer.link.send([b"next"])

    peer.link.set_receiver(answer)
    stream = await peer.listener.accept()
    await send(stream, v2.add_responses(Rc.OK, 7, range(3)))
    assert await received(stream, 4) == b"next"
    assert seen == [(True, before) for before in range(passes.flushes)]
    assert not passes.working


async def test_answers_are_cut_from_the_stream_wherever_it_is_torn(peer: Peer) -> None:
    stream = await peer.listener.accept()
    data = v2.add_responses(Rc.OK, 7, range(3)) + v2.response_head(v2.Opcode.READ, Rc.OK, 7, 3, 300_000)
    data += bytes(300_000)
    for start in range(0, len(data), 7001):
        await send(stream, data[start : start + 7001])
    while not peer.responses or not isinstance(peer.responses[-1], v2.ReadResponse):
        await peer.hear()
    assert peer.responses[0] == v2.AddAcks(Rc.OK, 7, 0, 2)
    assert len(peer.responses[-1].entry) == 300_000


async def test_the_end_of_the_connection_is_told_once(peer: Peer) -> None:
    stream = await peer.listener.accept()
    stream.close()
    await peer.hear()
    await trio.sleep(10)
    assert len(peer.errors) == 1
    peer.link.send([b"dropped"])
    peer.link.close()
    assert len(peer.errors) == 1


async def test_bytes_that_are_no_frame_break_the_link(peer: Peer) -> None:
    stream = await peer.listener.accept()
    await send(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await peer.hear()
    assert [type(each) for each in peer.errors] == [BookieProtocolError]


async def test_a_link_that_we_close_says_nothing_and_closes_the_connection(peer: Peer) -> None:
    stream = await peer.listener.accept()
    peer.link.send([b"x"])
    assert await received(stream, 1) == b"x"
    peer.link.close()
    with trio.fail_after(60):
        assert await stream.receive_into(memoryview(bytearray(10))) == 0
    assert peer.errors == []


async def test_a_bookie_that_takes_nothing_meets_a_bound(world: World, nursery: trio.Nursery) -> None:
    peer = await peer_of(world, nursery, bytes_max=8 << 20)
    stream = await peer.listener.accept()
    for _ in range(100):
        peer.link.send([bytes(1 << 20)])
        await trio.sleep(0.01)
        if peer.errors:
            break
    assert "too slow" in str(peer.errors[0])
    stream.close()


@pytest.mark.seeded(3)
async def test_a_connection_that_never_stands_meets_a_bound_and_a_deadline(world: World) -> None:
    async def nowhere(bookie_id: str) -> tuple[str, int]:
        await trio.sleep_forever()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        errors: list[BookieUnavailableError] = []
        link = TcpLink(world.network, nursery, "a:1", resolve=nowhere, bytes_max=100)
        link.closed = errors.append
        link.send([bytes(60)])
        assert errors == []
        link.send([bytes(60)])
        assert len(errors) == 1
        link = TcpLink(world.network, nursery, "a:1", resolve=nowhere, connect_timeout_s=5)
        link.closed = errors.append
        await trio.sleep(4.9)
        assert len(errors) == 1
        await trio.sleep(0.2)
        assert len(errors) == 2


@pytest.mark.seeded(3)
async def test_a_refused_connection_and_a_name_that_is_no_address_break_the_link(world: World) -> None:
    async with trio.open_nursery() as nursery:
        errors: list[BookieUnavailableError] = []
        for bookie_id in ("127.0.0.1:9", "no address"):
            link = TcpLink(world.network, nursery, bookie_id)
            link.closed = errors.append
        await trio.sleep(60)
        assert len(errors) == 2


@pytest.mark.real_clock
async def test_a_bookie_id_is_host_and_port() -> None:
    assert await address_of("10.0.0.1:3181") == ("10.0.0.1", 3181)
    for wrong in ("host", "host:", "host:x", ""):
        with pytest.raises(OSError, match="host:port"):
            await address_of(wrong)
