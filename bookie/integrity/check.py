"""Second pass after a loss: each ledger in limbo gets back what it lacks, and leaves limbo.

    not closed                 recovered and closed by its other members; this bookie, in limbo, has no vote in that
    entries it should have     compared with the index; the missing ones are read from other members, verified, and put
                               into the write cache
    checkpoint                 what was copied is in entry log and index, durably
    limbo cleared              in the index; durable with the next checkpoint

Copied entries do not go through the journal: until the checkpoint the ledger is in limbo, so a crash costs only time.
A ledger that cannot be completed now stays in limbo and is tried again, at longer and longer intervals. A ledger of
which no member has an entry stays in limbo for good, also if all of them are in limbo: that entry is lost, which is an
ERROR in the log, and the bookie does not deny it.

Source: BookKeeper's DataIntegrityCheckImpl and DataIntegrityService. There, limbo ends before the copying, when the
ledger is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import Final

import trio

from bookie.bookie import Bookie
from bookie.errors import BookieError, DirectoryUnavailableError
from bookie.integrity.copying import Copier
from bookie.integrity.expected import batches, lacking
from bookie.integrity.peers import EntryLostError, OpenCopies, OtherCopies, PeerError
from bookie.integrity.progress import IntegrityProgress
from bookie.limbo.preboot import ledger_manager
from quire.metadata.errors import MalformedMetadataError, MetadataError, UnsupportedLayoutError
from quire.metadata.ledger_metadata import LedgerMetadata, LedgerState
from quire.metadata.ledgers import LedgerManager
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.world.backoff import Backoff
from quire.world.tasks import for_each

log = get_logger(__name__)

LEDGERS_AT_ONCE: Final = 8
SETTLED_TOGETHER: Final = 200
"""Ledgers that are copied before one checkpoint ends their limbo."""
BATCH: Final = 1000
"""Entries requested at once."""
BATCHES_PER_STEP: Final = 10
RETRY_FIRST_S: Final = 3.0
RETRY_MAX_S: Final = 60.0
STAYS: Final = (
    PeerError,
    EntryLostError,
    MalformedMetadataError,
    UnsupportedLayoutError,
    DirectoryUnavailableError,
)
"""Errors that keep one ledger in limbo, while the others go on."""


class DataIntegrity:
    """Check of one bookie's data. `peers`: opened while there is something to copy."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore, peers: OpenCopies) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._open_peers = peers
        self._limbo = bookie.storage.limbo
        self._copier = Copier(bookie)
        self.progress = IntegrityProgress()

    async def run(self) -> None:
        """Check until no ledger is in limbo. Restarted by its caller after an unforeseen error."""
        run = self._bookie.world.offload.run
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, self._bookie.world.rng)
        while True:
            try:
                if not self._limbo.ledgers() and not await run(self._limbo.needs_check, name="limbo"):
                    self.progress.running = False
                    return
                self.progress.running = True
                async with AsyncExitStack() as stack:
                    peers = await stack.enter_async_context(self._open_peers())
                    if await self._round(peers):
                        backoff.reset()
                if not self._limbo.ledgers():
                    await run(partial(self._limbo.set_needs_check, needed=False), name="limbo")
                    self.progress.running = False
                    log.info("data integrity check done, no ledger is in limbo", **self.progress.counts())
                    return
            except (MetadataError, BookieError, OSError) as error:
                self.progress.failed(str(error))
                log.warning("data integrity check interrupted, retrying", reason=str(error))
            await trio.sleep(backoff.next())

    async def _round(self, peers: OtherCopies) -> int:
        """Try every ledger in limbo once; return how many left it. MetadataError, BookieError, OSError."""
        waiting = self._limbo.ledgers()
        before = len(waiting)
        log.info("data integrity check", ledgers=before, copied=self.progress.entries)
        manager = await ledger_manager(self._metadata, self._bookie.world.rng, self._bookie.config.ledgers_root)
        reasons: list[str] = []
        rest = iter(waiting)
        while portion := list(islice(rest, SETTLED_TOGETHER)):
            settled: list[int] = []

            async def settle(ledger_id: int, add: Callable[[int], None] = settled.append) -> None:
                try:
                    if await self._settle_existing(manager, peers, ledger_id):
                        add(ledger_id)
                except STAYS as error:
                    self._stays(ledger_id, error)
                    reasons.append(f"ledger {ledger_id}: {error}")

            await for_each(portion, settle, at_once=LEDGERS_AT_ONCE, name="data integrity")
            await self._end_limbo(settled)
        in_limbo = self._limbo.ledgers()
        left = len(in_limbo)
        self.progress.keep_lost(frozenset(in_limbo))
        self.progress.round_done(reasons[0] if reasons else "")
        if left:
            log.info("ledgers stay in limbo for now", ledgers=left, for_example=reasons[0] if reasons else "")
        return before - left

    async def _end_limbo(self, ledgers: list[int]) -> None:
        """End the limbo of ledgers that have all their entries. Their entries become durable first.

        Those of a directory that cannot be used stay, because checkpoints leave it out.
        """
        if not ledgers:
            return
        await self._bookie.checkpoint()
        durable = [each for each in ledgers if self._bookie.is_usable(each)]
        for ledger_id in durable:
            self._limbo.clear(ledger_id)
        self.progress.ledgers += len(durable)
        await self._bookie.checkpoint()

    async def _settle_existing(self, manager: LedgerManager, peers: OtherCopies, ledger_id: int) -> bool:
        """As `_settle`; of a ledger that is deleted meanwhile nothing is lost, though its members drop it."""
        try:
            return await self._settle(manager, peers, ledger_id)
        except EntryLostError:
            if await _read(manager, ledger_id) is not None:
                raise
            return True

    async def _settle(self, manager: LedgerManager, peers: OtherCopies, ledger_id: int) -> bool:
        """Copy what the ledger lacks; return whether it has everything then. A deleted one is left to collection.

        PeerError, EntryLostError, MetadataError, OSError.
        """
        metadata = await _read(manager, ledger_id)
        if metadata is not None and metadata.state is not LedgerState.CLOSED:
            await peers.close_ledger(ledger_id, metadata)
            metadata = await _read(manager, ledger_id)
            self.progress.closed += 1
        if metadata is None:
            return True
        if metadata.state is not LedgerState.CLOSED:
            raise PeerError("it is not closed yet")
        reader = self._bookie.storage.reader
        bookie_id = self._bookie.config.id

        def absent(closed: LedgerMetadata = metadata) -> Iterator[list[int]]:
            return batches(lacking(closed, bookie_id, *reader.ranges(ledger_id)), BATCH)

        run = self._bookie.world.offload.run
        steps = await run(absent, name="data integrity")
        while portion := await run(lambda: list(islice(steps, BATCHES_PER_STEP)), name="data integrity"):
            for batch in portion:
                await self._copy(peers, ledger_id, metadata, batch)
        return True

    async def _copy(self, peers: OtherCopies, ledger_id: int, metadata: LedgerMetadata, batch: Sequence[int]) -> None:
        waiting = batch
        while waiting:
            found = await peers.read(ledger_id, metadata, waiting)
            size = await self._copier.store(ledger_id, found)
            self.progress.copied(len(found), size)
            waiting = [each for each in waiting if each not in found]

    def _stays(self, ledger_id: int, error: Exception) -> None:
        if isinstance(error, EntryLostError) and ledger_id not in self.progress.lost:
            self.progress.lost[ledger_id] = None
            log.error(
                "an entry is lost: no other member has it, its ledger stays in limbo",
                ledger=ledger_id,
                reason=str(error),
            )


async def _read(manager: LedgerManager, ledger_id: int) -> LedgerMetadata | None:
    stored = await manager.read(ledger_id)
    return None if stored is None else stored.value
