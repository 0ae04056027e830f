"""A standalone server with many topics, most of them idle: what grows with their number, counted and not timed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from quire.servers.addresses import Addresses
from quire.servers.standalone.config import STANDALONE
from quire.servers.standalone.process import run_standalone
from quire.world.damage import Finding
from quire.world.doors import Batch, KeyValue, KeyValueMaker, World
from simulation.common.pulsar_client import Connection
from simulation.machines.host import Host
from simulation.machines.world import Universe
from tests.support.kinds import bytes_by_kind

pytestmark = pytest.mark.seeded(1)

SERVER, PORT = "server", 6650
IDLE_S = 125.0
"""Longer than idle writers keep what only writing needs, and than two rounds of the rates."""
LOADED_BYTES_MAX = 1700
WRITTEN_BYTES_MAX = 2700
SUBSCRIBED_BYTES_MAX = 6700
"""It was 1525, 2440 and 6310 on Python 3.11; and 2325, 2990 and 7550 before rarely used parts were made on demand."""


class CountedMap:
    """A map that counts the rows that are read from it."""

    def __init__(self, inner: KeyValue) -> None:
        self._inner = inner
        self.rows = 0

    @property
    def noticed(self) -> Sequence[Finding]:
        return self._inner.noticed

    def get(self, key: bytes) -> bytes | None:
        self.rows += 1
        return self._inner.get(key)

    def scan(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for row in self._inner.scan(start, stop, reverse=reverse):
            self.rows += 1
            yield row

    def values(self, start: bytes, count_max: int) -> list[bytes]:
        found = self._inner.values(start, count_max)
        self.rows += len(found)
        return found

    def prefixes(self, start: bytes, stop: bytes, length: int, count_max: int) -> list[bytes]:
        found = self._inner.prefixes(start, stop, length, count_max)
        self.rows += len(found)
        return found

    def batch(self) -> Batch:
        return self._inner.batch()

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._inner.write(batch, sync=sync)

    def compact(self) -> None:
        self._inner.compact()

    def close(self) -> None:
        self._inner.close()


class CountedMaker:
    """Opens maps, and counts the reads of that of the metadata."""

    def __init__(self, inner: KeyValueMaker) -> None:
        self._inner = inner
        self.metadata: CountedMap | None = None

    def open(self, path: str, **options: Any) -> KeyValue:
        opened = self._inner.open(path, **options)
        if not path.endswith("/metadata"):
            return opened
        self.metadata = CountedMap(opened)
        return self.metadata


class Server:
    """A standalone server on a simulated machine."""

    def __init__(self, universe: Universe, number: int = 0) -> None:
        self._universe = universe
        self._name = f"{SERVER}-{number}"
        self._host: Host = universe.host(self._name)
        self._ready = trio.Event()
        self._maker: CountedMaker | None = None

    async def _serve(self, world: World, stop: trio.Event) -> None:
        def ready(_: Addresses) -> None:
            self._ready.set()

        keys = {"brokerServicePort": PORT, "bindAddress": self._name, "advertisedAddress": self._name}
        config = STANDALONE.build({**keys, "brokerDeleteInactiveTopicsEnabled": "false"})
        self._maker = CountedMaker(world.key_value)
        counting = replace(world, key_value=self._maker)
        await run_standalone(counting, config, data_dir="/data", ready=ready, stop=stop, http=False)

    async def start(self) -> None:
        self._ready = trio.Event()
        self._host.start(self._serve)
        await self._ready.wait()

    async def stop(self) -> None:
        await self._host.stop()

    @property
    def rows_read(self) -> int:
        """Rows of the metadata that were read since the start."""
        assert self._maker is not None
        assert self._maker.metadata is not None
        return self._maker.metadata.rows

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection, None]:
        world = self._universe.host(f"client {len(self._universe.hosts)}").world(self._universe.nursery)
        connection = await Connection.open(world, self._name, PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run, name="client")
            await connection.handshake()
            yield connection
            connection.close()

    async def use(self, numbers: Sequence[int], *, publish: bool = True, subscribe: bool = False) -> None:
        """Have a producer on each of these topics, which leaves; and a subscription, whose consumer leaves."""
        async with self.connection() as connection:
            for number in numbers:
                topic = f"persistent://public/default/many-{number}"
                await connection.producer(topic, number, f"p-{number}")
                if publish:
                    connection.publish(number, f"p-{number}", 0, [("", b"x")])
                    while len(connection.receipts) <= numbers.index(number):
                        await connection.changed()
                if subscribe:
                    await connection.subscribe(topic, "s", number, 1)
        await trio.sleep(IDLE_S)


async def test_what_is_read_between_a_start_and_the_first_receipt_does_not_grow_with_the_topics(universe):
    read: list[int] = []
    for topics in (20, 60):
        server = Server(universe, topics)
        await server.start()
        await server.use(range(topics), subscribe=True)
        await server.stop()
        await server.start()
        async with server.connection() as connection:
            await connection.producer("persistent://public/default/many-7", 1, "p")
            connection.publish(1, "p", 0, [("", b"x")])
            while not connection.receipts:
                await connection.changed()
            read.append(server.rows_read)
        await server.stop()
    assert read[0] == read[1] < 60


@pytest.mark.parametrize(
    ("restarted", "subscribe", "bytes_max"),
    [(True, False, LOADED_BYTES_MAX), (False, False, WRITTEN_BYTES_MAX), (True, True, SUBSCRIBED_BYTES_MAX)],
    ids=["loaded", "written", "subscribed"],
)
async def test_an_idle_topic_takes_little_memory(universe, restarted: bool, subscribe: bool, bytes_max: int) -> None:
    server = Server(universe)
    await server.start()
    first, rest = range(1, 21), range(100, 200)
    if restarted:
        for numbers in (first, rest):
            await server.use(numbers, subscribe=subscribe)
        await server.stop()
        await server.start()
    await server.use(first, publish=not restarted, subscribe=subscribe)
    before = bytes_by_kind("broker", "managed_ledger", "cursors", "quire.ledger", "quire.wire", "quire.service")
    await server.use(rest, publish=not restarted, subscribe=subscribe)
    after = bytes_by_kind("broker", "managed_ledger", "cursors", "quire.ledger", "quire.wire", "quire.service")
    after.subtract(before)
    await server.stop()
    each = sum(after.values()) / len(rest)
    assert each < bytes_max, [(kind, size / len(rest)) for kind, size in after.most_common(40)]
