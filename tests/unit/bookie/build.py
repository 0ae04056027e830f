"""Building blocks of bookie tests: entries, frames, runs, and a bookie on a simulated host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from bookie.db_ledger_storage.options import StorageOptions
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.sessions.session import BookieSession
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer, Digest, DigestType, master_key
from quire.wire.bookkeeper.run import Run
from quire.world.doors import World
from simulation.machines.world import in_world

T = TypeVar("T")

KEY = master_key(b"secret")
OTHER_KEY = master_key(b"other")
DIGEST = Digest(DigestType.CRC32C, b"secret")
CONFIG = BookieConfig(
    bookie_id="bookie:1",
    journal_directories=("/data/journal",),
    ledger_directories=("/data/ledgers",),
    journal_prealloc_mb=1,
)
JOURNAL = "/data/journal/current"
LEDGERS = "/data/ledgers/current"


def entry(ledger_id: int, entry_id: int, payload: bytes = b"") -> bytes:
    """Return a whole sealed entry. An empty `payload` is replaced by one with the ids."""
    payload = payload or b"payload of %d:%d" % (ledger_id, entry_id)
    return DIGEST.seal(ledger_id, entry_id, entry_id - 1, len(payload), payload) + payload


def add_frame(ledger_id: int, entry_id: int, payload: bytes = b"", *, key: bytes = KEY, flags: int = 0) -> bytes:
    sealed = entry(ledger_id, entry_id, payload)
    return v2.add_head(len(sealed), key, flags) + sealed


def add_frames(ledger_id: int, first: int, count: int, payload: bytes = b"", *, flags: int = 0) -> bytes:
    return b"".join(add_frame(ledger_id, i, payload, flags=flags) for i in range(first, first + count))


def run_of(ledger_id: int, first: int, count: int, payload: bytes = b"") -> Run:
    return Run.of(ledger_id, [(i, entry(ledger_id, i, payload)) for i in range(first, first + count)])


class Client:
    """A session of a bookie, and its answers."""

    def __init__(self, bookie: Bookie) -> None:
        self.answers: list[v2.Response] = []
        self.writes = 0
        self.raw = b""
        self._news = trio.Event()
        self.session = BookieSession(bookie, self._write)

    def _write(self, parts: list[Buffer]) -> None:
        self.writes += 1
        chunk = b"".join(parts)
        self.raw += chunk
        self.answers += v2.decode_responses(chunk)
        self._news.set()

    def send(self, *frames: v2.Frame) -> None:
        self.session.receive(frames)

    async def ask(self, *frames: v2.Frame, answers: int = 1) -> list[v2.Response]:
        """Send, wait for this many answers (a run of adds has one), and return them."""
        self.send(*frames)
        return await self.take(answers)

    async def take(self, count: int = 1) -> list[v2.Response]:
        with trio.fail_after(60):
            while len(self.answers) < count:
                self._news = trio.Event()
                await self._news.wait()
        taken, self.answers = self.answers[:count], self.answers[count:]
        return taken

    async def add(self, ledger_id: int, first: int, count: int = 1, *, flags: int = 0) -> v2.Response:
        """Add a run, and wait for its answer."""
        return (await self.ask(add_frames(ledger_id, first, count, flags=flags)))[0]

    async def read(self, ledger_id: int, entry_id: int) -> v2.ReadResponse:
        (answer,) = await self.ask(v2.read_request(ledger_id, entry_id))
        assert isinstance(answer, v2.ReadResponse)
        return answer

    async def holds(self, ledger_id: int, entry_ids: Iterable[int], payload: bytes = b"") -> None:
        """Check that these entries are read as `entry` makes them."""
        for entry_id in entry_ids:
            assert bytes((await self.read(ledger_id, entry_id)).entry) == entry(ledger_id, entry_id, payload)

    async def fence(self, ledger_id: int, key: bytes = KEY) -> v2.ReadResponse:
        (answer,) = await self.ask(v2.read_request(ledger_id, -1, v2.DO_FENCING, key))
        assert isinstance(answer, v2.ReadResponse)
        return answer


async def open_storage(world: World, options: StorageOptions | None = None) -> DbLedgerStorage:
    storage = DbLedgerStorage(world, "/b", options)
    await storage.open()
    return storage


async def cluster(tree: MemoryTree, world: World) -> MemoryStore:
    """Open a session on a metadata store that has the layout of a cluster."""
    store = MemoryStore(tree)
    await initialize_layout(store, rng=world.rng)
    return store


@asynccontextmanager
async def opened(world: World, tree: MemoryTree, config: BookieConfig = CONFIG) -> AsyncGenerator[Bookie, None]:
    store = await cluster(tree, world)
    async with open_bookie(world, config, store) as bookie:
        yield bookie


@asynccontextmanager
async def with_bookie(*, config: BookieConfig = CONFIG, seed: int = 1) -> AsyncGenerator[Bookie, None]:
    """Open a new bookie on a simulated host."""
    async with in_world(seed) as world, opened(world, MemoryTree(), config) as bookie:
        yield bookie
