"""The contract of `quire.world.doors.Network`, held by both makers. Quotes are from its docstrings."""

from __future__ import annotations

import pytest
import trio

from quire.world.doors import Listener, Stream, World
from tests.support.refusals import raises, refuses


async def pair(world: World) -> tuple[Stream, Stream, Listener]:
    listener = await world.network.listen("127.0.0.1", 0)
    near = await world.network.connect(*listener.address)
    return near, await listener.accept(), listener


async def receive(stream: Stream, size: int) -> bytes:
    """Receive exactly `size` bytes, or fewer at the end."""
    buffer = bytearray(size)
    filled = 0
    while filled < size:
        count = await stream.receive_into(memoryview(buffer)[filled:])
        if not count:
            break
        filled += count
    return bytes(buffer[:filled])


async def send(stream: Stream, data: bytes) -> None:
    sent = 0
    while sent < len(data):
        taken = stream.send_nowait([memoryview(data)[sent:]])
        sent += taken
        if not taken:
            await stream.wait_writable()


async def test_port_0_picks_a_free_one_and_a_taken_one_is_an_error(world):
    """ "Port 0 picks a free one. OSError (EADDRINUSE) if taken." "Return the actual host and port." """
    listener = await world.network.listen("127.0.0.1", 0)
    other = await world.network.listen("127.0.0.1", 0)
    assert 0 < listener.address[1] != other.address[1]
    await raises(OSError, world.network.listen("127.0.0.1", listener.address[1]), "in use")
    listener.close()
    listener.close()
    again = await world.network.listen("127.0.0.1", listener.address[1])
    again.close()
    other.close()


async def test_connecting_to_nobody_is_refused(world):
    """ "OSError if refused." """
    listener = await world.network.listen("127.0.0.1", 0)
    listener.close()
    await raises(ConnectionRefusedError, world.network.connect(*listener.address))


async def test_bytes_arrive_in_order_both_ways_and_the_end_is_0(world):
    """ "Wait for bytes, put them at the start of `buffer`, return their number; 0 at the end." """
    near, far, listener = await pair(world)
    assert near.send_nowait([b"he", b"", bytearray(b"ll"), memoryview(b"o")]) in range(6)
    data = b"".join(b"%d " % number for number in range(3000))
    received = []
    async with trio.open_nursery() as nursery:

        async def reader():
            received.append(await receive(far, 1 << 20))

        nursery.start_soon(reader, name="reader")
        await send(near, data)
        near.close()
    assert received[0].endswith(data)
    assert await far.receive_into(memoryview(bytearray(9))) == 0
    far.close()
    listener.close()


async def test_the_peer_has_a_name(world):
    near, far, listener = await pair(world)
    assert near.peer == f"{listener.address[0]}:{listener.address[1]}"
    host, _, port = far.peer.rpartition(":")
    assert host == listener.address[0]
    assert int(port) > 0
    for each in (near, far, listener):
        each.close()


@pytest.mark.parametrize("size", [100, 5000, 300_000])
async def test_a_full_window_takes_nothing_more_until_the_reader_reads(world, size):
    """ "Return the bytes sent (0: none now). Any number of parts." "Wait until `send_nowait` may send something." """
    near, far, listener = await pair(world)
    count = 40_000_000 // size if size > 100 else 20_000
    parts = [bytes([index % 251]) * size for index in range(count)]
    expected = b"".join(parts)
    sent = 0
    while taken := near.send_nowait([memoryview(expected)[sent:]] if sent else parts):
        sent += taken
        if sent == len(expected):
            break
    received = bytearray()

    async def reader():
        while len(received) < len(expected):
            buffer = bytearray(1 << 20)
            received.extend(memoryview(buffer)[: await far.receive_into(memoryview(buffer))])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader, name="reader")
        while sent < len(expected):
            await near.wait_writable()
            sent += near.send_nowait([memoryview(expected)[sent:]])
    assert received == expected
    for each in (near, far, listener):
        each.close()


async def test_close_ends_a_waiting_receive(world):
    """ "Close at once; no effect the second time. A waiting `receive_into` returns 0 or raises OSError." """
    near, far, listener = await pair(world)
    ended = []

    async def reader():
        try:
            ended.append(await near.receive_into(memoryview(bytearray(9))))
        except OSError:
            ended.append(0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader, name="reader")
        await trio.testing.wait_all_tasks_blocked()
        near.close()
        near.close()
    assert ended == [0]
    refuses(OSError, lambda: near.send_nowait([b"x"]), r"closed|Bad file|reading only")
    await raises(OSError, near.wait_writable(), "closed")
    far.close()
    listener.close()


async def test_closing_a_listener_ends_a_waiting_accept(world):
    listener = await world.network.listen("127.0.0.1", 0)

    async def accept():
        await raises(OSError, listener.accept(), "closed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, name="accept")
        await trio.testing.wait_all_tasks_blocked()
        listener.close()


async def test_writing_to_a_peer_that_is_gone_becomes_an_error(world):
    """ "OSError if broken." """
    near, far, listener = await pair(world)
    far.close()

    async def write_on():
        while True:
            near.send_nowait([bytes(4096)])
            await near.wait_writable()

    with trio.fail_after(10), pytest.raises((BrokenPipeError, ConnectionResetError)):
        await write_on()
    near.close()
    listener.close()


async def test_a_cancelled_receive_loses_no_bytes(world):
    near, far, listener = await pair(world)
    with trio.CancelScope() as scope:
        scope.cancel()
        await far.receive_into(memoryview(bytearray(9)))
    await send(near, b"abc")
    with trio.move_on_after(0):
        got = await receive(far, 3)
        assert got == b"abc"
    with trio.CancelScope() as scope:
        scope.cancel()
        await far.receive_into(memoryview(bytearray(9)))
    await send(near, b"def")
    assert (await receive(far, 3)) in (b"abc", b"def")
    for each in (near, far, listener):
        each.close()


async def test_a_receive_that_always_succeeds_at_once_lets_others_run(world):
    near, far, listener = await pair(world)
    await send(near, bytes(2000))
    await receive(far, 1)
    steps = []

    async def other():
        for _ in range(20):
            steps.append(1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other, name="other")
        for _ in range(200):
            await receive(far, 1)
        assert len(steps) == 20
    for each in (near, far, listener):
        each.close()


async def test_a_connection_without_tls_has_no_certificate_of_its_peer(world):
    """ "None without TLS, from a peer that gave none, or if it was not verified." """
    near, far, listener = await pair(world)
    assert near.peer_certificate is None
    assert far.peer_certificate is None
    for each in (near, far, listener):
        each.close()
