"""Bookies in memory that answer version 2 through a link, and the part of version 3 that clients of it need, with
faults on demand; and a ledger client that uses them.

A FakeBookie answers at once, from within `send`. Its settings change that: `hold` keeps the answers to adds until
`release`; `hung` swallows requests; `refuse` answers with a given code; `delay_s` slows it down; `lose_links`
breaks the connections; `crash` loses deferred entries too; `down` refuses new connections.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import trio

from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.link_local import LocalLink, Write
from quire.ledger.client import LedgerClient
from quire.ledger.context import LedgerConfig
from quire.ledger.errors import BookieUnavailableError
from quire.ledger.opening import open_ledger_client
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.ledgers import BlockLedgerIds, LedgerManager, LedgerMetadata
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from quire.world.doors import World
from quire.world.faults import Faults
from tests.unit.ledger import fake_v3


class FakeBookie:
    """Keeps entries as received, `bytes` by ledger and entry id."""

    def __init__(self, bookie_id: str) -> None:
        self.bookie_id = bookie_id
        self.entries: dict[int, dict[int, bytes]] = {}
        self.keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.down = False
        self.hung = False
        self.hold = False
        self.batch_reads = True
        self.refuse: Callable[[Any], Rc | None] = lambda request: None
        self.requests: list[v2.Request | v3.Request] = []
        self.lacs: dict[int, bytes] = {}
        """Explicit LACs, by ledger."""
        self.deferred: dict[int, set[int]] = {}
        """Entries not synced yet, by ledger."""
        self.forces = 0
        self.force_rc = Rc.OK
        self.polls: list[fake_v3.Poll] = []
        self.delay_s: Callable[[], float] | None = None
        """Seconds that each answer takes."""
        self.held: list[tuple[FakeSession, bytes]] = []
        self.links: list[LocalLink] = []

    def connect(self) -> LocalLink:
        if self.down:
            raise BookieUnavailableError(f"{self.bookie_id} is down")
        link = LocalLink(lambda write: FakeSession(self, write))
        self.links.append(link)
        return link

    def lose_links(self) -> None:
        """Break the links, as when the process dies; new links can be opened unless `down`."""
        self.held.clear()
        links, self.links = self.links, []
        for link in links:
            link.close()
            link.closed(BookieUnavailableError(f"{self.bookie_id} has gone"))

    def crash(self) -> None:
        """Lose unsynced entries and the links; new links can be opened at once."""
        for ledger_id, entry_ids in self.deferred.items():
            for entry_id in entry_ids:
                self.entries[ledger_id].pop(entry_id, None)
        self.deferred.clear()
        self.lose_links()

    def stop(self) -> None:
        self.down = True
        self.lose_links()

    def release(self, order: Callable[[list[Any]], None] = lambda held: None) -> None:
        """Send the held answers; `order` may reorder the list in place."""
        held, self.held = self.held, []
        order(held)
        for session, answer in held:
            session.write([answer])

    def damage(self, ledger_id: int, entry_id: int) -> None:
        """Flip a bit in the last byte of an entry."""
        entry = self.entries[ledger_id][entry_id]
        self.entries[ledger_id][entry_id] = entry[:-1] + bytes([entry[-1] ^ 1])

    def fail(self, fault: str, ledger_id: int = -1) -> None:
        """Fail from now on in the named way, some of them with the entries of one ledger."""
        entries = self.entries.get(ledger_id, {})
        match fault:
            case "well":
                pass
            case "stopped":
                self.stop()
            case "hung":
                self.hung = True
            case "slow":
                self.delay_s = lambda: 0.5
            case "empty":
                self.entries.pop(ledger_id, None)
            case "damaged":
                for entry_id in entries:
                    self.damage(ledger_id, entry_id)
            case "swapped":  # every entry under the id of another
                self.entries[ledger_id] = dict(zip(entries, reversed(entries.values()), strict=True))
            case "truncated":
                self.entries[ledger_id] = {entry_id: entry[:20] for entry_id, entry in entries.items()}
            case "busy":  # for a moment
                refusals = [Rc.TOO_MANY_REQUESTS] * 3
                self.refuse = lambda request: refusals.pop() if refusals else None
            case _:
                code = {"refusing": Rc.IO, "unsure": Rc.UNKNOWN_LEDGER_STATE}[fault]
                self.refuse = lambda request: code

    def add(self, add: Run) -> Rc:
        """Store a run; return the answer of BookKeeper's bookie."""
        if self.keys.setdefault(add.ledger_id, add.key) != add.key:
            return Rc.UNAUTHORIZED
        if add.ledger_id in self.fenced and not add.flags & v2.RECOVERY_ADD:
            return Rc.FENCED
        ledger = self.entries.setdefault(add.ledger_id, {})
        for entry_id, entry in enumerate(v2.split_entries(memoryview(b"".join(add.parts))), add.first):
            ledger[entry_id] = bytes(entry)
        if self.polls:
            fake_v3.moved(self, add.ledger_id)
        return Rc.OK

    def read(self, read: v2.ReadRequest) -> tuple[Rc, bytes]:
        if read.flags & v2.DO_FENCING:
            assert read.master_key is not None
            if self.keys.setdefault(read.ledger_id, read.master_key) != read.master_key:
                return Rc.UNAUTHORIZED, b""
            self.fenced.add(read.ledger_id)
        ledger = self.entries.get(read.ledger_id)
        if not ledger:
            return Rc.NO_LEDGER, b""
        entry = ledger.get(max(ledger) if read.entry_id == -1 else read.entry_id)
        return (Rc.NO_ENTRY, b"") if entry is None else (Rc.OK, entry)


