"""Where ledger ids come from. Ids start at 0 and are never given twice, but some may never be used."""

from __future__ import annotations

from typing import Protocol

import trio

from quire.metadata import paths
from quire.metadata.errors import MalformedMetadataError, MetadataError, NodeExistsError, NoNodeError
from quire.metadata.store import Kind, MetadataStore
from quire.metadata.update_loop import update_node

BLOCK_SIZE = 1000
SHORT_ID_LIMIT = (1 << 31) - 1
"""Ids below it have the short path, and come from the original's first sequence."""


class LedgerIds(Protocol):
    async def next_id(self) -> int:
        """An id that nobody got before. Raises what the store raises."""


class BlockLedgerIds:
    """For embedded stores: reserves ids in blocks by compare-and-set, so that a ledger costs no write for its id.

    The node `<root>/idgen` keeps the first id that is not reserved, as decimal text. What is left of a block when the
    process ends is never used.
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
        """Reserve a block; returns where it ends."""

        def reserve(value: bytes) -> bytes:
            if value and not value.isdigit():
                raise MalformedMetadataError(f"{self._path} keeps no ledger id: {value!r}")
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
    """The original's way, for stores shared with its clients: the number of an ephemeral sequential node.

    Ids from 2^31-1 on, for which the original changes to buckets under `idgen-long`, are refused.
    Source: BookKeeper's ZkLedgerIdGenerator.
    """

    def __init__(self, store: MetadataStore, root: str = "/ledgers") -> None:
        self._store = store
        self._prefix = paths.join(paths.join(root, "idgen"), "ID-")

    async def next_id(self) -> int:
        path = await self._store.create(self._prefix, kind=Kind.EPHEMERAL, sequential=True, make_parents=True)
        digits = path[len(self._prefix) :]
        try:
            # The number is ours from here on; the node goes with the session at the latest.
            await self._store.delete(path)
        except NoNodeError:
            pass
        if not digits.isdigit() or int(digits) >= SHORT_ID_LIMIT:
            raise MetadataError(f"the sequence of ledger ids is used up: {digits}")
        return int(digits)
