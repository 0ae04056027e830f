"""Clients that send conversations of fuzzed frames to a port, several at a time, until a server has counted enough.

A conversation is sent at once. Then the client either ends its side without a word, or waits until nothing more is
answered. A server that neither reads, answers nor ends a connection fails the run.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import trio

QUIET_S = 0.05
"""Time without answers after which a conversation counts as over."""
STUCK_S = 30.0
"""Time within which a server has to read a conversation, or end it."""
BEGIN_S = 0.2
"""Most time that the answers to the beginning of a conversation are waited for."""
ANSWER_SIZE = 25
"""Bytes that an answer has at least, on average."""
CHUNK = 1 << 16


class Transport(Protocol):
    """A connection of a fuzzing client."""

    async def send_all(self, data: bytes) -> None: ...

    async def receive_some(self, max_bytes: int) -> bytes | bytearray: ...

    async def aclose(self) -> None: ...


Connect: TypeAlias = Callable[[random.Random], Awaitable[Transport]]
Converse: TypeAlias = Callable[[random.Random], tuple[list[bytes], list[bytes]]]
"""Returns frames that are answered before the others are sent, and the others."""


@dataclass(slots=True)
class Sent:
    """Counts of what was sent."""

    frames: int = 0
    connections: int = 0
    ended: int = 0
    """Connections that the server ended while they were sent."""
    answers: int = 0
    """Bytes received."""


def plain(port: int) -> Connect:
    """Return how to connect without TLS."""

    async def connect(rng: random.Random) -> Transport:
        return await trio.open_tcp_stream("127.0.0.1", port)

    return connect


def encrypted(port: int, context: ssl.SSLContext) -> Connect:
    """Return how to connect to a port with TLS. One in eight connections breaks its records, one in twenty has none."""

    async def connect(rng: random.Random) -> Transport:
        raw = await trio.open_tcp_stream("127.0.0.1", port)
        if rng.random() < 0.05:
            return raw
        try:
            return await _Encrypted.begin(raw, context, rng if rng.random() < 0.125 else None)
        except BaseException:
            await trio.aclose_forcefully(raw)
            raise

    return connect


class _Encrypted:
    """TLS over a socket, whose records are spoiled if `rng` is given."""

    def __init__(self, raw: trio.SocketStream, context: ssl.SSLContext, rng: random.Random | None) -> None:
        self._raw = raw
        self._rng = rng
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    @classmethod
    async def begin(cls, raw: trio.SocketStream, context: ssl.SSLContext, rng: random.Random | None) -> _Encrypted:
        made = cls(raw, context, rng)
        while True:
            try:
                made._tls.do_handshake()
            except ssl.SSLWantReadError:
                await made._flush(0.05)
                data = await raw.receive_some(CHUNK)
                if not data:
                    raise trio.BrokenResourceError("the server ended the handshake") from None
                made._in.write(data)
                continue
            except ssl.SSLError as error:
                raise trio.BrokenResourceError(str(error)) from error
            await made._flush(0.05)
            return made

    async def _flush(self, spoiled: float) -> None:
        data = bytearray(self._out.read())
        if data and self._rng is not None and self._rng.random() < spoiled:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        if data:
            await self._raw.send_all(data)

    async def send_all(self, data: bytes) -> None:
        for start in range(0, len(data), 16000):
            self._tls.write(data[start : start + 16000])
            await self._flush(0.5)

    async def receive_some(self, max_bytes: int) -> bytes:
        while True:
            try:
                return self._tls.read(max_bytes)
            except ssl.SSLWantReadError:
                data = await self._raw.receive_some(max_bytes)
                if not data:
                    return b""
                self._in.write(data)
            except ssl.SSLError:
                return b""

    async def aclose(self) -> None:
        await self._raw.aclose()


async def fuzz(
    connect: Connect, converse: Converse, enough: Callable[[Sent], bool], *, seed: int, clients: int = 8
) -> Sent:
    """Send conversations until `enough` says so. Raises trio.TooSlowError if the server leaves a connection stuck."""
    sent = Sent()

    async def one(number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        while not enough(sent):
            begin, frames = converse(rng)
            sent.connections += 1
            sent.frames += len(begin) + len(frames)
            with trio.fail_after(STUCK_S):
                try:
                    await _talk(await connect(rng), begin, frames, rng, sent)
                except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError):
                    sent.ended += 1

    async with trio.open_nursery() as nursery:
        for number in range(clients):
            nursery.start_soon(one, number)
    return sent


async def _talk(stream: Transport, begin: list[bytes], frames: list[bytes], rng: random.Random, sent: Sent) -> None:
    begun = trio.Event()
    quiet = trio.CancelScope()
    answered = 0
    silently = rng.random() < 0.3

    async def listen() -> None:
        nonlocal answered
        try:
            while data := await stream.receive_some(CHUNK):
                answered += len(data)
                sent.answers += len(data)
                quiet.deadline = trio.current_time() + QUIET_S
                if answered >= len(begin) * ANSWER_SIZE:
                    begun.set()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # ended by the server
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            if begin:
                await stream.send_all(b"".join(begin))
                with trio.move_on_after(BEGIN_S):
                    await begun.wait()
            data = b"".join(frames)
            cut = rng.randrange(len(data) + 1) if rng.random() < 0.1 else len(data)
            await stream.send_all(data[:cut])
            if cut < len(data):
                await trio.sleep(0.001)
                await stream.send_all(data[cut:])
            if not silently:
                quiet.deadline = trio.current_time() + QUIET_S
                with quiet:
                    await trio.sleep_forever()
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await stream.aclose()
