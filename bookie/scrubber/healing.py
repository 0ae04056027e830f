"""Healing of damaged entries: good copies from other bookies replace them.

    read from another member, verified by digest -> write cache -> checkpoint: the row points to the new copy
                                                      (with the good entries right before it, which are here)
    read once more from the new place            -> healed; compaction may empty the old log

Until the checkpoint the old row stays, so a crash costs only the copy: the damage is remembered, and tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from bookie.bookie import Bookie
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.integrity.copying import Copier
from bookie.integrity.peers import EntryLostError, OtherCopies, PeerError
from bookie.scrubber.rows import entries_before, still_damaged
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.wire.bookkeeper.entry import Digest

BATCH: Final = 100
"""Entries requested at once."""
BATCH_S: Final = 60.0
"""Seconds that the other members have for one request."""


class Healed(NamedTuple):
    """Entries that are good now, or gone; and why others are not, empty if all are."""

    entry_ids: list[int]
    reason: str


class Healer:
    """Writer of good copies over damaged entries of one bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie
        self._copier = Copier(bookie)
        self.bytes = 0
        """Bytes that were copied."""

    async def heal(
        self,
        peers: OtherCopies,
        storage: DbLedgerStorage,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest: Digest | None,
        entry_ids: Iterable[int],
    ) -> Healed:
        """Replace damaged entries that `storage` has of a ledger. OSError, BookieError: nothing is certain."""
        reason = ""
        wanted = sorted(entry_ids)
        damaged = set(wanted)
        run = self._bookie.world.offload.run
        for entry_id in wanted:
            before = await run(partial(entries_before, storage.parts, ledger_id, entry_id, digest), name="scrub")
            await self._copier.store(ledger_id, {each: before[each] for each in before if each not in damaged}, storage)
        for batch in batches(metadata, wanted, BATCH):
            try:
                await self._copy(peers, storage, ledger_id, metadata, batch)
            except (PeerError, EntryLostError):
                for entry_id in batch:  # one entry that is lost everywhere must not prevent the others
                    try:
                        await self._copy(peers, storage, ledger_id, metadata, [entry_id])
                    except (PeerError, EntryLostError) as error:
                        reason = reason or str(error)
        await self._bookie.checkpoint()
        good: list[int] = []
        for entry_id in wanted:
            look = partial(still_damaged, storage.parts, ledger_id, entry_id, digest)
            if not await run(look, name="scrub"):
                good.append(entry_id)
        return Healed(good, reason if len(good) < len(wanted) else "")

    async def _copy(
        self,
        peers: OtherCopies,
        storage: DbLedgerStorage,
        ledger_id: int,
        metadata: LedgerMetadata,
        entry_ids: Sequence[int],
    ) -> None:
        waiting = entry_ids
        while waiting:
            with trio.move_on_after(BATCH_S) as scope:
                found = await peers.read(ledger_id, metadata, waiting)
            if scope.cancelled_caught:
                raise PeerError(f"no other member answered within {BATCH_S:.0f} s")
            self.bytes += await self._copier.store(ledger_id, found, storage)
            waiting = [each for each in waiting if each not in found]


def batches(metadata: LedgerMetadata, entry_ids: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield ascending entries in lists of at most `size`, each of one fragment."""
    starts = [fragment.first_entry_id for fragment in metadata.fragments[1:]]
    batch: list[int] = []
    for entry_id in entry_ids:
        begins = False
        while starts and starts[0] <= entry_id:
            starts.pop(0)
            begins = True
        if batch and (begins or len(batch) >= size):
            yield batch
            batch = []
        batch.append(entry_id)
    if batch:
        yield batch
