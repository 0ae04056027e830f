"""Metadata of all ledgers in the store.

<root>/LAYOUT, INSTANCEID, available/, available/readonly/         created by `initialize_layout`
<root>/00/0000/L0000                                               a ledger; path: `layouts`, value: `ledger_codec`
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

import trio

from quire.metadata import ledger_codec, paths, unacked, update_loop
from quire.metadata.errors import (
    MalformedMetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnsupportedLayoutError,
)
from quire.metadata.layouts import HIERARCHICAL, LAYOUTS, LedgerLayout, decode_layout
from quire.metadata.ledger_ids import BlockLedgerIds, LedgerIds, SequenceLedgerIds
from quire.metadata.ledger_metadata import NO_ENTRY, Fragment, LedgerMetadata, LedgerState
from quire.metadata.restoring import check_not_restoring
from quire.metadata.store import ANY_VERSION, Create, MetadataStore, Node, Op, Versioned, Watch

__all__ = [
    "LAYOUTS",
    "NO_ENTRY",
    "BlockLedgerIds",
    "Fragment",
    "LedgerIds",
    "LedgerLayout",
    "LedgerManager",
    "LedgerMetadata",
    "LedgerState",
    "SequenceLedgerIds",
    "initialize_layout",
    "ledger_path",
    "read_instance_id",
    "read_layout",
]


NAMES_IN_STEP: Final = 500
"""Ids of one folder after which other tasks may run: a folder has up to 10,000."""


class Random(Protocol):
    """The part of `World.rng` used here."""

    def getrandbits(self, k: int, /) -> int: ...


def ledger_path(root: str, ledger_id: int) -> str:
    """Return the path of a ledger's metadata in the default layout, the hierarchical one.

    >>> ledger_path("/ledgers", 12345), ledger_path("/ledgers", 5_000_000_000)
    ('/ledgers/00/0001/L2345', '/ledgers/000/0000/0050/0000/L0000')
    """
    return HIERARCHICAL.path(root, ledger_id)


async def initialize_layout(
    store: MetadataStore, root: str = "/ledgers", *, rng: Random, layout: LedgerLayout = HIERARCHICAL
) -> str:
    """Create the nodes of a cluster under `root`, in one write, if they do not exist; return the instance id, a UUID.

    UnsupportedLayoutError if `root` has another layout of ledgers; RestoreRefusedError while a backup is being
    restored.
    """
    await check_not_restoring(store)
    while True:
        found = await store.get(paths.join(root, "LAYOUT"))
        if found is not None:
            if found.value != layout.value:
                raise UnsupportedLayoutError(
                    f"{root} has another layout of ledgers than the {layout.name} one: {found.value!r}"
                )
            return await read_instance_id(store, root)
        instance_id = new_instance_id(rng)
        ops: list[Op] = [
            Create(path=paths.join(root, "INSTANCEID"), value=instance_id.encode(), make_parents=True),
            Create(path=paths.join(root, "available/readonly"), make_parents=True),
            Create(path=paths.join(root, "LAYOUT"), value=layout.value),
        ]
        try:
            await store.multi(ops)
        except NodeExistsError as error:
            if await store.get(paths.join(root, "LAYOUT")) is None:
                raise UnsupportedLayoutError(f"{root} was begun by others and never finished: {error}") from error
            continue
        return instance_id


def new_instance_id(rng: Random) -> str:
    """Return a random UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


async def read_layout(store: MetadataStore, root: str = "/ledgers") -> LedgerLayout:
    """Return the layout of ledgers under `root`; NoNodeError if none is stored, UnsupportedLayoutError."""
    path = paths.join(root, "LAYOUT")
    node = await store.get(path)
    if node is None:
        await check_not_restoring(store)
        raise NoNodeError(f"there is no node {path}: the cluster was never initialised")
    return decode_layout(root, node.value)


