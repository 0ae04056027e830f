"""A process that is killed after so many changes to its disk: what was written stays, and nothing more is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from quire.metadata.store import MetadataStore
from quire.world.doors import World

_CHANGES: Final = frozenset(
    (
        *("write_atomic", "make_dirs", "rename", "unlink", "link", "remove_dir"),
        *("pwrite", "pwritev", "pwritev_past_cache", "truncate", "write"),
    )
)
_STORE_CHANGES: Final = frozenset(("create", "put", "delete", "multi"))
_MAKERS: Final = frozenset(("open",))


class Killed(BaseException):
    """The process is dead. Not an `Exception`, so that no handler can continue after it."""


class Fuse:
    """Changes that are still allowed."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def spend(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


class _Killable:
    """A door, a file or a map whose changes are counted. Those in `finally` blocks fail too."""

    def __init__(self, inner: Any, fuse: Fuse, changes: frozenset[str] = _CHANGES) -> None:
        self._inner = inner
        self._fuse = fuse
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in self._changes:
            return self._counted(found)
        if name in _MAKERS:
            return lambda *given, **named: _Killable(found(*given, **named), self._fuse)
        return found

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self._fuse.spend()
            return change(*given, **named)

        return counted


def killable(world: World, changes: int) -> World:
    """Return a world whose disk and maps raise Killed at the change after so many."""
    return with_fuse(world, Fuse(changes))


def with_fuse(world: World, fuse: Fuse) -> World:
    """Return a world whose disk and maps raise Killed when the fuse is used up."""
    return replace(world, disk=_Killable(world.disk, fuse), key_value=_Killable(world.key_value, fuse))


def store_with_fuse(store: MetadataStore, fuse: Fuse) -> MetadataStore:
    """Return a store whose changes spend the fuse too, so that a kill falls between disk and metadata."""
    killable_store: Any = _Killable(store, fuse, _STORE_CHANGES)
    return cast(MetadataStore, killable_store)
