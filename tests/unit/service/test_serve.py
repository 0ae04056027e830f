"""quire.service.serve"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from quire.service.log import captured
from quire.service.serve import ACCEPT_PAUSE_S, ACCEPT_QUIET_S, ConnectionCounts, serve_connections
from quire.world.doors import Buffer, Stream


class IdleStream:
    """A stream that receives nothing until it is closed, and records the sent data."""

    peer_certificate: bytes | None = None

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.sent = b""
        self.closed = trio.Event()

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        await self.closed.wait()
        return 0

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        self.sent += b"".join(bytes(part) for part in parts)
        return len(self.sent)

    async def wait_writable(self) -> None: ...

    def close(self) -> None:
        self.closed.set()


class FakeListener:
    """A listener that gives the streams put into it, or raises the errors put into it."""

    address = ("127.0.0.1", 1)
    capacity = 0

    def __init__(self) -> None:
        self.put, self._taken = trio.open_memory_channel[IdleStream | OSError](100)
        self.closed = False

    async def accept(self) -> Stream:
        given = await self._taken.receive()
        if isinstance(given, OSError):
            raise given
        return given

    def close(self) -> None:
        self.closed = True


class Served:
    """A server under test, in a nursery."""

    def __init__(self, nursery: trio.Nursery, handle: Callable[[Stream], Awaitable[None]], **more: Any) -> None:
        self.listener = FakeListener()
        self.stop = trio.Event()
        self.ended = trio.Event()
        self.counts = ConnectionCounts()
        nursery.start_soon(partial(self._serve, handle, **more))

    async def _serve(self, handle: Callable[[Stream], Awaitable[None]], **more: Any) -> None:
        await serve_connections(
            self.listener,
            handle,
            stop=self.stop,
            counts=self.counts,
            **more,
        )
        self.ended.set()

    async def connect(self, name: str = "peer") -> IdleStream:
        stream = IdleStream(name)
        await self.listener.put.send(stream)
        await trio.testing.wait_all_tasks_blocked()
        return stream


async def until_closed(stream: Stream) -> None:
    await stream.receive_into(memoryview(bytearray(1)))


async def test_each_connection_is_served_and_its_stream_closed_at_the_end(nursery: trio.Nursery) -> None:
    seen: list[str] = []

    async def handle(stream: Stream) -> None:
        seen.append(stream.peer)

    server = Served(nursery, handle)
    one, two = await server.connect("one"), await server.connect("two")
    assert seen == ["one", "two"]
    assert one.closed.is_set()
    assert two.closed.is_set()
    assert (server.counts.opened, server.counts.closed, server.counts.active) == (2, 2, 0)


@pytest.mark.expect_error("connection failed")
async def test_a_connection_that_fails_by_our_mistake_ends_alone_and_is_told(nursery: trio.Nursery) -> None:
    async def handle(stream: Stream) -> None:
        raise ZeroDivisionError

    server = Served(nursery, handle)
    stream = await server.connect()
    assert stream.closed.is_set()
    assert server.counts.failed == 1
    await server.connect()
    assert server.counts.closed == 2


async def test_a_peer_that_breaks_the_connection_is_no_error(nursery: trio.Nursery) -> None:
    async def handle(stream: Stream) -> None:
        raise ConnectionResetError

    server = Served(nursery, handle)
    await server.connect()
    assert (server.counts.failed, server.counts.closed) == (0, 1)


async def test_a_connection_above_the_limit_gets_a_last_word_and_is_closed(nursery: trio.Nursery) -> None:
    server = Served(nursery, until_closed, connections_max=1, refuse=lambda stream: stream.send_nowait([b"too many"]))
    first, second = await server.connect(), await server.connect()
    assert not first.closed.is_set()
    assert (second.closed.is_set(), second.sent) == (True, b"too many")
    first.close()
    await trio.testing.wait_all_tasks_blocked()
    third = await server.connect()
    assert not third.closed.is_set()
    assert server.counts.refused == 1


async def test_stopping_accepts_nothing_new_and_tells_the_connections(nursery: trio.Nursery) -> None:
    streams: list[IdleStream] = []
    server = Served(nursery, until_closed, grace_s=10, on_drain=lambda: streams[0].close())
    streams.append(await server.connect())
    server.stop.set()
    await server.ended.wait()
    assert trio.current_time() == 0
    assert server.listener.closed


async def test_a_connection_that_does_not_end_is_cut_after_the_grace(nursery: trio.Nursery) -> None:
    server = Served(nursery, until_closed, grace_s=10)
    stream = await server.connect()
    server.stop.set()
    await server.ended.wait()
    assert trio.current_time() == 10
    assert stream.closed.is_set()


async def test_a_machine_out_of_descriptors_is_given_a_pause_with_one_line_for_all_of_it_and_one_when_it_is_over(
    nursery: trio.Nursery,
) -> None:
    with captured() as lines:
        server = Served(nursery, until_closed)
        for _ in range(50):
            await server.listener.put.send(OSError(errno.EMFILE, "too many open files"))
        await server.listener.put.send(IdleStream("later"))
        await trio.sleep(ACCEPT_PAUSE_S * 49.9)
        assert server.counts.opened == 0
        await trio.sleep(ACCEPT_PAUSE_S * 0.2)
        assert server.counts.opened == 1
        await server.listener.put.send(OSError(errno.EMFILE, "one more has gone, one more has come"))
        await trio.sleep(ACCEPT_QUIET_S)
        assert len(lines) == 1, "at the brim it is not over with each that ends"
        await trio.sleep(ACCEPT_PAUSE_S * 1.1)
        await server.connect()
        assert server.counts.opened == 2
    assert [line["event"] for line in lines] == [
        "accepting no connections until descriptors are free",
        "accepting connections again",
    ]


async def test_connections_are_bounded_by_the_descriptors_there_are_and_refusals_are_one_line(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeListener, "capacity", 20)
    with captured() as lines:
        server = Served(nursery, until_closed, connections_max=10_000)
        streams = [await server.connect(str(number)) for number in range(50)]
        assert (server.counts.active, server.counts.refused) == (20, 30)
        streams[0].close()
        await trio.testing.wait_all_tasks_blocked()
        await server.connect()
    assert [(line["event"], line.get("limit"), line.get("refused")) for line in lines] == [
        ("fewer connections than configured", None, None),
        ("connections refused, limit reached", 20, None),
        ("connections below the limit again", None, 30),
    ]


async def test_without_a_configured_limit_the_descriptors_bound_connections_too(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeListener, "capacity", 2)
    server = Served(nursery, until_closed)
    for number in range(3):
        await server.connect(str(number))
    assert (server.counts.active, server.counts.refused) == (2, 1)


async def test_a_listener_that_broke_ends_the_server_at_once(nursery: trio.Nursery) -> None:
    listener = FakeListener()
    await listener.put.send(OSError(errno.EBADF, "closed"))
    with pytest.raises(ExceptionGroup):
        await serve_connections(listener, until_closed, stop=trio.Event())


@pytest.mark.real_clock
async def test_a_listener_that_broke_ends_the_server() -> None:
    listener = FakeListener()
    await listener.put.send(OSError(errno.EINVAL, "broken"))
    with pytest.raises(ExceptionGroup) as caught:
        await serve_connections(listener, until_closed, stop=trio.Event())
    assert caught.group_contains(OSError, match="broken")


async def test_a_cancelled_server_closes_its_listener_and_streams(nursery: trio.Nursery) -> None:
    async with trio.open_nursery() as inner:
        server = Served(inner, until_closed)
        stream = await server.connect()
        inner.cancel_scope.cancel()
    assert server.listener.closed
    assert stream.closed.is_set()
