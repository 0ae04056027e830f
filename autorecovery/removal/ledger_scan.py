"""All ledgers of a cluster, one after the other, with their metadata; and the bookies that have entries of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quire.ledger.striping import Striping
from quire.metadata.errors import MalformedMetadataError, UnsupportedLayoutError
from quire.metadata.ledgers import LedgerManager, LedgerMetadata, LedgerState
from quire.world.tasks import for_each

READS_AT_ONCE: Final = 64

Show = Callable[[int, LedgerMetadata | str | None], None]
"""Gets the id of a ledger, and its metadata; the error of unreadable metadata; or None for a deleted ledger."""


async def read_each(manager: LedgerManager, show: Show, examined: Callable[[int], None] = lambda count: None) -> None:
    """Call `show` for each ledger, in order of the ids, and `examined` with their number so far.

    Many are read concurrently. Raises MetadataError."""
    seen = 0
    waiting: list[int] = []

    async def read_waiting() -> None:
        nonlocal seen
        found: dict[int, LedgerMetadata | str | None] = {}

        async def read(ledger_id: int) -> None:
            try:
                stored = await manager.read(ledger_id)
                found[ledger_id] = None if stored is None else stored.value
            except (MalformedMetadataError, UnsupportedLayoutError) as error:
                found[ledger_id] = str(error)

        await for_each(waiting, read, at_once=READS_AT_ONCE, name="ledger metadata")
        for ledger_id in waiting:
            show(ledger_id, found[ledger_id])
        seen += len(waiting)
        waiting.clear()

    async for ledger_id in manager.ledger_ids():
        waiting.append(ledger_id)
        if len(waiting) == READS_AT_ONCE:
            await read_waiting()
            examined(seen)
    await read_waiting()


def has_entries_on(metadata: LedgerMetadata, bookie_id: str) -> bool:
    """Return whether the bookie has entries of the ledger, or may still get some.

    A member of an ensemble can have none: the ledger is closed and empty, or no write set of its few entries reaches
    it. Source: BookKeeperAdmin.areEntriesOfLedgerStoredInTheBookie.
    """
    striping = Striping(metadata.ensemble_size, metadata.write_quorum)
    followers = [each.first_entry_id for each in metadata.fragments[1:]]
    for fragment, stop in zip(metadata.fragments, [*followers, None], strict=True):
        if bookie_id not in fragment.bookies:
            continue
        if stop is None:
            if metadata.state is not LedgerState.CLOSED:
                return True
            stop = metadata.last_entry_id + 1
        if striping.stored_from(fragment.bookies.index(bookie_id), fragment.first_entry_id) < stop:
            return True
    return False
