"""Ledgers in memory with the interface of `quire.ledger.LedgerClient`, and with failures and delays set by the test.

Appends are confirmed in a later step of the loop, by `FakeLedgers.run`, or when the test releases them (`hold`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from quire.ledger.errors import (
    LedgerClosedError,
    LedgerConflictError,
    LedgerError,
    LedgerFencedError,
    LedgerWriteError,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Create, Op
from quire.wire.bookkeeper.entry import DigestType
from quire.world.doors import Buffer, World


class FakeClock:
    def __init__(self, skew_ms: int) -> None:
        self._start_ms = 1_700_000_000_000 + skew_ms

    def wall_ms(self) -> int:
        return self._start_ms + int(trio.current_time() * 1000)


class InlineOffload:
    """Runs a job at once."""

    async def run(self, job: Callable[[], Any], *, name: str = "") -> Any:
        await trio.lowlevel.checkpoint()
        return job()

    def give_up(self) -> None:
        raise AssertionError("every job has ended")

    def lane(self, name: str, job: Any, done: Any) -> Any:
        raise AssertionError("managed ledgers have no lanes")


def fake_world(*, skew_ms: int = 0) -> World:
    """Return a world whose clock is wrong by `skew_ms`."""
    nothing: Any = None
    return World(
        clock=FakeClock(skew_ms),
        disk=nothing,
        key_value=nothing,
        network=nothing,
        offload=InlineOffload(),
        rng=random.Random(1),
    )


@dataclass
class Stored:
    """State of a ledger at the bookies and in the metadata."""

    ledger_id: int
    custom_metadata: tuple[tuple[str, bytes], ...] = ()
    quorums: tuple[int, int, int] = (1, 1, 1)
    digest_type: DigestType = DigestType.CRC32C
    entries: list[bytes] = field(default_factory=list)
    """Entries that bookies have, confirmed or not."""
    last_entry_id: int | None = None
    """Last entry; None while the ledger is open."""
    fenced: bool = False


class FakeWriter:
    def __init__(self, ledgers: FakeLedgers, stored: Stored) -> None:
        self.stored = stored
        self.ledger_id = stored.ledger_id
        self.last_confirmed = -1
        self.last_pushed = -1
        self.length = 0
        self.error: LedgerError | None = None
        self.refusal: LedgerError | None = None
        """Failures of the next appends; the writer stays usable."""
        self.held = False
        self.on_confirmed: Callable[[int, int], None] = lambda first, last: None
        self.on_failed: Callable[[LedgerError], None] = lambda error: None
        self.closes = self.rests = 0
        self._ledgers = ledgers
        self._pending: deque[tuple[int, bytearray, list[int]]] = deque()

    @property
    def pending_bytes(self) -> int:
        return sum(len(joined) for _, joined, _ in self._pending)

    def append(self, payloads: Sequence[Buffer]) -> int:
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        if self.refusal is not None:
            raise self.refusal
        first = self.last_pushed + 1
        joined = bytearray()
        ends = []
        for payload in payloads:
            joined += payload
            ends.append(len(joined))
        self._pending.append((first, joined, ends))
        self.last_pushed += len(payloads)
        self.length += len(joined)
        self._ledgers.appended.append(self)
        self._ledgers.work.set()
        return first

    def sealed(self, first: int, last: int) -> list[memoryview]:
        views = []
        for start, joined, ends in self._pending:
            view = memoryview(joined)
            for number, end in enumerate(ends):
                if first <= start + number <= last:
                    views.append(view[ends[number - 1] if number else 0 : end])
        return views

    def confirm(self, upto: int | None = None) -> None:
        """Store and confirm all pushed entries, or those up to an entry."""
        last = self.last_pushed if upto is None else upto
        first = self.last_confirmed + 1
        if self.error is not None or last < first:
            return
        if self.stored.fenced:
            self.fail(LedgerFencedError(f"ledger {self.ledger_id} was fenced"))
            return
        self.store(last)
        self.last_confirmed = last
        self.on_confirmed(first, last)
        while self._pending and self._pending[0][0] + len(self._pending[0][2]) - 1 <= last:
            self._pending.popleft()

    def store(self, last: int) -> None:
        """Store entries up to `last` at the bookies, confirmed or not."""
        have = len(self.stored.entries)
        if last >= have:
            self.stored.entries += [bytes(view) for view in self.sealed(have, last)]

    def fail(self, error: LedgerError) -> None:
        if self.error is None:
            self.error = error
            self.on_failed(error)

    def rest(self) -> None:
        self.rests += 1

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        await trio.lowlevel.checkpoint()
        self._ledgers.reads.append((self.ledger_id, first, last))
        return take(self.stored, first, min(last, self.last_confirmed), size_max)

    async def close(self) -> None:
        self.closes += 1
        if self.error is None:
            self.error = LedgerClosedError(f"ledger {self.ledger_id} is closed")
        await trio.lowlevel.checkpoint()
        self._ledgers.log.append(f"close {self.ledger_id}")
        await self._ledgers.step("close")
        if isinstance(self.error, LedgerFencedError):
            return
        if self.stored.last_entry_id is None:
            self.stored.last_entry_id = self.last_confirmed
            if self._ledgers.point is not None:
                await self._ledgers.point()
        elif self.stored.last_entry_id != self.last_confirmed:
            raise LedgerConflictError(f"ledger {self.ledger_id} was closed at {self.stored.last_entry_id}")


class FakeLedgerReader:
    """Reader of a ledger. In an open one it sees the LAC of the last entry, so nothing if there is one entry."""

    def __init__(self, ledgers: FakeLedgers, stored: Stored) -> None:
        last = len(stored.entries) - 2 if stored.last_entry_id is None else stored.last_entry_id
        self.last_entry_id = max(last, -1)
        self.length = sum(map(len, stored.entries[: self.last_entry_id + 1]))
        self._ledgers = ledgers
        self._stored = stored

    async def read(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        await self._ledgers.step("read")
        self._ledgers.reads.append((self._stored.ledger_id, first, last))
        return take(self._stored, first, min(last, self.last_entry_id), size_max)

    async def read_unconfirmed(self, first: int, last: int, *, size_max: int) -> list[memoryview]:
        await self._ledgers.step("read")
        if first >= len(self._stored.entries):
            raise NoSuchEntryError(f"entry {self._stored.ledger_id}:{first}")
        return take(self._stored, first, min(last, len(self._stored.entries) - 1), size_max)


def take(stored: Stored, first: int, last: int, size_max: int) -> list[memoryview]:
    found: list[memoryview] = []
    size = 0
    for payload in stored.entries[first : last + 1]:
        size += len(payload)
        if found and size > size_max:
            break
        found.append(memoryview(payload))
    if not found:
        raise NoSuchEntryError(f"entry {stored.ledger_id}:{first}")
    return found


class FakeLedgers:
    """Shared by every broker of a test."""

    def __init__(self, tree: MemoryTree, *, first_id: int = 0) -> None:
        self.store = MemoryStore(tree)
        self.stored: dict[int, Stored] = {}
        self.writers: dict[int, FakeWriter] = {}
        self.appended: deque[FakeWriter] = deque()
        self.work = trio.Event()
        self.reads: list[tuple[int, int, int]] = []
        self.log: list[str] = []
        self.multis: list[list[Op]] = []
        self.failures: dict[str, list[Exception]] = {}
        """Per step (create, created, open, close, delete, read): errors to raise, one per call."""
        self.delay_s = 0.0
        self.waiting = 0
        """Number of calls that wait for `delay_s`."""
        self.hold = False
        """Confirm nothing until released."""
        self.full = False
        """Store nothing: a ledger fails at its first append, but new ones can be created."""
        self.point: Callable[[], Awaitable[None]] | None = None
        """Awaited at each point at which a crash of the broker would leave an operation half done."""
        self._next_id = first_id

    async def step(self, name: str) -> None:
        if self.point is not None:
            await self.point()
        if self.delay_s:
            self.waiting += 1
            try:
                await trio.sleep(self.delay_s)
            finally:
                self.waiting -= 1
        else:
            await trio.lowlevel.checkpoint()
        planned = self.failures.get(name)
        if planned:
            raise planned.pop(0)

    async def create(
        self,
        *,
        ensemble_size: int = 1,
        write_quorum: int = 1,
        ack_quorum: int = 1,
        digest_type: DigestType = DigestType.CRC32C,
        custom_metadata: Sequence[tuple[str, bytes]] = (),
        high_priority: bool = False,
        also: Callable[[int], Sequence[Op]] = lambda ledger_id: (),
    ) -> FakeWriter:
        await self.step("create")
        ledger_id = self._next_id
        self._next_id += 1
        ops: list[Op] = [Create(path=f"/ledgers/L{ledger_id}", make_parents=True), *also(ledger_id)]
        self.multis.append(ops)
        await self.store.multi(ops)
        stored = self.stored[ledger_id] = Stored(
            ledger_id, tuple(custom_metadata), (ensemble_size, write_quorum, ack_quorum), digest_type
        )
        await self.step("created")
        self.log.append(f"create {ledger_id}")
        writer = self.writers[ledger_id] = FakeWriter(self, stored)
        writer.held = self.hold
        return writer

    async def open(self, ledger_id: int, *, recover: bool) -> FakeLedgerReader:
        await self.step("open")
        self.log.append(f"{'recover' if recover else 'open'} {ledger_id}")
        stored = self.stored.get(ledger_id)
        if stored is None:
            raise NoSuchLedgerError(f"ledger {ledger_id}")
        if stored.last_entry_id is None and recover:
            self.close_by_others(ledger_id)
        return FakeLedgerReader(self, stored)

    async def recover(self, ledger_id: int) -> tuple[int, int]:
        reader = await self.open(ledger_id, recover=True)
        return reader.last_entry_id, reader.length

    async def delete(self, ledger_id: int) -> None:
        await self.step("delete")
        if ledger_id not in self.stored:
            raise NoSuchLedgerError(f"ledger {ledger_id}")
        del self.stored[ledger_id]
        await self.store.delete(f"/ledgers/L{ledger_id}")
        self.log.append(f"delete {ledger_id}")
        if self.point is not None:
            await self.point()

    def close_by_others(self, ledger_id: int) -> None:
        """Act as auto recovery on an open ledger: fence it, and close it at the last entry of the bookies."""
        stored = self.stored[ledger_id]
        if stored.last_entry_id is None:
            stored.fenced = True
            stored.last_entry_id = len(stored.entries) - 1

    async def run(self) -> None:
        """Confirm appends, each in its own step."""
        while True:
            await self.work.wait()
            self.work = trio.Event()
            while self.appended:
                await trio.lowlevel.checkpoint()
                writer = self.appended.popleft()
                if self.full:
                    writer.fail(LedgerWriteError("the disk is full"))
                elif not writer.held:
                    writer.confirm()

    def hold_appends(self) -> None:
        """Confirm nothing from now on, of writers that there are or come."""
        self.hold = True
        for writer in self.writers.values():
            writer.held = True

    def release(self) -> None:
        """Confirm held appends, and hold no more."""
        self.hold = False
        for writer in list(self.writers.values()):
            writer.held = False
            writer.confirm()

    def listed(self) -> set[int]:
        """Return the ids of the existing ledgers."""
        return set(self.stored)


@asynccontextmanager
async def running(ledgers: FakeLedgers) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledgers.run, name="fake bookies")
        yield
        nursery.cancel_scope.cancel()


class Sink:
    """Records the calls of its callbacks."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []
        self.errors: list[Exception] = []

    @property
    def count(self) -> int:
        return sum(count for _, _, count in self.calls)

    def ids(self) -> list[tuple[int, int]]:
        return [(ledger, first + number) for ledger, first, count in self.calls for number in range(count)]

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.calls.append((ledger_id, first_entry_id, count))

    def failed(self, error: Exception) -> None:
        self.errors.append(error)
