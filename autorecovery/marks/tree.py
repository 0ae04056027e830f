"""Tree of metadata nodes that hold the marks of under-replicated ledgers, with the locks beside it: paths, and watches
on changes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import ExitStack
from typing import Final

import trio

from autorecovery.at_once import first_change
from quire.metadata import marks as form
from quire.metadata import paths
from quire.metadata.errors import NodeExistsError, NoNodeError, NotEmptyError
from quire.metadata.store import ANY_VERSION, Create, MetadataStore, Node, Watch

WATCHES_MAX: Final = 1000
"""Folders watched at once while there is no work."""
UNWATCHED_S: Final = 10.0
"""Seconds between two searches if there are more folders than that."""


class MarkTree:
    """Tree of one cluster. MetadataError."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self.base = paths.join(root, "underreplication")
        self.layout = paths.join(self.base, "LAYOUT")
        self.ledgers = paths.join(self.base, "ledgers")
        self.locks = paths.join(self.base, "locks")
        self.disable = paths.join(self.base, "disable")
        self.delay = paths.join(self.base, "lostBookieRecoveryDelay")
        self._making = trio.Lock()
        self._made: set[str] = set()
        """Folders of the third level that existed a moment ago."""

    def mark_path(self, ledger_id: int) -> str:
        return "/".join([self.ledgers, *form.folder_names(ledger_id), form.node_name(ledger_id)])

    def lock_path(self, ledger_id: int) -> str:
        return paths.join(self.locks, form.node_name(ledger_id))

    async def mark(self, ledger_id: int) -> Node | None:
        """Return the path of a ledger's mark."""
        return await self._store.get(self.mark_path(ledger_id))

    async def create_mark(self, ledger_id: int, value: bytes) -> None:
        """Create a mark, usually in one call.

        NodeExistsError if there is one; NoNodeError if a folder was removed in the meantime: try again.
        """
        path = self.mark_path(ledger_id)
        folder = paths.parent(path)
        above = paths.parent(folder)
        if above not in self._made:
            async with self._making:  # (hundreds may arrive at once; one of them creates it)
                if above not in self._made:
                    await self.make(above)
                    self._made.add(above)
        try:
            await self._store.multi([Create(path=folder), Create(path=path, value=value)])
        except NoNodeError:
            self._made.discard(above)
            raise
        except NodeExistsError as error:
            if error.index:
                raise
            await self._store.create(path, value)  # (an original created the folder)

    async def make(self, path: str, value: bytes = b"") -> bool:
        """Create a node, and its parents; return False if it exists."""
        try:
            await self._store.create(path, value, make_parents=True)
        except NodeExistsError:
            return False
        return True

    async def put(self, path: str, value: bytes) -> None:
        """Set the value of a node, or create it; the last writer wins."""
        while True:
            try:
                await self._store.put(path, value, ANY_VERSION)
                return
            except NoNodeError:
                if await self.make(path, value):
                    return

    async def locked(self) -> set[int]:
        """Return the ledgers that are locked."""
        ids = [form.parse_node_name(name) for name in await self._children(self.locks)]
        return {ledger_id for ledger_id in ids if ledger_id is not None}

    async def ids(self) -> AsyncGenerator[int, None]:
        """Yield the ledgers that have folders, ascending, without checking that they have a mark.

        Close the iterator (`aclosing`) if not all are wanted.
        """
        ahead: list[tuple[str, tuple[str, ...]]] = [(self.ledgers, ())]
        while ahead:
            folder, names = ahead.pop()
            children = await self._children(folder)
            if len(names) < form.LEVELS - 1:
                ahead += [(paths.join(folder, name), (*names, name)) for name in children[::-1]]
                continue
            for name in children:
                ledger_id = form.parse_folders((*names, name))
                if ledger_id is not None:
                    yield ledger_id

    async def wait_for_work(self, skip: Collection[int]) -> None:
        """Wait until there is a marked ledger, not in `skip`, that is not locked."""
        while True:
            with ExitStack() as stack:
                # (created before the first read, so that no change is missed)
                watches = [self._watch(stack, self.locks)]
                unwatched = await self._look(stack, watches, frozenset(skip))
                if unwatched is None:
                    return
                with trio.move_on_after(UNWATCHED_S if unwatched else float("inf")):
                    await first_change(watches)

    async def prune(self, ledger_id: int, *, above: bool = False) -> None:
        """Delete the folders that the removal of a mark leaves empty; with `above`, its own folder is gone already."""
        folder = paths.parent(self.mark_path(ledger_id))
        folder = paths.parent(folder) if above else folder
        while folder != self.ledgers:
            try:
                await self._store.delete(folder)
            except NotEmptyError:
                return
            except NoNodeError:
                pass
            folder = paths.parent(folder)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []

    def _watch(self, stack: ExitStack, path: str) -> Watch:
        watch = self._store.watch(path)
        stack.callback(watch.close)
        return watch

    async def _look(self, stack: ExitStack, watches: list[Watch], skip: frozenset[int]) -> bool | None:
        """Return None if there is work; otherwise whether there are too many folders to watch.

        The others are watched from now on.

        The folder of a locked ledger is not watched, because its lock must change. A folder without a mark is watched,
        because the originals create the folder first and the mark then.
        """
        taken = await self.locked() | skip
        unwatched = False
        folders: list[tuple[str, tuple[str, ...]]] = [(self.ledgers, ())]
        for folder, names in folders:  # (grows during the loop)
            ledger_id = form.parse_folders(names)
            if ledger_id is not None and ledger_id in taken:
                continue
            if len(watches) < WATCHES_MAX:
                watches.append(self._watch(stack, folder))
            else:
                unwatched = True
            if ledger_id is not None and await self.mark(ledger_id) is not None:
                return None
            if len(names) < form.LEVELS:
                folders += [(paths.join(folder, name), (*names, name)) for name in await self._children(folder)]
        return unwatched
