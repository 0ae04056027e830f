"""Registered bookies and bookies with a cookie: the facts that decide which bookies are lost.

<root>/available/<bookie id>, <root>/available/readonly/<bookie id>, <root>/cookies/<bookie id>
"""

from __future__ import annotations

from quire.metadata import bookies, paths
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore, Watch


class Registrations:
    """Registrations of one cluster. MetadataError."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._root = root

    def watches(self) -> list[Watch]:
        """Watches that report when a bookie came or went; the caller must close them."""
        available = paths.join(self._root, "available")
        return [self._store.watch(available), self._store.watch(paths.join(available, bookies.READONLY))]

    async def read(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the registered bookies, writable or read-only, and the bookies that have a cookie.

        A bookie that changes between the two kinds is registered as both for a moment. The writable ones are read
        before and after the others, so that it is seen in either direction.
        """
        before = await self._names("available")
        read_only = await self._names("available/readonly")
        after = await self._names("available")
        present = frozenset([*before, *read_only, *after]) - {bookies.READONLY}
        return present, frozenset(await self._names("cookies"))

    async def sessions(self) -> dict[str, int]:
        """Return the session of every registered bookie; one of the two for a bookie that is registered as both for a
        moment.
        """
        present, _ = await self.read()
        found: dict[str, int] = {}
        for bookie_id in sorted(present):
            for read_only in (False, True):
                node = await self._store.get(bookies.registration_path(bookie_id, read_only=read_only, root=self._root))
                if node is not None:
                    found[bookie_id] = node.session
                    break
        return found

    async def _names(self, folder: str) -> list[str]:
        try:
            return await self._store.children(paths.join(self._root, folder))
        except NoNodeError:
            return []
