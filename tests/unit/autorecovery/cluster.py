"""A cluster in memory for tests of the auditor: bookies that start and end, ledgers, marks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import trio

from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.ledger.errors import NoSuchLedgerError
from quire.metadata import bookies
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.metadata.ledgers import LedgerManager, SequenceLedgerIds, initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import MetadataStore, Versioned

INFO = bookies.BookieServiceInfo(endpoints=(bookies.Endpoint(host="127.0.0.1", port=3181),))
EPOCH_MS = 1_795_258_634_733


def closed(*bookie_ids: str, last: int = 9, length: int = 1000) -> LedgerMetadata:
    """Return the metadata of a closed ledger with one fragment on these bookies."""
    return LedgerMetadata(
        ensemble_size=len(bookie_ids),
        write_quorum=len(bookie_ids),
        ack_quorum=1,
        fragments=(Fragment(0, bookie_ids),),
        state=LedgerState.CLOSED,
        last_entry_id=last,
        length=length,
    )


class Ledgers:
    """Ledger client for the auditor, over a store."""

    def __init__(self, manager: LedgerManager) -> None:
        self.manager = manager
        self.reads = 0
        self.before_read: Callable[[], Awaitable[None]] | None = None

    async def list_ledgers(self, first: int = 0) -> AsyncIterator[int]:
        async for ledger_id in self.manager.ledger_ids(first):
            yield ledger_id

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self.read_stored(ledger_id)).value

    async def read_stored(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        self.reads += 1
        if self.before_read is not None:
            await self.before_read()
        found = await self.manager.read(ledger_id)
        if found is None:
            raise NoSuchLedgerError(f"no ledger {ledger_id}")
        return found


class Cluster:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.rng = Random(5)
        self.ledgers = self.ledgers_of(self.store)
        self.marks = self.marks_of(self.store)
        self._bookies: dict[str, MemoryStore] = {}

    def wall_ms(self) -> int:
        return EPOCH_MS + int(trio.current_time() * 1000)

    def ledgers_of(self, store: MetadataStore) -> Ledgers:
        ids = SequenceLedgerIds(store, "/ledgers")
        return Ledgers(LedgerManager(store, ids=ids, rng=self.rng))

    def marks_of(self, store: MetadataStore) -> UnderreplicatedLedgers:
        return UnderreplicatedLedgers(store, rng=self.rng, wall_ms=self.wall_ms, owner="host")

    async def begin(self, *bookie_ids: str) -> None:
        await initialize_layout(self.store, rng=self.rng)
        for bookie_id in bookie_ids:
            await self.come(bookie_id)

    async def come(self, bookie_id: str, *, read_only: bool = False) -> None:
        """Register a bookie."""
        store = self._bookies.setdefault(bookie_id, MemoryStore(self.tree))
        await bookies.register(store, bookie_id, INFO, read_only=read_only)
        if await bookies.read_cookie(store, bookie_id) is None:
            made = bookies.Cookie(bookie_id=bookie_id, journal_directories=("/j",), ledger_directories=("/l",))
            await bookies.write_cookie(store, made, None)

    async def go(self, bookie_id: str) -> None:
        """Kill a bookie; its session ends at once."""
        self.tree.expire(self._bookies.pop(bookie_id).session)

    async def make(self, count: int, *bookie_ids: str) -> None:
        """Make so many closed ledgers on these bookies."""
        for _ in range(count):
            await self.ledger(closed(*bookie_ids))

    async def ledger(self, metadata: LedgerMetadata) -> int:
        return (await self.ledgers.manager.create(metadata))[0]

    async def marked(self) -> dict[int, tuple[str, ...]]:
        return {mark.ledger_id: mark.replicas async for mark in self.marks.list()}