async def ensure_layout(store: MetadataStore, root: str = "/ledgers", wanted: LedgerLayout | None = None) -> None:
    """Store the layout of ledgers on a cluster that was initialised and never used; NoNodeError if it was not
    initialised. UnsupportedLayoutError if it has another one than is `wanted`.

    Source: the original's bookies, clients and auto recovery write LAYOUT when they find none; its cluster set-up does
    not.
    """
    found = await store.get(paths.join(root, "LAYOUT"))
    if found is not None:
        if wanted is not None and found.value != wanted.value:
            raise UnsupportedLayoutError(f"{root} has another layout than the {wanted.name} one: {found.value!r}")
        return
    await check_not_restoring(store)
    await read_instance_id(store, root)
    try:
        await store.create(paths.join(root, "LAYOUT"), (wanted or HIERARCHICAL).value)
    except NodeExistsError:
        return  # another process stored it between the two calls


async def read_instance_id(store: MetadataStore, root: str = "/ledgers") -> str:
    """Return the UUID of the cluster; NoNodeError if there is none."""
    path = paths.join(root, "INSTANCEID")
    node = await store.get(path)
    if node is None:
        await check_not_restoring(store)
        raise NoNodeError(f"there is no node {path}: the cluster was never initialised")
    try:
        return node.value.decode("ascii")
    except UnicodeDecodeError as error:
        raise MalformedMetadataError(f"{path} does not contain an instance id: {node.value!r}") from error


def _no_ops(ledger_id: int) -> Sequence[Op]:
    return ()


