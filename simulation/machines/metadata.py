"""The metadata service of a simulated cluster, and each host's session with it.

The service is one tree in one place, as consistent as ZooKeeper is. What is between it and a host is not: calls take
their time both ways, watch events come late or overtake the answers of reads, the connection is lost and the session
with it. A host whose session expired goes on with a new one, as with `zookeeperSessionExpiredPolicy=reconnect`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.local.tree import Plan
from quire.metadata.store import ANY_VERSION, Changed, Kind, Node, Op, Watch

T = TypeVar("T")


class WatchedTree(MemoryTree):
    """A metadata service that reports each change to a checker when it happens."""

    def __init__(self, changed: Callable[[str, bytes | None], None]) -> None:
        """Take the callback `changed(path, value)`; the value is None for a deleted node."""
        super().__init__()
        self._changed = changed

    def _apply(self, planned: Plan) -> None:
        super()._apply(planned)
        for path, node in planned.effects.items():
            self._changed(path, None if node is None else node.value)


class HostMetadata:
    """The MetadataStore of one incarnation of a host."""

    def __init__(
        self, tree: MemoryTree, rng: random.Random, *, session_timeout_s: float, late: float, latency_max_s: float
    ) -> None:
        """Take the fraction `late` of calls and events that take up to `latency_max_s`; the others take up to 2 ms."""
        self._tree = tree
        self._rng = rng
        self._timeout_s = session_timeout_s
        self._late = late
        self._latency_max_s = latency_max_s
        self._connected = True
        self._closed = False
        self._expired = trio.Event()
        self._session = self._new_session()
        self.sessions = 1
        """Number of sessions so far."""

    # --- faults

    def disconnect(self) -> None:
        """Make the service unreachable; the session's timeout runs."""
        self._connected = False
        self._session.disconnect()

    def reconnect(self) -> None:
        """Make it reachable again. If the session expired meanwhile, the host learns of it now."""
        self._connected = True
        self._session.reconnect()

    def expire(self) -> None:
        """End the session at once."""
        self._tree.expire(self._session.session)

    # --- MetadataStore

    @property
    def expired(self) -> trio.Event:
        """Return an event that is never set: there is always another session."""
        return self._expired

    async def get(self, path: str) -> Node | None:
        return await self._call(lambda store: store.get(path))

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        return await self._call(
            lambda store: store.create(path, value, kind=kind, sequential=sequential, make_parents=make_parents)
        )

    async def put(self, path: str, value: bytes, version: int) -> int:
        return await self._call(lambda store: store.put(path, value, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(lambda store: store.delete(path, version))

    async def children(self, path: str) -> list[str]:
        return await self._call(lambda store: store.children(path))

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        return await self._call(lambda store: store.multi(ops))

    def watch(self, path: str) -> Watch:
        return _LateWatch(self, path)

    async def aclose(self) -> None:
        self._closed = True
        await self._session.aclose()

    # --- inside

    def latency(self) -> float:
        """Return the one-way delay in seconds."""
        if self._rng.random() < self._late:
            return self._rng.uniform(0.002, self._latency_max_s)
        return self._rng.uniform(0.0001, 0.002)

    def _new_session(self) -> MemoryStore:
        store = MemoryStore(self._tree, session_timeout_s=self._timeout_s, latency=self.latency)
        if not self._connected:
            store.disconnect()
        return store

    async def _call(self, call: Callable[[MemoryStore], Awaitable[T]]) -> T:
        store = self._session
        try:
            return await call(store)
        except SessionExpiredError as error:
            if self._closed:
                raise
            self.renew(store)
            raise MetadataUnavailableError("the session has expired; there is a new one") from error

    def renew(self, store: MemoryStore) -> None:
        """Continue with a new session if `store` is still the current one, which has ended."""
        if self._session is store:
            self._session = self._new_session()
            self.sessions += 1

    @property
    def session(self) -> MemoryStore:
        """Return the current session."""
        return self._session

    @property
    def closed(self) -> bool:
        return self._closed


class _LateWatch:
    """Watch that outlives sessions. An event arrives some time after the change, perhaps long after."""

    def __init__(self, metadata: HostMetadata, path: str) -> None:
        self._metadata = metadata
        self._path = path
        self._store = metadata.session
        self._watch = self._store.watch(path)
        self._given_up = False

    async def next(self) -> Changed:
        try:
            changed = await self._watch.next()
        except SessionExpiredError:
            if self._given_up or self._metadata.closed:
                raise
            self._metadata.renew(self._store)
            self._store = self._metadata.session
            self._watch = self._store.watch(self._path)
            changed = Changed(self._path)
        await trio.sleep(self._metadata.latency())
        return changed

    def close(self) -> None:
        self._given_up = True
        self._watch.close()
