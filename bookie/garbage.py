"""Which ledgers still exist, by the cluster's word: what garbage collection may not drop.

A wrong answer loses entries, so every way to one is closed: the store must be this cluster's, the layout of its ledgers is
read and not assumed, what is read is no older than the local snapshot, and each ledger that seems gone is looked for once more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, runtime_checkable

from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import CookieMismatchError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, Random, read_instance_id, read_layout
from quire.metadata.store import MetadataStore


@runtime_checkable
class _Lagging(Protocol):
    """A store whose servers may be behind."""

    async def sync(self) -> None:
        """What is read after it is no older than what anybody wrote before it."""


async def collect_garbage(
    storage: DbLedgerStorage,
    metadata: MetadataStore,
    *,
    root: str,
    instance_id: str,
    rng: Random,
    settle: Callable[[], Awaitable[None]],
) -> Collected:
    """Drop what belongs to deleted ledgers; `settle` makes a checkpoint. MetadataError, OSError, BookieError: nothing or a part was dropped."""

    async def manager() -> LedgerManager:
        if isinstance(metadata, _Lagging):
            await metadata.sync()
        # A store that is not this cluster's, or empty, would call every ledger deleted; so would another layout.
        if await read_instance_id(metadata, root) != instance_id:
            raise CookieMismatchError(f"the metadata store is not that of cluster {instance_id}: nothing is collected")
        layout = await read_layout(metadata, root)
        return LedgerManager(metadata, ids=SequenceLedgerIds(metadata, root), rng=rng, root=root, layout=layout)

    async def live_ledgers() -> AsyncIterator[int]:
        async for ledger_id in (await manager()).ledger_ids():
            yield ledger_id

    async def are_gone(ledgers: list[int]) -> list[int]:
        ledgers_now = await manager()
        return [ledger_id for ledger_id in ledgers if await ledgers_now.read(ledger_id) is None]

    return await storage.collect_garbage(live_ledgers, are_gone, settle)
