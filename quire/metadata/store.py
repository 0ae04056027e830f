"""MetadataStore: shared metadata with ZooKeeper's semantics. There are three implementations: memory, RocksDB (over the
key-value door), and ZooKeeper (over kazoo). One conformance suite tests them all.

Paths are absolute, `/a/b`, without a trailing slash; a component is not empty, not `.` or `..`, has no NUL. A node's
version starts at 0 and grows by one with each put. Parents must exist (NoNodeError) unless `make_parents`.
Nodes created by `make_parents` are persistent and empty.
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
    """Deleted with the session that created it; has no children."""


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    value: T
    version: int
    modified_ms: int | None = field(default=None, compare=False)
    """As `Node.modified_ms`."""


@dataclass(slots=True)
class Node:
    """Result of `get`. Not frozen, which takes four times as long to make: there is one per read."""

    value: bytes
    version: int
    ephemeral: bool = False
    mine: bool = False
    """True if ephemeral and created by this session."""
    session: int = field(default=0, compare=False)
    """Session that created an ephemeral node, a number unique to it; 0 for a persistent node."""
    modified_ms: int | None = field(default=None, compare=False)
    """Time at which the value was last set, in milliseconds of the service's own clock; None if the store keeps no
    times.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    path: str
    value: bytes = b""
    kind: Kind = Kind.PERSISTENT
    sequential: bool = False
    """True to append the parent's next sequence number as %010d."""
    make_parents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    path: str
    value: bytes
    version: int
    """Required version of the node, or ANY_VERSION."""


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
    """Change at or directly below the watched path: read again. Several changes may be reported as one."""

    path: str


class Watch(Protocol):
    """Watch on a node (its value, creation and deletion) and on the list of its children.

    Persistent (needs no re-arming), coalescing (never grows), and never early: an event is delivered after the change
    is visible to `get`. An event only names the place of the change.
    """

    async def next(self) -> Changed:
        """Wait for a change since the watch was created or since the last `next`.

        SessionExpiredError if the session has ended.
        """

    def close(self) -> None: ...


class MetadataStore(Protocol):
    """Store of shared metadata. All calls raise two errors.

    MetadataUnavailableError when the service cannot be reached (passing: the outcome is unknown, read again), and
    SessionExpiredError after the session was lost (final for this store object).
    """

    @property
    def expired(self) -> trio.Event:
        """Set when the session is certainly lost: its ephemeral nodes are gone or will be."""

    async def get(self, path: str) -> Node | None:
        """Return the node, or None if there is none."""

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node; return the path (with the number, if sequential).

        NodeExistsError, NoNodeError. Durable on return.
        """

    async def put(self, path: str, value: bytes, version: int) -> int:
        """Compare and set; return the new version. BadVersionError, NoNodeError. ANY_VERSION sets unconditionally."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. BadVersionError, NoNodeError, NotEmptyError."""

    async def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the children, sorted; NoNodeError."""

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        """Run ops all or nothing, in order, as one synced write.

        Return, per op, the created path or the op's path. The first failing op's error is raised, with `.index`.
        """

    def watch(self, path: str) -> Watch: ...

    async def aclose(self) -> None:
        """End the session; its ephemeral nodes are deleted."""
