"""MetadataStore: the small shared facts, with ZooKeeper's meaning. Three makers: memory, RocksDB (over the key_value
door), ZooKeeper (later, over kazoo); one conformance suite holds them together.

Paths are absolute, `/a/b`, without a trailing slash; a component is not empty, not `.` or `..`, has no NUL. A node's
version starts at 0 and grows by one with each put. Parents must exist (NoNodeError) unless `make_parents`.
Nodes made by `make_parents` are persistent and empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar

import trio

T = TypeVar("T")

ANY_VERSION = -1


class Kind(Enum):
    PERSISTENT = "persistent"
    EPHEMERAL = "ephemeral"
    """Goes away with the session that made it; has no children."""


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    value: T
    version: int
    modified_ms: int | None = field(default=None, compare=False)
    """As `Node.modified_ms`."""


@dataclass(frozen=True, slots=True)
class Node:
    """What `get` answers."""

    value: bytes
    version: int
    ephemeral: bool = False
    mine: bool = False
    """Ephemeral and made by this session."""
    session: int = field(default=0, compare=False)
    """The session that made an ephemeral node, as a number that no other session has; 0 for a persistent one."""
    modified_ms: int | None = field(default=None, compare=False)
    """When the value was last set, in milliseconds of the service's own clock; None if the store keeps no times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    path: str
    value: bytes = b""
    kind: Kind = Kind.PERSISTENT
    sequential: bool = False
    """Append the parent's next sequence number as %010d."""
    make_parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    path: str
    value: bytes
    version: int
    """The version it must have, or ANY_VERSION."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    path: str
    version: int


Op: TypeAlias = Create | Put | Delete | Check


@dataclass(frozen=True, slots=True)
class Changed:
    """Something at or directly under the watched path changed; read again. Several changes may come as one."""

    path: str


class Watch(Protocol):
    """Tells of changes to a node (its value, its coming and going) and to the list of its children.

    Persistent (needs no re-arming), coalescing (never grows), and never early: an event is delivered after the change is
    visible to `get`. An event says only where to look.
    """

    async def next(self) -> Changed:
        """Wait for a change since the watch was made or since the last `next`. SessionExpiredError if the session is gone."""

    def close(self) -> None: ...


class MetadataStore(Protocol):
    """All calls raise MetadataUnavailableError (passing: outcome unknown, read again) when the service cannot be reached
    and SessionExpiredError (final for this store object) after the session has been lost."""

    @property
    def expired(self) -> trio.Event:
        """Set when the session is confirmed lost: its ephemeral nodes are gone or will be."""

    async def get(self, path: str) -> Node | None:
        """The node, or None if there is none."""

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create and return the path (with the number, if sequential). NodeExistsError, NoNodeError. Durable on return."""

    async def put(self, path: str, value: bytes, version: int) -> int:
        """Compare and set; returns the new version. BadVersionError, NoNodeError. ANY_VERSION sets blindly."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """BadVersionError, NoNodeError, NotEmptyError."""

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted; NoNodeError."""

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        """All or nothing, in order, one synced write. Returns, per op, the created path or the op's path. The first
        failing op's error is raised, with `.index`."""

    def watch(self, path: str) -> Watch: ...

    async def aclose(self) -> None:
        """End the session; its ephemeral nodes go away."""
