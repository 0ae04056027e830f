"""MetadataStore in one process: a tree shared by sessions that can lose their connection and expire by trio's clock.

It serves unit tests and the simulator, in place of a ZooKeeper ensemble: the tree is the service, and each
`MemoryStore` is one client's session. A session that loses its connection (`disconnect`, or its host's crash) keeps its
ephemeral nodes for the session timeout, and keeps them if it reconnects in time. As with the real one, a session learns
of its expiry only when it reaches the service again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import trio

from quire.metadata import paths
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.local.tree import Plan, Tree, Znode, plan
from quire.metadata.local.watches import TreeWatch, WatchTable
from quire.metadata.store import Create, Delete, Kind, Node, Op, Put


class MemoryTree:
    """Shared part: the service. Everything here is synchronous except `run`."""

    def __init__(self) -> None:
        self._tree = Tree()
        self._watches = WatchTable()
        self._modified_ms: dict[str, int] = {}
        self._sessions: dict[int, MemoryStore] = {}
        self._last_session = 0
        self._deadlines: dict[int, float] = {}
        """Expiry times of disconnected sessions, in trio's time."""
        self._deadline_added: trio.Event | None = None

    async def run(self) -> None:
        """Expire sessions at their time until cancelled. Without it they expire when the tree is next used."""
        while True:
            self._deadline_added = trio.Event()
            with trio.move_on_at(min(self._deadlines.values(), default=inf)):
                await self._deadline_added.wait()
            self.expire_due()

    def expire_due(self) -> None:
        """Expire the disconnected sessions whose time is over."""
        if self._deadlines:
            now = trio.current_time()
            for session in [session for session, deadline in self._deadlines.items() if deadline <= now]:
                self.expire(session)

    def expire(self, session: int) -> None:
        """End a session at once; no effect if it has ended. Its ephemeral nodes are deleted."""
        self._deadlines.pop(session, None)
        store = self._sessions.pop(session, None)
        owned = self._tree.ephemerals(session)
        if owned:
            self._apply(plan(self._tree, [Delete(path=path) for path in owned], session))
        if store is not None:
            store.session_ended()

    def attach(self, store: MemoryStore) -> int:
        """Start a session; return its number."""
        self._last_session += 1
        self._sessions[self._last_session] = store
        return self._last_session

    def start_timeout(self, session: int, timeout_s: float) -> None:
        if session in self._sessions:
            self._deadlines[session] = trio.current_time() + timeout_s
            if self._deadline_added is not None:
                self._deadline_added.set()

    def stop_timeout(self, session: int) -> None:
        self._deadlines.pop(session, None)

    def commit(self, ops: Sequence[Op], session: int) -> list[str]:
        planned = plan(self._tree, ops, session)
        self._apply(planned)
        return planned.results

    def get(self, path: str) -> Znode | None:
        return self._tree.nodes.get(path)

    def modified_ms(self, path: str) -> int | None:
        """Return when the node's value was last set, in milliseconds of trio's time."""
        return self._modified_ms.get(path)

    def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    def watch(self, path: str) -> TreeWatch:
        return self._watches.add(path)

    def _apply(self, planned: Plan) -> None:
        now_ms = int(trio.current_time() * 1000)
        for path, node in planned.effects.items():
            old = self._tree.nodes.get(path)
            if node is None:
                self._modified_ms.pop(path, None)
            elif old is None or old.version != node.version or old.owner != node.owner:
                self._modified_ms[path] = now_ms
        self._watches.fire(self._tree.apply(planned.effects))


class MemoryStore:
    """One session on a `MemoryTree`.

    `latency`, in seconds, is called twice per call: for the request and for the answer. If the connection is lost
    before the answer, the caller does not know whether its write happened, as in reality.
    """

    def __init__(
        self, tree: MemoryTree, *, session_timeout_s: float = 30.0, latency: Callable[[], float] | None = None
    ) -> None:
        self._tree = tree
        self._timeout_s = session_timeout_s
        self._latency = latency
        self._connected = True
        self._ended = False
        self._closed = False
        self._expired = trio.Event()
        self._watches: list[TreeWatch] = []
        self.session = tree.attach(self)

    @property
    def expired(self) -> trio.Event:
        return self._expired

    async def get(self, path: str) -> Node | None:
        paths.check(path)
        await self._go()
        node = self._tree.get(path)
        await self._come_back()
        if node is None:
            return None
        modified_ms = self._tree.modified_ms(path)
        mine = node.owner == self.session
        return Node(node.value, node.version, node.owner != 0, mine, session=node.owner, modified_ms=modified_ms)

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        kind: Kind = Kind.PERSISTENT,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        op = Create(path=path, value=value, kind=kind, sequential=sequential, make_parents=make_parents)
        return (await self.multi([op]))[0]

    async def put(self, path: str, value: bytes, version: int) -> int:
        await self._go()
        self._tree.commit([Put(path=path, value=value, version=version)], self.session)
        node = self._tree.get(path)
        assert node is not None, f"{path} vanished while it was put"
        await self._come_back()
        return node.version

    async def delete(self, path: str, version: int = -1) -> None:
        await self.multi([Delete(path=path, version=version)])

    async def children(self, path: str) -> list[str]:
        paths.check(path)
        await self._go()
        names = self._tree.children(path)
        await self._come_back()
        return names

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        await self._go()
        results = self._tree.commit(ops, self.session)
        await self._come_back()
        return results

    def watch(self, path: str) -> TreeWatch:
        watch = self._tree.watch(path)
        self._watches = [other for other in self._watches if not other.closed]
        self._watches.append(watch)
        if self._closed or (self._ended and self._connected):
            watch.fail(self._session_is_gone())
        elif not self._connected:
            watch.hold()
        return watch

    async def aclose(self) -> None:
        """End the session; its ephemeral nodes are deleted at once if the service can be reached, else after the
        timeout.
        """
        self._closed = True
        if self._connected:
            self._tree.expire(self.session)
        self._fail_watches()
        await trio.lowlevel.checkpoint()

    def disconnect(self) -> None:
        """Lose the connection: calls fail, watches deliver nothing, and the session timeout runs."""
        if self._connected:
            self._connected = False
            self._tree.start_timeout(self.session, self._timeout_s)
            for watch in self._watches:
                watch.hold()

    def reconnect(self) -> None:
        """Restore the connection. If the session expired in the meantime, `expired` is set now."""
        if not self._connected:
            self._tree.expire_due()
            self._connected = True
            self._tree.stop_timeout(self.session)
            for watch in self._watches:
                watch.release()
            if self._ended:
                self.session_ended()

    def session_ended(self) -> None:
        """Called by the tree; the client learns it as soon as it has a connection."""
        self._ended = True
        if self._connected:
            if not self._closed:
                self._expired.set()
            self._fail_watches()

    def _fail_watches(self) -> None:
        for watch in self._watches:
            watch.fail(self._session_is_gone())
        self._watches.clear()

    def _session_is_gone(self) -> SessionExpiredError:
        return SessionExpiredError(f"session {self.session} has ended")

    async def _go(self) -> None:
        await self._travel()
        self._tree.expire_due()
        self._require()

    async def _come_back(self) -> None:
        if self._latency is not None:
            await self._travel()
            self._require()

    async def _travel(self) -> None:
        if self._latency is None:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(self._latency())

    def _require(self) -> None:
        if self._closed:
            raise self._session_is_gone()
        if not self._connected:
            raise MetadataUnavailableError("the metadata service cannot be reached")
        if self._ended:
            raise self._session_is_gone()
