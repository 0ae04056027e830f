"""The clients of a simulated ledger cluster: they write, take over, follow, re-read and delete ledgers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import trio

from quire.ledger import LedgerClient, LedgerError, LedgerReader, LedgerWriter, open_client_on
from quire.ledger.bookies.watcher import WatcherConfig
from quire.metadata.errors import MetadataError
from quire.wire.bookkeeper.entry import DigestType
from quire.world.doors import World
from simulation.common.checkers import message
from simulation.common.nodes import Cluster, Node
from simulation.ledger.checkers import LedgerChecker, LedgerHistory
from simulation.ledger.swarm import LedgerSwarm
from simulation.machines.metadata import HostMetadata

PASSWORD = b"secret"
DIGESTS = (DigestType.CRC32C, DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC, DigestType.DUMMY)


class ClientStory(Cluster, Protocol):
    """History as used by its clients."""

    recoveries: int
    followed: int
    """Entries read from open ledgers."""

    @property
    def swarm(self) -> LedgerSwarm: ...

    @property
    def checker(self) -> LedgerChecker: ...

    @property
    def finished(self) -> bool:
        """Return whether clients are to end."""

    @property
    def flips(self) -> bool:
        """Return whether disks may have bit errors."""

    @property
    def wants_more(self) -> bool:
        """Return whether writers hurry."""

    def choose_open(self, rng: random.Random) -> LedgerHistory | None:
        """Return a ledger to recover."""

    def choose_any(self, rng: random.Random) -> LedgerHistory | None:
        """Return a ledger to read."""

    def choose_closed(self, rng: random.Random) -> LedgerHistory | None:
        """Return a ledger to delete."""

    def ignoring_errors(self) -> AbstractContextManager[None]:
        """Ignore errors of ledgers and metadata."""


class ClientNode(Node):
    """Host of a process with one ledger client, and several tasks that use it."""

    def __init__(self, story: ClientStory, name: str) -> None:
        super().__init__(story, name)
        self.story: ClientStory = story

    async def serve(self, world: World, metadata: HostMetadata, stop: trio.Event) -> None:
        config = self.story.swarm.ledger_config(world.rng)
        options = WatcherConfig(rack_map_path="")
        async with open_client_on(world, metadata, config, watcher=options) as client, trio.open_nursery() as nursery:
            for number in range(world.rng.choice((1, 1, 2))):
                nursery.start_soon(self._often, world, client, self._write, name=f"write {number}")
            nursery.start_soon(self._often, world, client, self._take_over, name="take over")
            nursery.start_soon(self._often, world, client, self._follow, name="follow")
            nursery.start_soon(self._often, world, client, self._delete, name="delete")

    async def _often(
        self, world: World, client: LedgerClient, work: Callable[[World, LedgerClient], Awaitable[None]]
    ) -> None:
        while not self.story.finished:
            try:
                await work(world, client)
            except (LedgerError, MetadataError) as error:
                self.story.tell(self.name, "Failed", work=work.__name__[1:], error=f"{type(error).__name__}: {error}")
            await trio.sleep(world.rng.uniform(0.02, 0.5))

    # --- a writer

    async def _write(self, world: World, client: LedgerClient) -> None:
        """Write one ledger: create, fill, and close or abandon it."""
        rng = world.rng
        ensemble_size, write_quorum, ack_quorum = rng.choice(self.story.swarm.quorums)
        writer = await client.create(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=rng.choice(DIGESTS[:3] if self.story.flips else DIGESTS),
            password=PASSWORD,
        )
        history = self.story.checker.created(writer.ledger_id, self.name)
        self.story.tell(
            self.name, "LedgerCreated", ledger=writer.ledger_id, ensemble=writer.metadata.fragments[0].bookies
        )
        await self._fill(rng, writer, history)
        if writer.error is not None:
            self.story.tell(self.name, "WriterFailed", ledger=writer.ledger_id, error=str(writer.error))
        elif rng.random() < 0.5:
            await writer.close()
            self.story.tell(self.name, "WriterClosed", ledger=writer.ledger_id, last=writer.last_confirmed)
        else:
            self.story.tell(self.name, "WriterLeft", ledger=writer.ledger_id, lap=writer.last_pushed)

    async def _fill(self, rng: random.Random, writer: LedgerWriter, history: LedgerHistory) -> None:
        story = self.story
        swarm = story.swarm
        moved = trio.Event()

        def confirmed(first: int, last: int) -> None:
            nonlocal moved
            story.tell(self.name, "EntriesConfirmed", ledger=writer.ledger_id, first=first, last=last)
            story.checker.confirmed(history, first, last)
            moved.set()
            moved = trio.Event()

        def failed(error: LedgerError) -> None:
            moved.set()

        writer.on_confirmed = confirmed
        writer.on_failed = failed
        wanted = rng.randint(*swarm.entries)
        while history.lap + 1 < wanted and writer.error is None and not story.finished:
            if history.lap - history.confirmed >= swarm.window:
                waiting = moved
                with trio.move_on_after(1.0):
                    await waiting.wait()
                continue
            first = history.lap + 1
            payloads = [
                message(self.name, first + number, rng.choice(swarm.sizes)) for number in range(rng.choice(swarm.runs))
            ]
            history.payloads += payloads
            try:
                writer.append(payloads)
            except LedgerError:
                del history.payloads[first:]
                return
            story.tell(self.name, "EntriesSent", ledger=writer.ledger_id, first=first, last=history.lap)
            await trio.sleep(rng.uniform(0, swarm.pace_s) if story.wants_more else rng.uniform(0.1, 0.5))
        if writer.error is None and rng.random() < 0.8:
            with trio.move_on_after(rng.uniform(0, 3)), story.ignoring_errors():
                await writer.wait_confirmed(history.lap)

    # --- takeover

    async def _take_over(self, world: World, client: LedgerClient) -> None:
        """Recover a ledger, perhaps one being written, perhaps concurrently with others, and read all of it."""
        rng = world.rng
        await trio.sleep(rng.uniform(0, 0.5))
        history = self.story.choose_open(rng)
        if history is not None:
            await self._recover(client, history)

    async def _recover(self, client: LedgerClient, history: LedgerHistory) -> None:
        story = self.story
        ledger_id = history.ledger_id
        story.tell(self.name, "RecoveryBegan", ledger=ledger_id)
        history.recoveries += 1
        reader = await client.open(ledger_id, password=PASSWORD, recover=True)
        story.tell(self.name, "RecoveryEnded", ledger=ledger_id, last=reader.last_entry_id)
        story.recoveries += 1
        story.checker.lac_seen(history, -1, reader.last_entry_id)
        await self.read_all(reader, history)

    async def read_all(self, reader: LedgerReader, history: LedgerHistory) -> int:
        """Read every entry up to the LAC and compare; return how many. Raises LedgerError."""
        first = 0
        while first <= reader.last_entry_id:
            payloads = await reader.read(first, reader.last_entry_id, size_max=1 << 20)
            self.story.checker.entries_read(history, first, payloads)
            first += len(payloads)
        return first

    # --- readers

    async def _follow(self, world: World, client: LedgerClient) -> None:
        """Follow a ledger without taking it over, from some entry, for a while."""
        rng = world.rng
        history = self.story.choose_any(rng)
        if history is None:
            return
        ledger_id = history.ledger_id
        checker = self.story.checker
        reader = await client.open(ledger_id, password=PASSWORD, recover=False)
        known = reader.last_entry_id
        checker.lac_seen(history, -1, known)
        first = rng.choice((0, max(0, known - 3), known + 1))
        try:
            with trio.move_on_after(rng.uniform(0.05, 2.0)):
                async with _closing(reader.tail(first)) as entries:
                    async for entry_id, payload in entries:
                        checker.entries_read(history, entry_id, [payload])
                        checker.lac_seen(history, max(known, entry_id), reader.last_entry_id)
                        known = reader.last_entry_id
                        self.story.followed += 1
            if rng.random() < 0.5:
                lac = await reader.read_last_confirmed()
                checker.lac_seen(history, known, lac)
                await self.read_all(reader, history)
        finally:
            reader.close()

    # --- deletion

    async def _delete(self, world: World, client: LedgerClient) -> None:
        """Delete a closed ledger now and then."""
        await trio.sleep(world.rng.uniform(0.5, 3.0))
        history = self.story.choose_closed(world.rng)
        if history is not None and not self.story.finished and world.rng.random() < 0.3:
            history.deleted = True
            self.story.tell(self.name, "LedgerDeleted", ledger=history.ledger_id)
            await client.delete(history.ledger_id)

    async def finish(self, client: LedgerClient) -> None:
        """Close and read every ledger of the healed cluster, and write another one."""
        done: dict[int, None] = {}
        histories = self.story.checker.histories
        while left := [each for each in histories.values() if not each.deleted and each.ledger_id not in done]:
            for history in left:
                await self._until_done(partial(self._recover, client, history), history)
                done[history.ledger_id] = None
            await trio.sleep(1.0)  # writers that were just making one have made it
        await self._until_done(partial(self._write_last, client))

    async def _write_last(self, client: LedgerClient) -> None:
        ensemble_size, write_quorum, ack_quorum = self.story.swarm.quorums[0]
        writer = await client.create(
            ensemble_size=ensemble_size, write_quorum=write_quorum, ack_quorum=ack_quorum, password=PASSWORD
        )
        history = self.story.checker.created(writer.ledger_id, self.name)
        writer.on_confirmed = partial(self.story.checker.confirmed, history)
        history.payloads += [message(self.name, number) for number in range(5)]
        writer.append(history.payloads)
        await writer.wait_confirmed(4)
        await writer.close()

    async def _until_done(self, work: Callable[[], Awaitable[None]], history: LedgerHistory | None = None) -> None:
        while history is None or not history.deleted:
            try:
                await work()
                return
            except (LedgerError, MetadataError) as error:
                self.story.tell(self.name, "Failed", work="finish", error=f"{type(error).__name__}: {error}")
                await trio.sleep(0.5)


@asynccontextmanager
async def _closing(
    entries: AsyncIterator[tuple[int, memoryview]],
) -> AsyncIterator[AsyncIterator[tuple[int, memoryview]]]:
    """Close a generator at the end, at a time drawn from the seed."""
    try:
        yield entries
    finally:
        await entries.aclose()  # type: ignore[attr-defined]
