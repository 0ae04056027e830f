"""Live ledgers according to the cluster's metadata: the ledgers that garbage collection must keep.

A wrong answer loses entries, so four rules guard it: the store must be this cluster's, the layout of its ledgers is
read and not assumed, the metadata read is no older than the local snapshot, and each ledger that seems deleted is
looked up once more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol, runtime_checkable

import trio

from bookie.db_ledger_storage.compaction.throttle import CopyThrottle
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import CookieMismatchError
from bookie.gc.limited_store import LimitedStore
from quire.metadata.errors import MetadataError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import LedgerManager, Random, read_instance_id, read_layout
from quire.metadata.store import MetadataStore

LOOKS_TOGETHER: Final = 16
"""Ledgers that are looked up at the same time: one after the other, the way to the metadata store would be most of a
round in which many ledgers are deleted."""


@runtime_checkable
class _Lagging(Protocol):
    """Metadata store whose servers may lag."""

    async def sync(self) -> None:
        """Wait so that later reads see everything written before this call."""


async def ledgers_of(
    metadata: MetadataStore, *, root: str, instance_id: str, rng: Random, throttle: CopyThrottle
) -> LedgerManager:
    """Return the cluster's ledgers, as new as now. CookieMismatchError, MetadataError."""
    if isinstance(metadata, _Lagging):
        await metadata.sync()
    store = LimitedStore(metadata, throttle)
    # The metadata of another cluster, an empty store or another layout would make every ledger look deleted.
    if await read_instance_id(store, root) != instance_id:
        raise CookieMismatchError(f"the metadata store is not that of cluster {instance_id}: nothing is collected")
    layout = await read_layout(store, root)
    return LedgerManager(store, ids=SequenceLedgerIds(store, root), rng=rng, root=root, layout=layout)


async def collect_garbage(
    storage: DbLedgerStorage,
    manager: Callable[[], Awaitable[LedgerManager]],
    *,
    settle: Callable[[], Awaitable[None]],
) -> Collected:
    """Delete data of deleted ledgers; `manager` calls `ledgers_of`, and `settle` makes a checkpoint.

    MetadataError, OSError, BookieError: nothing or only a part was deleted.
    """

    async def live_ledgers() -> AsyncGenerator[int, None]:
        async with aclosing((await manager()).ledger_ids()) as ledger_ids:
            async for ledger_id in ledger_ids:
                yield ledger_id

    async def are_gone(ledgers: list[int]) -> list[int]:
        ledgers_now = await manager()
        left = iter(ledgers)
        gone: list[int] = []
        failed: list[MetadataError] = []

        async def look() -> None:
            for ledger_id in left:
                try:
                    if await ledgers_now.read(ledger_id) is None:
                        gone.append(ledger_id)
                except MetadataError as error:
                    failed.append(error)
                if failed:
                    return

        async with trio.open_nursery() as nursery:
            for _ in range(min(len(ledgers), LOOKS_TOGETHER)):
                nursery.start_soon(look)
        if failed:
            raise failed[0]
        return sorted(gone)

    return await storage.collect_garbage(live_ledgers, are_gone, settle)