class FakeSession:
    """One connection to a FakeBookie."""

    def __init__(self, bookie: FakeBookie, write: Write) -> None:
        self.bookie = bookie
        self._write = write

    def write(self, parts: list[Buffer]) -> None:
        """Send an answer, now or after the bookie's delay."""
        if self.bookie.delay_s is None:
            self._write(parts)
        else:
            trio.lowlevel.spawn_system_task(self._write_late, parts, self.bookie.delay_s())

    async def _write_late(self, parts: list[Buffer], delay_s: float) -> None:
        await trio.sleep(delay_s)
        self._write(parts)

    def receive(self, frames: Sequence[v2.Frame]) -> None:
        for frame in frames:
            if v3.is_version_3(frame):
                for each in v3.decode_requests(frame):
                    fake_v3.serve(self, each)
                continue
            for request in v2.decode_requests(frame):
                self._serve(request)

    def close(self) -> None:
        pass

    def answer_add(self, answer: bytes) -> None:
        if self.bookie.hold:
            self.bookie.held.append((self, answer))
        else:
            self.write([answer])

    def _serve(self, request: v2.Request) -> None:
        bookie = self.bookie
        bookie.requests.append(request)
        if bookie.hung:
            return
        refused = bookie.refuse(request)
        if isinstance(request, Run):
            rc = bookie.add(request) if refused is None else refused
            ids = range(request.first, request.first + len(request.offsets))
            self.answer_add(v2.add_responses(rc, request.ledger_id, ids))
        elif isinstance(request, v2.ReadRequest):
            rc, entry = bookie.read(request) if refused is None else (refused, b"")
            head = v2.response_head(v2.Opcode.READ, rc, request.ledger_id, request.entry_id, len(entry))
            self.write([head, entry])
        elif isinstance(request, v2.BatchReadRequest):
            self._serve_batch(request, refused)
        else:
            raise AssertionError(f"the client sent {request}")

    def _serve_batch(self, request: v2.BatchReadRequest, refused: Rc | None) -> None:
        if not self.bookie.batch_reads:
            self.write([v2.response_head(v2.Opcode.BATCH_READ, Rc.BAD_REQUEST, -1, -1)])
            return
        ledger = self.bookie.entries.get(request.ledger_id)
        body: list[Buffer] = []
        size = 0
        rc = refused or (Rc.NO_ENTRY if ledger else Rc.NO_LEDGER)
        entry_id = request.entry_id
        while refused is None and ledger and entry_id in ledger and entry_id < request.entry_id + request.count_max:
            entry = ledger[entry_id]
            if body and size + len(entry) > request.size_max:
                break
            rc = Rc.OK
            body += [len(entry).to_bytes(4, "big"), entry]
            size += 4 + len(entry)
            entry_id += 1
        head = v2.batch_response_head(rc, request.ledger_id, request.entry_id, request.request_id, size if body else 0)
        self.write([head, *body])


class RacingLedgers(LedgerManager):
    """A ledger manager with faults: `before_write` is awaited before each write; the first `failures` writes fail with
    "unavailable", before or (`after`) after they were made."""

    before_write: Callable[[int, LedgerMetadata], Awaitable[None]] | None = None
    failures = 0
    after = False
    writes = 0

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        self.writes += 1
        if self.before_write is not None:
            await self.before_write(ledger_id, metadata)
        if self.failures and not self.after:
            self.failures -= 1
            raise MetadataUnavailableError("not there")
        version = await super().write(ledger_id, metadata, version)
        if self.failures:
            self.failures -= 1
            raise MetadataUnavailableError("the answer was lost")
        return version


