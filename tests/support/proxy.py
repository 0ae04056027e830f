"""A TCP proxy on the loopback that can stop forwarding, forget what came, and cut: the ways in which an answer is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

CHUNK_BYTES = 65536


class Proxy:
    """Between clients and `port` on 127.0.0.1. Made by `proxy`."""

    def __init__(self, target_port: int, nursery: trio.Nursery) -> None:
        self.port = 0
        self.answers_flow = True
        """False: what the server says is swallowed."""
        self._target_port = target_port
        self._nursery = nursery
        self._streams: set[trio.SocketStream] = set()
        self._refusing = False

    async def serve(self) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        self._nursery.start_soon(trio.serve_listeners, self._serve, listeners)

    def cut(self, *, refuse: bool = False) -> None:
        """Close every connection; new ones are taken, and cut at once if `refuse`."""
        self._refusing = refuse
        for stream in self._streams:
            stream.socket.close()
        self._streams.clear()

    async def _serve(self, client: trio.SocketStream) -> None:
        if self._refusing:
            await trio.aclose_forcefully(client)
            return
        server = await trio.open_tcp_stream("127.0.0.1", self._target_port)
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
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                if not is_answer or self.answers_flow:
                    await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def proxy(target_port: int) -> AsyncIterator[Proxy]:
    async with trio.open_nursery() as nursery:
        opened = Proxy(target_port, nursery)
        await opened.serve()
        yield opened
        nursery.cancel_scope.cancel()
