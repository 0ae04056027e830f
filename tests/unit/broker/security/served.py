"""A broker of a test, served on a network in memory to real clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import trio

from quire.world.doors import Buffer, Network, Stream, World
from tests.unit.broker.peers import FakeStream, Room

URL = "pulsar://test:6650"


class ServedStream(FakeStream):
    """The broker's end, which wakes the client's."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = trio.Event()

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        taken = super().send_nowait(parts)
        self.changed.set()
        return taken

    def close(self) -> None:
        super().close()
        self.changed.set()


class ClientEnd:
    """The client's end."""

    peer = "broker:6650"
    peer_certificate: bytes | None = None

    def __init__(self, other: ServedStream) -> None:
        self._other = other

    async def receive_into(self, buffer: memoryview, at_least: int = 1) -> int:
        await trio.lowlevel.checkpoint()
        while not self._other.sent:
            if self._other.closed:
                return 0
            self._other.changed = trio.Event()
            await self._other.changed.wait()
        size = min(len(buffer), len(self._other.sent))
        buffer[:size] = self._other.sent[:size]
        del self._other.sent[:size]
        return size

    def send_nowait(self, parts: Sequence[Buffer]) -> int:
        if self._other.closed:
            raise BrokenPipeError(32, "closed")
        data = b"".join(parts)
        self._other.arrive(data)
        return len(data)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._other.close()


class OneBroker:
    """Network whose every address is one broker."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def connect(self, host: str, port: int) -> Stream:
        stream = ServedStream()
        self._room.nursery.start_soon(self._room.broker.handle, stream)
        return cast(Stream, ClientEnd(stream))


@asynccontextmanager
async def served(room: Room) -> AsyncIterator[tuple[World, str]]:
    """Return a world from which the broker can be reached, and its URL."""
    yield replace(room.broker.context.world, network=cast(Network, OneBroker(room))), URL
