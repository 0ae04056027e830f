"""Sources of ledger ids. Ids start at 0 and are never given twice, but some may never be used."""

from __future__ import annotations

from typing import Protocol

import trio

from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, MetadataError, NodeExistsError, NoNodeError
from quire.metadata.layouts import FLAT, HIERARCHICAL, SHORT_ID_LIMIT, LedgerLayout
from quire.metadata.store import Kind, MetadataStore
from quire.metadata.update_loop import update_node

BLOCK_SIZE = 1000


class LedgerIds(Protocol):
    async def next_id(self) -> int:
        """Return an id that was never returned before. Raises the errors of the store."""


class BlockLedgerIds:
    """Id source for embedded stores: reserves ids in blocks by compare-and-set, so that a ledger needs no write for its
    id.

    The node `<root>/idgen` keeps the first id that is not reserved, as decimal text. The rest of a block is never used
    after the process ends.
    """

    def __init__(self, store: MetadataStore, root: str = "/ledgers", *, block_size: int = BLOCK_SIZE) -> None:
        self._store = store
        self._path = paths.join(root, "idgen")
        self._block_size = block_size
        self._next = 0
        self._stop = 0
        self._lock = trio.Lock()

    async def next_id(self) -> int:
        if self._next == self._stop:
            async with self._lock:
                if self._next == self._stop:
                    stop = await self._reserve()
                    self._next, self._stop = stop - self._block_size, stop
        self._next += 1
        return self._next - 1

    async def _reserve(self) -> int:
        """Reserve a block; return where it ends."""

        def reserve(value: bytes) -> bytes:
            if value and not value.isdigit():
                raise MalformedMetadataError(f"{self._path} does not contain a ledger id: {value!r}")
            return b"%d" % (int(value or b"0") + self._block_size)

        while True:
            try:
                return int((await update_node(self._store, self._path, reserve)).value)
            except NoNodeError:
                try:
                    await self._store.create(self._path, make_parents=True)
                except NodeExistsError:
                    continue


class SequenceLedgerIds:
    """Id source for stores shared with the original's clients: the number of an ephemeral sequential node.

        <root>/idgen/ID-0000000000                        ids below 2^31-1; in the flat layout <root>/ID-0000000000
        <root>/idgen-long/HOB-0000000001/ID-0000000000    once those are used up: 2^32 times the bucket's number, plus
                                                          its sequence; when a bucket is full, the next one

    The flat layout has no buckets. Unlike in the original, buckets are never deleted: a client that still uses one
    would restart it at 0. Source: BookKeeper's ZkLedgerIdGenerator, LongZkLedgerIdGenerator.
    """

    def __init__(self, store: MetadataStore, root: str = "/ledgers", *, layout: LedgerLayout = HIERARCHICAL) -> None:
        self._store = store
        self._prefix = paths.join(paths.join(root, layout.id_folder) if layout.id_folder else root, "ID-")
        self._buckets = None if layout is FLAT else paths.join(root, "idgen-long")
        self._short_used_up: bool | None = None
        """True if ids already come from buckets; None: not looked up yet."""
        self._bucket: int | None = None
        """Newest bucket; None: to be looked up."""

    async def next_id(self) -> int:
        if self._short_used_up is None:
            self._short_used_up = self._buckets is not None and await self._store.get(self._buckets) is not None
        if not self._short_used_up:
            number = await self._take(self._prefix, make_parents=True)
            if number is not None:
                return number
            if self._buckets is None:
                raise MetadataError("the sequence of ledger ids is used up, and the flat layout has no other")
            await _ensure(self._store, self._buckets)
            self._short_used_up = True
        return await self._next_long_id()

    async def _next_long_id(self) -> int:
        assert self._buckets is not None, "the flat layout has no buckets"
        while True:
            bucket = self._bucket
            if bucket is None:
                bucket = self._bucket = await self._newest_bucket(self._buckets)
            try:
                number = await self._take(f"{_bucket_path(self._buckets, bucket)}/ID-", make_parents=False)
            except NoNodeError:
                # A client of the original has deleted the bucket as too old. Created again it would begin at 0.
                self._bucket = None
                continue
            if number is not None:
                return bucket << 32 | number
            await _ensure(self._store, _bucket_path(self._buckets, bucket + 1))
            self._bucket = None

    async def _newest_bucket(self, folder: str) -> int:
        while True:
            names = [name.removeprefix("HOB-") for name in await self._store.children(folder)]
            numbers = [int(name) for name in names if name.isascii() and name.isdigit()]
            if numbers:
                return max(numbers)
            await _ensure(self._store, _bucket_path(folder, 1))

    async def _take(self, prefix: str, *, make_parents: bool) -> int | None:
        """Return the next number of a sequence; None if it is used up."""
        path = await self._store.create(prefix, kind=Kind.EPHEMERAL, sequential=True, make_parents=make_parents)
        try:
            # The number is ours from here on; the node is deleted with the session at the latest.
            await self._store.delete(path)
        except NoNodeError:
            pass
        digits = path[len(prefix) :]
        # Above 2^31 ZooKeeper continues with negative numbers.
        return int(digits) if digits.isdigit() and int(digits) < SHORT_ID_LIMIT else None


def _bucket_path(folder: str, bucket: int) -> str:
    return f"{folder}/HOB-{bucket:010d}"


async def _ensure(store: MetadataStore, path: str) -> None:
    try:
        await store.create(path, make_parents=True)
    except NodeExistsError:
        pass  # another client was faster
