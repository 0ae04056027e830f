"""KnownReader: reads entries of ledgers whose metadata the caller has, and that the caller knows to be confirmed.

It needs no metadata service, asks no bookie for the last add confirmed, and sends plain reads only: no ledger is
recovered, closed or fenced by it, so it may read beside a live writer. Every copy of an entry is tried, and each
payload was checked against its digest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from cachetools import LRUCache

from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.link_tcp import TcpLink
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.context import Afterwards, LedgerConfig, LedgerContext
from quire.ledger.errors import ClientClosedError
from quire.ledger.placement import random_placement
from quire.ledger.reading.entry_reads import SINGLE_READ_GUESS, EntryReads
from quire.ledger.striping import Striping
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, LedgerMetadata
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.wire.bookkeeper.entry import digest_of
from quire.world.doors import World

CONNECT_TIMEOUT_S = 5.0
"""Time for reaching a bookie. Shorter than a writer's: the next copy, or another way to read, is at hand."""
READ_TIMEOUT_S = 15.0
LEDGERS_MAX = 256
"""Ledgers of which it is remembered how they are read best."""
_TICKS_PER_TIMEOUT = 16

Connect = Callable[[World, trio.Nursery, str], BookieLink]


def connect_by_tcp(world: World, nursery: trio.Nursery, bookie_id: str) -> BookieLink:
    """Return a link to a bookie whose id is its address, `host:port`."""
    return TcpLink(world.network, nursery, bookie_id, faults=world.faults, connect_timeout_s=CONNECT_TIMEOUT_S)


class KnownReader:
    """Reads of known entries, over connections that all ledgers share. Open it with `open_known_reader`."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context
        self._reads: LRUCache[tuple[object, ...], EntryReads] = LRUCache(LEDGERS_MAX)

    async def read(
        self, ledger_id: int, metadata: LedgerMetadata, first: int, last: int, size_max: int
    ) -> list[memoryview]:
        """Read payloads of confirmed entries.

        Args:
            ledger_id: Id of the ledger.
            metadata: Its metadata, of any time after the entries were confirmed.
            first: First entry id.
            last: Last entry id, inclusive, which must be confirmed.
            size_max: Return at least one entry, and about this many bytes at most.

        Returns:
            Views of the payloads from `first` on, in order.

        Raises:
            ClientClosedError: The reader is closed.
            NoSuchEntryError: All bookies of the entry deny it: the ledger is deleted, or its entries have moved.
            DigestMismatchError: No copy could be read, and at least one was damaged.
            LedgerReadError: No copy of the entry could be read; a retry may help.
        """
        if self._context.bookies.closed:
            raise ClientClosedError("the reader of ledgers is closed")
        guess = metadata.length // (metadata.last_entry_id + 1) + 1 if metadata.length else SINGLE_READ_GUESS
        return await self._reads_of(ledger_id, metadata).read(metadata, first, last, size_max, size_guess=guess)

    def start(self, task: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that ends by itself, at the latest with the reader."""
        self._context.start(task, name)

    def _reads_of(self, ledger_id: int, metadata: LedgerMetadata) -> EntryReads:
        """Return the reads of a ledger, which remember whether its bookies know batch reads, and which one answers."""
        key = (ledger_id, metadata.digest_type, metadata.password, metadata.ensemble_size, metadata.write_quorum)
        reads: EntryReads | None = self._reads.get(key)
        if reads is None:
            digest = digest_of(metadata.digest_type, metadata.password)
            striping = Striping(metadata.ensemble_size, metadata.write_quorum)
            reads = self._reads[key] = EntryReads(self._context, ledger_id, digest, striping)
        return reads


@asynccontextmanager
async def open_known_reader(
    world: World, connect: Connect = connect_by_tcp, config: LedgerConfig | None = None
) -> AsyncIterator[KnownReader]:
    """Open a reader whose tasks end with the block. Errors of the block are raised unchanged, not in a group.

    Args:
        world: Doors to clock, network and random numbers.
        connect: Returns a link to a bookie; its tasks belong to the nursery.
        config: Limits of reads; None for the defaults.

    Returns:
        The reader, for `async with`.
    """
    config = config or LedgerConfig(read_timeout_s=READ_TIMEOUT_S)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        wheel = DeadlineWheel(config.read_timeout_s / _TICKS_PER_TIMEOUT, world.faults)
        afterwards = Afterwards(world.faults)

        def link(bookie_id: str) -> BookieLink:
            return connect(world, nursery, bookie_id)

        store = MemoryStore(MemoryTree())  # empty: nothing is looked up
        context = LedgerContext(
            ledgers=LedgerManager(store, ids=SequenceLedgerIds(store), rng=world.rng),
            bookies=BookieClient(link, wheel, config.read_timeout_s, protocol=config.protocol),
            placement=random_placement(list, world.rng),
            watcher=None,
            rng=world.rng,
            wheel=wheel,
            afterwards=afterwards,
            nursery=nursery,
            config=config,
            health=BookieHealth(config.reads.failure_memory_s),
            faults=world.faults,
        )
        nursery.start_soon(wheel.run, name="deadlines of reads")
        nursery.start_soon(afterwards.run, name="reports of reads")
        try:
            yield KnownReader(context)
        except Exception as error:
            failure = error
        finally:
            context.bookies.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
