"""A backup of metadata, written into an empty store.

    1. /quire-restoring    the mark, with the name of the backup; only in a store without other nodes
    2. every node but the last ones, parents first
    3. sequences are advanced behind the numbers that were given
    4. the last ones, without which no server starts: /ledgers/INSTANCEID, /ledgers/LAYOUT, /admin/clusters/...; in the
       same write the mark is deleted

So after a crash at any moment the store has the mark, servers refuse it (`check_not_restoring`), and the same backup
continues: nodes that are there with the same value are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quire.metadata import paths
from quire.metadata.errors import MetadataError, NodeExistsError
from quire.metadata.store import Create, Delete, Kind, MetadataStore, Op
from quire.metadata.walking import RESTORING, take_number

AT_ONCE: Final = 200
"""Nodes in one write."""
BYTES_AT_ONCE: Final = 500_000
"""Bytes of the values in one write: ZooKeeper refuses a million (jute.maxbuffer)."""
NUMBERS_MAX: Final = 200_000
"""Numbers of a sequence that are used up one by one; ledger ids above it go on in the next bucket of 2^32."""
_LAST: Final = ("/admin/clusters/", "/ledgers/INSTANCEID", "/ledgers/LAYOUT")
_STORES_OWN: Final = frozenset(("zookeeper",))


class RestoreRefusedError(MetadataError):
    """The store is not empty, has another backup half restored, or differs. Nothing was changed. Give an empty store;
    its text says what is there."""


async def check_not_restoring(store: MetadataStore) -> None:
    """Raise RestoreRefusedError if a backup is being restored into the store: it has a part of its nodes."""
    node = await store.get(RESTORING)
    if node is not None:
        raise RestoreRefusedError(
            f"the metadata have a half restored backup ({node.value.decode(errors='replace')[:80]}): "
            "run the same `quire admin restore cluster` again"
        )


class MetadataRestore:
    """Restoration of one backup. Call `begin`, `put` with the nodes in their order, and `end`."""

    def __init__(self, store: MetadataStore, backup: str) -> None:
        """`backup`: its name, the same at each try."""
        self._store = store
        self._backup = backup.encode()
        self._ops: list[Create] = []
        self._bytes = 0
        self._last: list[Create] = []
        self.restored = 0
        """Nodes that were created, those of the last step not included."""

    async def begin(self) -> bool:
        """Set the mark; return whether it was set before. Raises RestoreRefusedError, MetadataError."""
        store = self._store
        node = await store.get(RESTORING)
        if node is not None:
            if node.value != self._backup:
                raise RestoreRefusedError(
                    f"{RESTORING} names another backup, {node.value.decode(errors='replace')[:80]}: "
                    "restore that one, or give an empty store"
                )
            return True
        there = [name for name in await store.children(paths.ROOT) if name not in _STORES_OWN]
        if there:
            raise RestoreRefusedError(f"the store is not empty: it has /{there[0]}; give an empty one")
        await store.create(RESTORING, self._backup)
        return False

    async def put(self, path: str, value: bytes) -> None:
        """Create a node, or some of those given before. Raises RestoreRefusedError if it is there with another
        value."""
        made = Create(paths.check(path), value)
        if path.startswith(_LAST):
            self._last.append(made)
            return
        self._ops.append(made)
        self._bytes += len(path) + len(value)
        if len(self._ops) >= AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            await self._write()

    async def _write(self) -> None:
        ops, self._ops, self._bytes = self._ops, [], 0
        if not ops:
            return
        try:
            await self._store.multi(ops)
        except NodeExistsError:
            for each in ops:
                await self._put_one(each)
        self.restored += len(ops)

    async def _put_one(self, op: Create) -> None:
        node = await self._store.get(op.path)
        if node is None:
            await self._store.create(op.path, op.value)
        elif node.value != op.value:
            raise RestoreRefusedError(f"{op.path} has another value than in the backup: a server writes to this store")

    async def end(self, sequences: Mapping[str, int]) -> None:
        """Advance the sequences, and create the nodes that servers wait for."""
        await self._write()
        for prefix, number in sequences.items():
            await self._advance(prefix, number)
        await self._store.multi([*self._last, Delete(RESTORING)])

    async def _advance(self, prefix: str, number: int) -> None:
        """Make a sequence continue behind a number."""
        if number > NUMBERS_MAX and prefix.endswith("/idgen/ID-"):
            folder = f"{paths.parent(paths.parent(prefix))}/idgen-long"
            if await self._store.get(folder) is None:
                await self._store.create(f"{folder}/HOB-{1:010d}", make_parents=True)
            return
        if number > NUMBERS_MAX and "/idgen-long/" in prefix:
            folder = paths.parent(paths.parent(prefix))
            bucket = int(paths.name(paths.parent(prefix)).removeprefix("HOB-")) + 1
            if await self._store.get(f"{folder}/HOB-{bucket:010d}") is None:
                await self._store.create(f"{folder}/HOB-{bucket:010d}")
            return
        reached = await take_number(self._store, prefix)
        while reached < number:
            count = min(AT_ONCE, number - reached)
            ops: Sequence[Op] = [Create(prefix, kind=Kind.EPHEMERAL, sequential=True) for _ in range(count)]
            made = await self._store.multi(ops)
            await self._store.multi([Delete(path) for path in made])
            reached = int(made[-1][len(prefix) :])