class FakeCluster:
    """Bookies, metadata, and any number of ledger clients."""

    def __init__(self, size: int, *, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.bookies = {f"bookie{i}:3181": FakeBookie(f"bookie{i}:3181") for i in range(size)}
        self.faults = Faults()
        self.store = MemoryStore(MemoryTree())
        self.ledgers = RacingLedgers(self.store, ids=BlockLedgerIds(self.store), rng=self.rng)

    def available(self) -> list[str]:
        return [bookie.bookie_id for bookie in self.bookies.values() if not bookie.down]

    @asynccontextmanager
    async def client(
        self,
        *,
        connect: Callable[[str], BookieLink] | None = None,
        ledgers: LedgerManager | None = None,
        **config: Any,
    ) -> AsyncIterator[LedgerClient]:
        """Open a client; `connect` and `ledgers` replace its direct access to the bookies and to the metadata."""
        none = cast(Any, None)
        world = World(
            clock=none, disk=none, key_value=none, network=none, offload=none, rng=self.rng, faults=self.faults
        )
        connect = connect or (lambda each: self.bookies[each].connect())
        async with open_ledger_client(
            world, ledgers or self.ledgers, connect, self.available, LedgerConfig(**config)
        ) as client:
            yield client

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        stored = await self.ledgers.read(ledger_id)
        assert stored is not None
        return stored.value

    def of(self, ensemble: Sequence[str]) -> list[FakeBookie]:
        return [self.bookies[each] for each in ensemble]

    def members(self, ledger: Any, fragment: int = 0) -> list[FakeBookie]:
        """Return the bookies of a fragment of a writer's or reader's ledger."""
        return self.of(ledger.metadata.fragments[fragment].bookies)

    @property
    def bookie(self) -> FakeBookie:
        """The bookie of a cluster of one, the first of a larger one."""
        return self.bookies["bookie0:3181"]

    def every(self, **settings: Any) -> None:
        """Set these attributes of every bookie."""
        for bookie in self.bookies.values():
            for name, value in settings.items():
                setattr(bookie, name, value)

    def hold(self, hold: bool = True) -> None:
        """Hold the answers to adds on every bookie; or stop that, which releases none."""
        self.every(hold=hold)

    def release(self) -> None:
        for bookie in self.bookies.values():
            bookie.release()

    def asked(self, *kinds: type) -> list[Any]:
        """Return the requests of these kinds that any bookie received."""
        return [each for bookie in self.bookies.values() for each in bookie.requests if isinstance(each, kinds)]


class Confirmations:
    """Record of a writer's callbacks."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.ranges: list[tuple[int, int]] = []
        self.payloads: list[bytes] = []
        self.errors: list[Exception] = []
        self._changed = trio.Event()
        writer.on_confirmed = self._confirmed
        writer.on_failed = self._failed

    def _confirmed(self, first: int, last: int) -> None:
        self.ranges.append((first, last))
        self.payloads += [bytes(view) for view in self.writer.sealed(first, last)]
        self._changed.set()

    def _failed(self, error: Exception) -> None:
        self.errors.append(error)
        self._changed.set()

    @property
    def last(self) -> int:
        return self.ranges[-1][1] if self.ranges else -1

    @property
    def confirmed(self) -> list[int]:
        """The confirmed ids in the order of their confirmation."""
        return [each for first, last in self.ranges for each in range(first, last + 1)]

    async def write(self, first: int, last: int) -> None:
        """Append these entries in one run, and wait until they are confirmed."""
        self.writer.append(payloads(first, last))
        await self.until(last)

    async def until(self, last: int) -> None:
        """Wait until entry `last` is confirmed."""
        while self.last < last:
            assert not self.errors, self.errors
            self._changed = trio.Event()
            await self._changed.wait()

    async def until_failed(self) -> Exception:
        while not self.errors:
            self._changed = trio.Event()
            await self._changed.wait()
        return self.errors[0]


async def begun(
    client: LedgerClient, quorum: tuple[int, int, int] = (1, 1, 1), entries: int = 0, **options: Any
) -> tuple[LedgerWriter, Confirmations]:
    """Begin a ledger with so many confirmed entries; return its writer, and the record of its callbacks."""
    size, write_quorum, ack_quorum = quorum
    writer = await client.create(ensemble_size=size, write_quorum=write_quorum, ack_quorum=ack_quorum, **options)
    seen = Confirmations(writer)
    if entries:
        await seen.write(0, entries - 1)
    return writer, seen


def total(first: int, last: int) -> int:
    """Return the bytes in the payloads of these entries."""
    return sum(map(len, payloads(first, last)))


async def write(
    client: LedgerClient,
    count: int,
    *,
    quorums: tuple[int, int, int] = (3, 3, 2),
    close: bool = True,
    size: int = 20,
    on: str | None = None,
) -> tuple[int, list[bytes]]:
    """Write a ledger of `count` entries, with the bookie `on` as a member; return its id and payloads."""
    while True:
        writer = await client.create(
            ensemble_size=quorums[0], write_quorum=quorums[1], ack_quorum=quorums[2], password=b"secret"
        )
        if on is None or on in writer.metadata.fragments[0].bookies:
            break
        await writer.close()
        await client.delete(writer.ledger_id)
    written = payloads(0, count - 1, size)
    for first in range(0, count, 50):
        writer.append(written[first : first + 50])
    if count:
        await writer.wait_confirmed(count - 1)
    if close:
        await writer.close()
    return writer.ledger_id, written


def payloads(first: int, last: int, size: int = 20) -> list[bytes]:
    """Return distinct payloads for entries `first` to `last`."""
    return [(f"entry {entry_id} ".encode() * size)[: size + entry_id % 7] for entry_id in range(first, last + 1)]
