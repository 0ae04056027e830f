"""Collection of ledgers that this bookie holds and should not: their metadata names it in no fragment any more.

That happens when a bookie was away, its ledgers were copied to others, and it came back. What must never go is the
last good copy, or one that is just being made. So a ledger is deleted only if all of this holds:

    - it is CLOSED: an open one, or one in recovery, may change its ensemble to this bookie at any moment
    - no fragment names this bookie, before all checks and after them, at the same version
    - it is not marked as under-replicated, and no worker has its lock; we hold the lock meanwhile
    - nothing has written to it here for `QUIET_S`: a tool that copies without locks names the new member after that
    - of each entry that this bookie holds, every member of its write set has just sent a copy with a good digest

Source: BookKeeper's ScanAndCompareGarbageCollector.removeOverReplicatedledgers, which does not look at copies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

import trio

from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import BookieError, NoLedgerError
from quire.metadata.errors import MetadataError
from quire.metadata.ledgers import LedgerManager, LedgerMetadata, LedgerState
from quire.service.log import get_logger
from quire.world.doors import World
from quire.world.tasks import for_each

log = get_logger(__name__)

QUIET_S: Final = 30.0
"""Seconds without a write before a ledger may be deleted."""
ENTRIES_PER_STEP: Final = 5000
"""Entries whose copies are asked for in one call."""
LEDGERS_TOGETHER: Final = 1000
"""Candidates that are collected before they are checked."""


class OtherHolders(Protocol):
    """The other bookies and the marks of auto recovery, as the collection needs them."""

    def hold(self, ledger_id: int) -> AbstractAsyncContextManager[bool]:
        """Lock a ledger against auto recovery within the block. False: it is marked or locked. MetadataError."""

    async def lacking(self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]) -> str:
        """Return why a copy of one of these entries (ascending) is not certain, "" if each member of the write set of
        each has sent a good one.
        """


OpenPeers = Callable[[], AbstractAsyncContextManager[OtherHolders]]


def why_kept(metadata: LedgerMetadata | None, bookie_id: str) -> str:
    """Return why a ledger is not over-replicated here, "" if it may be. Pure."""
    if metadata is None:
        return "it has no metadata"  # deleted ledgers are found by the other search
    if metadata.state is not LedgerState.CLOSED:
        return f"it is {metadata.state.name}"
    if any(bookie_id in fragment.bookies for fragment in metadata.fragments):
        return "its metadata names this bookie"
    return ""


@dataclass(slots=True)
class OverreplicatedStats:
    """Counters of these collections."""

    rounds: int = 0
    deleted: int = 0
    kept: int = 0
    """Times that a ledger whose metadata does not name this bookie was kept all the same."""


class OverreplicatedLedgers:
    """The collection of one bookie. `at_once`: ledgers checked at the same time."""

    def __init__(
        self, world: World, bookie_id: str, open_peers: OpenPeers, *, at_once: int, stats: OverreplicatedStats
    ) -> None:
        self._offload = world.offload
        self._bookie_id = bookie_id
        self._open_peers = open_peers
        self._at_once = at_once
        self.stats = stats

    async def collect(self, storage: DbLedgerStorage, manager: LedgerManager) -> list[int]:
        """Delete such ledgers of one storage; return them. MetadataError, BookieError, OSError: a part was deleted."""
        deleted: list[int] = []
        failure: Exception | None = None
        async with AsyncExitStack() as stack:
            ranges = await stack.enter_async_context(aclosing(storage.upkeep.local_ledgers()))
            try:
                await self._search(storage, manager, ranges, stack, deleted)
            except (MetadataError, BookieError, OSError) as error:
                failure = error  # raised outside, so that no nursery of the connections wraps it
        self.stats.rounds += 1
        self.stats.deleted += len(deleted)
        storage.stats.deleted_ledgers += len(deleted)
        if failure is not None:
            raise failure
        return deleted

    async def _search(
        self,
        storage: DbLedgerStorage,
        manager: LedgerManager,
        ranges: AsyncGenerator[list[int], None],
        stack: AsyncExitStack,
        deleted: list[int],
    ) -> None:
        peers: OtherHolders | None = None
        candidates: list[int] = []
        ledgers: list[int] | None = []
        while ledgers is not None:
            ledgers = await anext(ranges, None)
            for ledger_id in ledgers or ():
                found = await manager.read(ledger_id)
                if found is not None and not why_kept(found.value, self._bookie_id):
                    candidates.append(ledger_id)
            if len(candidates) >= LEDGERS_TOGETHER or (candidates and ledgers is None):
                if peers is None:
                    peers = await stack.enter_async_context(self._open_peers())
                deleted += await self._check(storage, manager, peers, candidates)
                candidates = []

    async def _check(
        self, storage: DbLedgerStorage, manager: LedgerManager, peers: OtherHolders, candidates: Sequence[int]
    ) -> list[int]:
        deleted: list[int] = []

        async def check(ledger_id: int) -> None:
            try:
                async with peers.hold(ledger_id) as held:
                    if not held:
                        self._keep(ledger_id, "it is under replication")
                        return
                    confirm = partial(self._confirm, storage, manager, peers)
                    deleted.extend(await storage.delete_ledgers([ledger_id], confirm))
            except (MetadataError, OSError) as error:
                self._keep(ledger_id, str(error))

        await for_each(candidates, check, at_once=self._at_once, name="over-replicated ledger")
        return sorted(deleted)

    async def _confirm(
        self, storage: DbLedgerStorage, manager: LedgerManager, peers: OtherHolders, ledgers: list[int]
    ) -> list[int]:
        (ledger_id,) = ledgers
        await trio.sleep(QUIET_S)
        found = await manager.read(ledger_id)
        reason = why_kept(None if found is None else found.value, self._bookie_id)
        if not reason and found is not None:
            reason = await self._lacking(storage, peers, ledger_id, found.value)
            again = await manager.read(ledger_id)
            if not reason and (again is None or again.version != found.version):
                reason = "its metadata has changed meanwhile"
        if reason:
            self._keep(ledger_id, reason)
            return []
        log.info("ledger belongs to other bookies, which have all its copies; deleted here", ledger=ledger_id)
        return ledgers

    async def _lacking(
        self, storage: DbLedgerStorage, peers: OtherHolders, ledger_id: int, metadata: LedgerMetadata
    ) -> str:
        try:
            ids = await self._offload.run(partial(storage.reader.entry_ids, ledger_id), name="entries of a ledger")
        except NoLedgerError:
            return "it is unknown here, and has rows"
        step = partial(_some, ids, metadata.last_entry_id)
        while entry_ids := await self._offload.run(step, name="entries of a ledger"):
            if reason := await peers.lacking(ledger_id, metadata, entry_ids):
                return reason
        return ""

    def _keep(self, ledger_id: int, reason: str) -> None:
        self.stats.kept += 1
        log.info("ledger belongs to other bookies, kept here all the same", ledger=ledger_id, reason=reason)


def _some(ids: Iterator[int], last: int) -> list[int]:
    """Return the next entries up to the last one of the ledger; what is behind that was never acknowledged."""
    return [entry_id for entry_id in islice(ids, ENTRIES_PER_STEP) if entry_id <= last]
