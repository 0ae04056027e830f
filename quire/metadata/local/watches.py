"""Watches: one flag per watch, so that changes coalesce and memory does not grow."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from quire.metadata import paths
from quire.metadata.store import Changed


class TreeWatch:
    """One watch, for one waiting task."""

    def __init__(self, table: WatchTable, path: str) -> None:
        self.path = path
        self._table = table
        self._changed = False
        self._held = False
        self._failure: Exception | None = None
        self._wake: trio.Event | None = None

    @property
    def closed(self) -> bool:
        """True if closed by its owner, or failed permanently."""
        return self._failure is not None

    async def next(self) -> Changed:
        """Wait for the next change; raise the error of `fail`, or ClosedResourceError after `close`."""
        await trio.lowlevel.checkpoint()
        while self._failure is None and (self._held or not self._changed):
            assert self._wake is None, f"two tasks wait for one watch of {self.path}"
            self._wake = trio.Event()
            try:
                await self._wake.wait()
            finally:
                self._wake = None
        if self._failure is not None:
            raise self._failure
        self._changed = False
        return Changed(self.path)

    def close(self) -> None:
        self.fail(trio.ClosedResourceError(f"the watch of {self.path} was closed"))

    def notify(self) -> None:
        """Report a change; call this after the change is visible."""
        self._changed = True
        self._stir()

    def hold(self) -> None:
        """Deliver nothing until `release`: the session has no connection."""
        self._held = True

    def release(self) -> None:
        """Deliver again, and at once, because changes may have been missed."""
        self._held = False
        self.notify()

    def fail(self, error: Exception) -> None:
        """Raise `error` from every `next` from now on; the first failure stays."""
        if self._failure is None:
            self._failure = error
            self._table.remove(self)
            self._stir()

    def _stir(self) -> None:
        if self._wake is not None:
            self._wake.set()


class WatchTable:
    """Open watches, by path, in the order of creation."""

    def __init__(self) -> None:
        self._watches: dict[str, list[TreeWatch]] = {}

    def add(self, path: str) -> TreeWatch:
        watch = TreeWatch(self, paths.check(path))
        self._watches.setdefault(path, []).append(watch)
        return watch

    def __contains__(self, path: str) -> bool:
        """Return whether there is a watch on `path`."""
        return path in self._watches

    def paths(self) -> list[str]:
        """Return the watched paths, in the order of their first watch."""
        return list(self._watches)

    def hold(self) -> None:
        """Hold every watch."""
        for watch in self._all():
            watch.hold()

    def release(self) -> None:
        """Release every watch."""
        for watch in self._all():
            watch.release()

    def _all(self) -> list[TreeWatch]:
        return [watch for watches in self._watches.values() for watch in watches]

    def remove(self, watch: TreeWatch) -> None:
        watches = self._watches[watch.path]
        watches.remove(watch)
        if not watches:
            del self._watches[watch.path]

    def fire(self, changed: Iterable[str]) -> None:
        if not self._watches:
            return
        for path in changed:
            for watch in self._watches.get(path, ()):
                watch.notify()

    def fail(self, error: Exception) -> None:
        """Fail every watch."""
        for watch in self._all():
            watch.fail(error)
