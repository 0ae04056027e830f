"""HolderChecks: what a bookie asks before it deletes a ledger that its metadata does not name it for any more.

Source of the lock: BookKeeper's ScanAndCompareGarbageCollector.removeOverReplicatedledgers; of the reads: none, it
does not look at copies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import trio

from autorecovery.fragments import LedgerFragment, fragments_of
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.metadata.ledgers import LedgerMetadata

READS_AT_ONCE = 4
"""Members that are asked at the same time, over all ledgers; each sends up to a megabyte at once."""


class HolderChecks:
    """Copies and marks of one cluster. Calls may overlap."""

    def __init__(self, checker: LedgerChecker, marks: UnderreplicatedLedgers) -> None:
        self._checker = checker
        self._marks = marks
        self._limit = trio.CapacityLimiter(READS_AT_ONCE)

    @asynccontextmanager
    async def hold(self, ledger_id: int) -> AsyncGenerator[bool, None]:
        """Hold the lock of a ledger within the block. Yield False if it is marked, or locked by a worker.

        MetadataError.
        """
        held = await self._marks.lock_unmarked(ledger_id)
        try:
            yield held
        finally:
            if held:
                await self._marks.unlock(ledger_id)

    async def lacking(self, ledger_id: int, metadata: LedgerMetadata, entry_ids: Sequence[int]) -> str:
        """Return why a copy of one of these entries (ascending) is not certain, "" if each member of the write set of
        each has sent a good one.
        """
        for fragment in fragments_of(ledger_id, metadata):
            wanted = [each for each in entry_ids if fragment.first <= each <= fragment.last]
            for index, bookie_id in enumerate(fragment.bookies):
                reason = await self._lacking_at(metadata, fragment, index, bookie_id, wanted)
                if reason:
                    return reason
        return ""

    async def _lacking_at(
        self, metadata: LedgerMetadata, fragment: LedgerFragment, index: int, bookie_id: str, entry_ids: Sequence[int]
    ) -> str:
        asked = [each for each in entry_ids if fragment.striping.stores(index, each)]
        if not asked:
            return ""
        registered = self._checker.registered()
        if registered is not None and bookie_id not in registered:
            return f"bookie {bookie_id} is not registered"
        async with self._limit:
            bad = await self._checker.copies(fragment.ledger_id, metadata).bad_copies(bookie_id, asked, count_max=1)
        return f"entry {bad[0].entry_id} at {bad[0].text}: {bad[0].fault.value}" if bad else ""
