"""Nodes of tenants and namespaces, followed and kept in memory for decisions.

    /admin/policies/<tenant>                 adminRoles
    /admin/policies/<tenant>/<namespace>     grants

A node that was used once is followed from then on, also one that does not exist, so that a decision needs no read. The
number of them is bounded. One on which a producer, consumer or watcher of a living connection depends is kept beyond
the bound: otherwise a change of it would not reach them.

While the metadata service is away, what the last known value permits is permitted. A node that is not known cannot be
decided on, and no refusal relies on an old value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar
from weakref import WeakSet

import trio

from broker.errors import BrokerError, ServiceNotReadyError, translated
from broker.ownership.following import Tasks, follow
from broker.ownership.values import Json, decode_json
from broker.security.authorization.grants import GrantsError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger

log = get_logger(__name__)

FOLLOWED_MAX: Final = 10_000
"""Maximum number of followed nodes of one kind that no connection depends on."""
LOOKS_MAX: Final = 100
"""Nodes that are looked at to find one that no connection depends on."""
RECHECK_S: Final = 60.0
"""Time after which a node is read again in case its watch missed a change."""

PAUSE_S: Final = 0.1
"""Time between two reads of a node for refusals: a client that asks again and again waits, and makes few reads."""

T = TypeVar("T")


class Followed(Generic[T]):
    """One node."""

    __slots__ = ("__weakref__", "lock", "path", "problem", "read_at", "reads", "scope", "users", "value")

    def __init__(self, path: str, value: T) -> None:
        self.path = path
        self.value = value
        """The last valid value."""
        self.read_at = trio.current_time()
        """When it was read last."""
        self.reads = 0
        """Reads that have begun."""
        self.problem = ""
        """Why the last read failed; empty if it did not."""
        self.users: WeakSet[object] = WeakSet()
        """Connections that depend on it."""
        self.scope = trio.CancelScope()
        self.lock = trio.Lock()
        """Held by a read, so that none is overtaken."""


class _FirstRead:
    """The first read of a node, while it is under way."""

    __slots__ = ("done", "problem")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.problem = ""
        """Why it failed; empty if it did not."""


class Nodes(Generic[T]):
    """Followed nodes of one kind."""

    def __init__(
        self, metadata: MetadataStore, decode: Callable[[Json | None], T], on_change: Callable[[Followed[T]], None]
    ) -> None:
        """`decode`: returns the value of a node, None if there is no node; raises GrantsError. `on_change`: called when
        a followed node has another value."""
        self._metadata = metadata
        self._decode = decode
        self._on_change = on_change
        self._followed: dict[str, Followed[T]] = {}
        self._first_reads: dict[str, _FirstRead] = {}
        self._tasks = Tasks()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the nodes in use until cancelled."""
        try:
            await self._tasks.run(task_status)
        finally:
            self._followed.clear()

    @property
    def is_running(self) -> bool:
        return self._tasks.nursery is not None

    def keeps(self, node: Followed[T]) -> bool:
        """Return whether a node is followed. Before this runs none is."""
        return not self.is_running or self._followed.get(node.path) is node

    @property
    def count(self) -> int:
        return len(self._followed)

    def known(self, path: str) -> Followed[T] | None:
        """Return a node from memory; None: it has to be read."""
        return self._followed.get(path)

    async def get(self, path: str) -> Followed[T]:
        """Return a node, which is followed from now on. Raises ServiceNotReadyError if it cannot be read now."""
        while (found := self._followed.get(path)) is None:
            if not self.is_running:
                return Followed(path, await self._asked(path))
            reading = self._first_reads.get(path)
            if reading is None:
                return await self._first(path)
            await reading.done.wait()
            if reading.problem:
                raise ServiceNotReadyError(reading.problem)
        return found

    async def _first(self, path: str) -> Followed[T]:
        """Read a node for the first time, and follow it."""
        reading = self._first_reads[path] = _FirstRead()
        try:
            made = Followed(path, await self._asked(path))
            if self._tasks.nursery is not None:  # it may have ended meanwhile
                self._followed[path] = made
                self._tasks.nursery.start_soon(self._follow, made, name=f"permissions of {path}")
                self._drop_unused(made)
        except ServiceNotReadyError as error:
            reading.problem = str(error)
            raise
        finally:
            del self._first_reads[path]
            reading.done.set()
        return made

    async def newer(self, path: str) -> Followed[T]:
        """Return what `get` does, from a read that begins after this call.

        A refusal is final to a client, so it must not come from a moment before a grant that the client knows of. Calls
        at the same time share a read, and its failure. Raises ServiceNotReadyError."""
        found = self._followed.get(path)
        if found is None:
            return await self.get(path)
        begun = found.reads
        async with found.lock:
            if found.reads == begun:
                await trio.sleep_until(found.read_at + PAUSE_S)
                await self._read_again(found)
            elif found.problem:
                raise ServiceNotReadyError(found.problem)
        return found

    async def reread(self, path: str) -> None:
        """Read the current value of a followed node without waiting for its watch. Raises ServiceNotReadyError."""
        if (found := self._followed.get(path)) is not None:
            async with found.lock:
                await self._read_again(found)

    async def _read_again(self, found: Followed[T]) -> None:
        found.reads += 1
        try:
            self._changed(found, await self._asked(found.path))
        except ServiceNotReadyError as error:
            found.problem = str(error)
            raise

    def _drop_unused(self, made: Followed[T]) -> None:
        """Drop the oldest nodes that no connection depends on while there are too many. One that was just made is for a
        decision, after which a connection may depend on it."""
        for _ in range(LOOKS_MAX):
            if len(self._followed) <= FOLLOWED_MAX:
                return
            oldest = self._followed.pop(next(iter(self._followed)))
            if oldest is made or oldest.users:
                self._followed[oldest.path] = oldest
            else:
                oldest.scope.cancel()

    async def _asked(self, path: str) -> T:
        try:
            with translated(path):
                return await self._read(path)
        except (BrokerError, GrantsError) as error:
            raise ServiceNotReadyError(f"permissions cannot be read now: {error}") from error

    async def _read(self, path: str) -> T:
        node = await self._metadata.get(path)
        return self._decode(None if node is None else decode_json(node.value, path))

    async def _follow(self, found: Followed[T]) -> None:
        async def look() -> None:
            try:
                async with found.lock:
                    found.reads += 1
                    self._changed(found, await self._read(found.path))
            except (BrokerError, GrantsError) as error:
                log.warning("permissions not read, the last ones hold", path=found.path, reason=str(error))

        with found.scope:
            await follow(self._metadata, found.path, look, recheck_s=RECHECK_S)

    def _changed(self, found: Followed[T], value: T) -> None:
        found.read_at, found.problem = trio.current_time(), ""
        if found.value != value:
            found.value = value
            self._on_change(found)
