from __future__ import annotations

import errno
import random

import pytest
import trio
import trio.testing

from quire.world.outbox import Outbox


class Peer:
    """A stream whose window the test opens."""

    peer = "test"
    peer_certificate: bytes | None = None

    def __init__(self, window: int = 0) -> None:
        self.window = window
        self.received = b""
        self.calls = 0
        self.error: OSError | None = None
        self.writable = trio.Event()

    def send_nowait(self, parts) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        data = b"".join(parts)[: self.window]
        self.window -= len(data)
        self.received += data
        return len(data)

    async def wait_writable(self) -> None:
        while not self.window and self.error is None:
            await self.writable.wait()
        if self.error is not None:
            raise self.error
        await trio.lowlevel.checkpoint()

    async def receive_into(self, buffer, at_least: int = 1) -> int:
        raise AssertionError("an outbox does not receive")

    def close(self) -> None:
        raise AssertionError("an outbox does not close what it was given")

    def open(self, size: int) -> None:
        self.window += size
        self.wake()

    def fail(self, error: OSError) -> None:
        self.error = error
        self.wake()

    def wake(self) -> None:
        self.writable.set()
        self.writable = trio.Event()


def test_everything_written_in_a_pass_leaves_in_one_call():
    peer = Peer(100)
    outbox = Outbox(peer)
    outbox.flush()
    outbox.write([b"ab", b"cd"])
    outbox.write([memoryview(b"ef")], 2)
    assert (peer.calls, outbox.pending_bytes) == (0, 6)
    outbox.flush()
    outbox.flush()
    assert (peer.calls, peer.received, outbox.pending_bytes) == (1, b"abcdef", 0)


@pytest.mark.parametrize("window", range(1, 13))
async def test_what_is_not_taken_follows_whole_and_in_order(window):
    peer = Peer(window)
    outbox = Outbox(peer)
    outbox.write([b"ab", b"", b"cde", bytearray(b"f"), b""])
    outbox.flush()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, name="run")
        outbox.write([b"ghi"])
        outbox.flush()
        while outbox.pending_bytes:
            await trio.testing.wait_all_tasks_blocked()
            peer.open(window)
        outbox.write([b"jkl"])
        peer.open(100)
        outbox.flush()
        await outbox.wait_below(0)
        assert peer.received == b"abcdefghijkl"
        nursery.cancel_scope.cancel()


async def test_while_the_peer_is_slow_flush_does_not_try():
    peer = Peer(1)
    outbox = Outbox(peer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, name="run")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10):
            outbox.write([b"abc"])
            outbox.flush()
        assert peer.calls == 1
        nursery.cancel_scope.cancel()


async def test_wait_below_holds_a_writer_up_until_enough_has_left():
    peer = Peer()
    outbox = Outbox(peer)
    outbox.write([b"x" * 100])
    outbox.flush()
    passed = []

    async def writer():
        await outbox.wait_below(50)
        passed.append(outbox.pending_bytes)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, name="run")
        nursery.start_soon(writer, name="writer")
        for opened, expected in ((49, []), (1, [50])):
            peer.open(opened)
            await trio.testing.wait_all_tasks_blocked()
            assert passed == expected
        await outbox.wait_below(50)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("when", ["flush", "run"])
async def test_a_broken_connection_is_reported_once_and_lets_nobody_wait(when):
    reports: list[OSError] = []
    peer = Peer()
    outbox = Outbox(peer, on_broken=reports.append)
    outbox.write([b"x" * 100])
    if when == "run":
        outbox.flush()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, name="run")
        nursery.start_soon(outbox.wait_below, 0, name="waiter")
        await trio.testing.wait_all_tasks_blocked()
        peer.fail(OSError(errno.EPIPE, "gone"))
        if when == "flush":
            outbox.flush()
    outbox.write([b"more"])
    outbox.flush()
    outbox.fail(OSError(errno.EIO, "late"))
    assert [error.errno for error in reports] == [errno.EPIPE]
    assert outbox.broken is reports[0]
    assert (outbox.pending_bytes, peer.received) == (0, b"")


def test_more_than_bytes_max_breaks_the_connection():
    peer = Peer(5)
    outbox = Outbox(peer, bytes_max=10)
    outbox.write([b"x" * 15])
    outbox.flush()
    assert (outbox.broken, outbox.pending_bytes) == (None, 10)
    outbox.write([b"x"])
    outbox.flush()
    assert outbox.broken is not None
    assert outbox.broken.errno == errno.ENOBUFS


@pytest.mark.seeded(3)
async def test_over_a_lossy_window_every_byte_arrives_once(world):
    listener = await world.network.listen("", 0)
    near = await world.network.connect(*listener.address)
    far = await listener.accept()
    rng = random.Random(5)
    outbox = Outbox(near)
    received = bytearray()
    sent = b""
    async with trio.open_nursery() as nursery:

        async def reader():
            buffer = bytearray(3000)
            while count := await far.receive_into(memoryview(buffer)):
                received.extend(buffer[:count])
                await trio.sleep(0.0005)
            nursery.cancel_scope.cancel()

        nursery.start_soon(reader, name="reader")
        nursery.start_soon(outbox.run, name="run")
        for number in range(400):
            parts = [bytes([number % 256]) * rng.randint(0, 900) for _ in range(rng.randint(0, 9))]
            sent += b"".join(parts)
            outbox.write(parts)
            outbox.flush()
            await outbox.wait_below(100_000)
        await outbox.wait_below(0)
        near.close()
    assert received == sent