class LedgerManager:
    """Creates, reads, changes, deletes and lists the metadata of ledgers."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        ids: LedgerIds,
        rng: Random,
        root: str = "/ledgers",
        layout: LedgerLayout = HIERARCHICAL,
    ) -> None:
        self._store = store
        self._ids = ids
        self._rng = rng
        self.root = root
        self.layout = layout

    def path(self, ledger_id: int) -> str:
        return self.layout.path(self.root, ledger_id)

    async def create(
        self, metadata: LedgerMetadata, *, also: Callable[[int], Sequence[Op]] = _no_ops
    ) -> tuple[int, int]:
        """Give `metadata` an id and store it; return the id and the node's version.

        The ops that `also` returns for the id are stored in the same write, all or nothing; their failures have an
        `.index` above 0. If the store's answer is lost, the ledger is recognised by its random token.
        MetadataUnavailableError: the outcome is unknown, and at worst an empty ledger is left over.
        """
        token = self._token()
        while True:
            ledger_id = await self._ids.next_id()
            path = self.path(ledger_id)
            value = ledger_codec.encode(metadata, token=token)
            try:
                await self._store.multi([Create(path=path, value=value, make_parents=True), *also(ledger_id)])
                return ledger_id, 0
            except NodeExistsError as error:
                if error.index:
                    raise
                found = await self._version_if_mine(path, token)
                if found is not None:
                    return ledger_id, found
                # This id was chosen explicitly for another ledger: take the next one.
            except MetadataUnavailableError:
                found = await self._version_if_mine(path, token)
                if found is None:
                    raise
                return ledger_id, found

    async def read(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Read a ledger's metadata; None if there is no such ledger. MalformedMetadataError, UnsupportedLayoutError."""
        node = await self._store.get(self.path(ledger_id))
        return None if node is None else _versioned(node)

    async def read_or_end(self, ledger_id: int) -> tuple[int, int] | Versioned[LedgerMetadata] | None:
        """Return the last entry and the payload bytes of a closed ledger, if these are quickly found; otherwise as
        `read`."""
        node = await self._store.get(self.path(ledger_id))
        if node is None:
            return None
        return ledger_codec.closed_end(node.value) or _versioned(node)

    async def write(self, ledger_id: int, metadata: LedgerMetadata, version: int) -> int:
        """Compare and set; return the new version. BadVersionError, NoNodeError."""
        return await self._store.put(self.path(ledger_id), ledger_codec.encode(metadata), version)

    async def update(
        self,
        ledger_id: int,
        change: Callable[[LedgerMetadata], LedgerMetadata | None],
        known: Versioned[LedgerMetadata] | None = None,
    ) -> Versioned[LedgerMetadata]:
        """Read, change, compare-and-set until it succeeds; see `update_loop.update`.

        `known`: the value believed to be stored; the compare-and-set verifies it. NoNodeError.
        """

        async def read() -> Versioned[LedgerMetadata] | None:
            nonlocal known
            found, known = known, None
            return await self.read(ledger_id) if found is None else found

        async def write(metadata: LedgerMetadata, version: int) -> int:
            return await self.write(ledger_id, metadata, version)

        return await update_loop.update(read, change, write)

    async def delete(self, ledger_id: int, version: int = ANY_VERSION) -> None:
        """Delete a ledger's metadata and the folders left empty by it; no effect if it is gone. BadVersionError."""
        path = self.path(ledger_id)
        try:
            await self._store.delete(path, version)
        except NoNodeError:
            return
        try:
            while (path := paths.parent(path)) != self.root:
                await self._store.delete(path)
        except (NoNodeError, NotEmptyError):
            return

    async def note_unacked(self, ledger_id: int, before: int) -> None:
        """Request that auto recovery check the copies of entries before `before`; unacked.WHOLE for all.

        MetadataError.
        """
        await unacked.write(self._store, self.root, ledger_id, before)

    async def withdraw_unacked(self, ledger_id: int) -> None:
        """Withdraw that request, if it was the only one: the copies have arrived. MetadataError."""
        await unacked.withdraw(self._store, self.root, ledger_id)

    def watch(self, ledger_id: int) -> Watch:
        return self._store.watch(self.path(ledger_id))

    async def ledger_ids(self, first: int = 0) -> AsyncGenerator[int, None]:
        """Yield every id from `first` on, ascending.

        Ledgers created or deleted in the meantime may be included or not. A caller that leaves early closes the
        generator (`aclosing`).
        """
        for widths in self.layout.trees:
            async with aclosing(self._walk(self.root, widths, 0, max(first, 0))) as found:
                async for ledger_id in found:
                    yield ledger_id

    async def _walk(self, folder: str, widths: tuple[int, ...], prefix: int, first: int) -> AsyncGenerator[int, None]:
        """Yield ids >= `first` below `folder`, whose path so far gives the digits `prefix`."""
        width, rest = widths[0], widths[1:]
        letter = "" if rest else "L"
        unit = 10 ** sum(rest)
        try:
            names = await self._store.children(folder)
        except NoNodeError:
            return
        for count, name in enumerate(names):
            if count % NAMES_IN_STEP == NAMES_IN_STEP - 1:
                await trio.lowlevel.checkpoint()
            digits = name.removeprefix(letter)
            if len(name) != len(letter) + width or len(digits) != width or not (digits.isascii() and digits.isdigit()):
                continue
            number = prefix * 10**width + int(digits)
            if (number + 1) * unit <= first:
                continue
            if not rest:
                yield number
                continue
            async with aclosing(self._walk(paths.join(folder, name), rest, number, first)) as found:
                async for ledger_id in found:
                    yield ledger_id

    def _token(self) -> int:
        """Return a random number that is never NO_TOKEN; signed, 64 bits."""
        return self._rng.getrandbits(63) or 1

    async def _version_if_mine(self, path: str, token: int) -> int | None:
        """Return the version of the ledger at `path`, if it was created with `token`."""
        node = await self._store.get(path)
        if node is None:
            return None
        return node.version if ledger_codec.decode_with_token(node.value)[1] == token else None


def _versioned(node: Node) -> Versioned[LedgerMetadata]:
    return Versioned(ledger_codec.decode(node.value), node.version, node.modified_ms)
