"""Persistent watches, built on ZooKeeper's, which fire once.

A watched path has up to two armings at the server: one for the node (exists) and, while there is a node, one for the
list of its children. An arming that fires is armed again at once, before its watches report the change. The requests of
a session are executed in order, so a reader that reads again reads after the new arming and misses nothing. Changes by
other clients between the creation of a watch and its first arming show in the node's transaction ids, which are newer
than any known at its creation. The exception is a node deleted in that moment, which only a read shows. All armings are
lost with the connection; on the next one all are made again and all watches report a change.

When the last watch of a path is closed its armings stay at the server, for the next watch of the path. Above a bound
the armings of the oldest such path are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.protocol.states import EventType

from quire.metadata.errors import SessionExpiredError
from quire.metadata.local.watches import TreeWatch, WatchTable


class Arming:
    """One watch at the server; kazoo's thread calls it when it fires."""

    __slots__ = ("_post", "path", "since")

    def __init__(self, path: str, since: int | None, post: Callable[[Arming, str], None]) -> None:
        self.path = path
        self.since = since
        """For the first arming of a watch, the newest transaction known then; None for later ones."""
        self._post = post

    def __call__(self, event: Any) -> None:
        self._post(self, event.type)


class Armed(NamedTuple):
    """Armings of a path, existing or requested."""

    node: Arming | None
    children: Arming | None


NOT_ARMED = Armed(None, None)


class ZooKeeperWatches:
    """Watches of one store. All on the event loop.

    `arm_node(arming)` and `arm_children(arming)` send a request with that watcher; the first reports with `node_armed`,
    the second with `no_children` if there was no node, and both with `refused` if the server does not arm it.
    `newest()` returns the newest known transaction. `take_back(path, armings)` removes them from the server.
    """

    def __init__(
        self,
        *,
        arm_node: Callable[[Arming], None],
        arm_children: Callable[[Arming], None],
        take_back: Callable[[str, list[Arming]], None],
        newest: Callable[[], int],
        post: Callable[[Arming, str], None],
        idle_max: int,
    ) -> None:
        self._arm_node = arm_node
        self._arm_children = arm_children
        self._take_back = take_back
        self._newest = newest
        self._post = post
        self._idle_max = idle_max
        self._table = _Table(self._closed)
        self._armed: dict[str, Armed] = {}
        self._idle: dict[str, None] = {}
        """Armed paths without watches, the oldest first."""
        self._connected = False

    def add(self, path: str) -> TreeWatch:
        """Create a watch. InvalidPathError."""
        watch = self._table.add(path)
        self._idle.pop(path, None)
        if self._connected:
            self._arm(path, self._newest())
        else:
            watch.hold()
        return watch

    def connected(self) -> None:
        """Arm everything, then report a change to every watch, because changes may have been missed."""
        self._connected = True
        for path in self._table.paths():
            self._arm(path)
        self._table.release()

    def disconnected(self) -> None:
        self._connected = False
        self._armed.clear()
        self._idle.clear()
        self._table.hold()

    def fail(self, error: SessionExpiredError) -> None:
        self._table.fail(error)

    def fired(self, arming: Arming, event: str) -> None:
        """Handle an event of the server. An event of an arming that is no longer in force is ignored."""
        path = arming.path
        armed = self._armed.get(path, NOT_ARMED)
        if event == EventType.NONE or arming not in (armed.node, armed.children):
            return
        if event == EventType.DELETED:
            armed = NOT_ARMED
        elif arming is armed.node:
            armed = armed._replace(node=None)
        else:
            armed = armed._replace(children=None)
        self._keep(path, armed)
        if path in self._table:
            self._arm(path)
            self._table.fire((path,))

    def node_armed(self, arming: Arming, changed: int) -> None:
        """Handle a successful arming: the node or its children were last changed by transaction `changed`."""
        if arming.since is not None and changed > arming.since:
            self._table.fire((arming.path,))

    def no_children(self, arming: Arming) -> None:
        """Handle a missing node: the children are not watched; the node's own arming reports its creation."""
        armed = self._armed.get(arming.path, NOT_ARMED)
        if arming is armed.children:
            self._keep(arming.path, armed._replace(children=None))

    def refused(self, arming: Arming) -> None:
        """Handle a refused arming, for example for lack of read permission.

        The watches report a change, because they will not learn of changes otherwise; their next read raises the
        reason. Arming is tried again when the other arming fires, and on the next connection.
        """
        path = arming.path
        armed = self._armed.get(path, NOT_ARMED)
        if arming is armed.node:
            armed = armed._replace(node=None)
        elif arming is armed.children:
            armed = armed._replace(children=None)
        else:
            return
        self._keep(path, armed)
        self._table.fire((path,))

    def _arm(self, path: str, since: int | None = None) -> None:
        node, children = self._armed.get(path, NOT_ARMED)
        if node is None:
            node = Arming(path, since, self._post)
            self._arm_node(node)
        if children is None:
            children = Arming(path, since, self._post)
            self._arm_children(children)
        self._armed[path] = Armed(node, children)

    def _keep(self, path: str, armed: Armed) -> None:
        if armed == NOT_ARMED:
            self._armed.pop(path, None)
            self._idle.pop(path, None)
        else:
            self._armed[path] = armed

    def _closed(self, path: str) -> None:
        """Handle the close of the last watch of `path`."""
        if path not in self._armed:
            return
        self._idle[path] = None
        if len(self._idle) > self._idle_max:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            self._take_back(oldest, [arming for arming in self._armed.pop(oldest) if arming is not None])


class _Table(WatchTable):
    """Table that reports when the last watch of a path is closed."""

    def __init__(self, emptied: Callable[[str], None]) -> None:
        super().__init__()
        self._emptied = emptied

    def remove(self, watch: TreeWatch) -> None:
        super().remove(watch)
        if watch.path not in self:
            self._emptied(watch.path)
