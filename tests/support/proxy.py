"""A TCP proxy on the loopback that can hold data, drop it, and cut: the ways in which an answer is lost.

If frames begin with their length, as ZooKeeper's do, it can also change, hold back and drop single ones."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import trio

CHUNK_BYTES = 65536

Tamper = Callable[[bytes], Iterable[bytes]]
"""Replacement of a frame; frames without their length of 4 bytes."""


def untouched(frame: bytes) -> Iterable[bytes]:
    return (frame,)


class Frames:
    """Cuts received data into frames, and joins the tampered ones."""

    def __init__(self) -> None:
        self._held = b""

    def pass_on(self, data: bytes, tamper: Tamper) -> bytes:
        held, at, out = self._held + data, 0, bytearray()
        while len(held) >= at + 4 and len(held) >= (end := at + 4 + int.from_bytes(held[at : at + 4])):
            for frame in tamper(held[at + 4 : end]):
                out += struct.pack(">I", len(frame)) + frame
            at = end
        self._held = held[at:]
        return bytes(out)


class Proxy:
    """A proxy between clients and `port` on 127.0.0.1. `proxy` creates it."""

    def __init__(self, target_port: int, nursery: trio.Nursery, *, framed: bool = False) -> None:
        self.port = 0
        self.tamper_requests: Tamper = untouched
        self.tamper_answers: Tamper = untouched
        """Changes of frames; both need a framed proxy."""
        self.answers_flow = True
        """False to drop the data from the server."""
        self._framed = framed
        self.target_port = target_port
        """Port to which new connections go."""
        self._nursery = nursery
        self._streams: set[trio.SocketStream] = set()
        self._refusing = False

    async def serve(self) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        self._nursery.start_soon(trio.serve_listeners, self._serve, listeners)

    def cut(self, *, refuse: bool = False) -> None:
        """Close every connection; new ones are accepted, and cut at once if `refuse`."""
        self.refuse(refuse)
        for stream in self._streams:
            stream.socket.close()
        self._streams.clear()

    def refuse(self, refusing: bool = True) -> None:
        """Cut new connections at once, or no longer; existing ones stay."""
        self._refusing = refusing

    async def _serve(self, client: trio.SocketStream) -> None:
        if self._refusing:
            await trio.aclose_forcefully(client)
            return
        server = await trio.open_tcp_stream("127.0.0.1", self.target_port)
        both = {client, server}
        self._streams |= both
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, client, server, False, nursery.cancel_scope)
                nursery.start_soon(self._pump, server, client, True, nursery.cancel_scope)
        finally:
            self._streams -= both
            for stream in both:
                stream.socket.close()

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, is_answer: bool, scope: trio.CancelScope
    ) -> None:
        frames = Frames() if self._framed else None
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                if frames is not None:
                    data = frames.pass_on(data, self.tamper_answers if is_answer else self.tamper_requests)
                if not is_answer or self.answers_flow:
                    await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def proxy(target_port: int, *, framed: bool = False) -> AsyncIterator[Proxy]:
    async with trio.open_nursery() as nursery:
        opened = Proxy(target_port, nursery, framed=framed)
        await opened.serve()
        yield opened
        nursery.cancel_scope.cancel()
