"""Rate of the requests that garbage collection makes to the metadata store (gcMetadataOpRateLimit).

Source: BookKeeper's ScanAndCompareGarbageCollector, which takes one permit for each list and each read.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from bookie.db_ledger_storage.compaction.throttle import CopyThrottle
from quire.metadata.store import ANY_VERSION, Kind, MetadataStore, Node, Op, Watch


class LimitedStore:
    """A metadata store whose reads and lists wait for their turn. Calls of several tasks share the rate."""

    def __init__(self, store: MetadataStore, throttle: CopyThrottle) -> None:
        self._store = store
        self._throttle = throttle

    async def _turn(self) -> None:
        await trio.sleep(self._throttle.delay(trio.current_time(), 1))

    @property
    def expired(self) -> trio.Event:
        return self._store.expired

    async def get(self, path: str) -> Node | None:
        await self._turn()
        return await self._store.get(path)

    async def children(self, path: str) -> list[str]:
        await self._turn()
        return await self._store.children(path)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        await self._turn()
        return await self._store.create(path, value, kind=kind, sequential=sequential, make_parents=make_parents)

    async def put(self, path: str, value: bytes, version: int) -> int:
        await self._turn()
        return await self._store.put(path, value, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._turn()
        await self._store.delete(path, version)

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        await self._turn()
        return await self._store.multi(ops)

    def watch(self, path: str) -> Watch:
        return self._store.watch(path)

    async def aclose(self) -> None:
        """Leave the store open: it belongs to others."""
