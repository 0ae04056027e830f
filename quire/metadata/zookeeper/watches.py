"""Watches that stay, made from ZooKeeper's, which fire once.

A path that is watched has up to two armings at the server: one for the node (exists) and, while there is a node, one for
the list of its children. An arming that fires is armed again at once, before its watches are told: the requests of a
session are done in order, so whoever is told and reads again reads after the new arming, and misses nothing. What another client changes between the making of a
watch and its first arming is seen by the node's transaction ids, which are newer than any heard of when it was made;
but for a node that was deleted in that moment, which only a read shows. With the
connection all armings go, and with the next one all are made anew and all watches told.

When the last watch of a path is closed its armings stay at the server, for the next watch of the path. Beyond a bound
the oldest such path is taken back.
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
        """For the first of a watch, the newest transaction heard of then; None for later ones."""
        self._post = post

    def __call__(self, event: Any) -> None:
        self._post(self, event.type)


class Armed(NamedTuple):
    """What is armed, or on its way to be, for a path."""

    node: Arming | None
    children: Arming | None


NOT_ARMED = Armed(None, None)


class ZooKeeperWatches:
    """The watches of one store. All on the event loop.

    `arm_node(arming)` and `arm_children(arming)` send a request with that watcher; the first reports with `node_armed`,
    the second with `no_children` if there was no node, and both with `refused` if the server does not arm it. `newest()` is the newest transaction heard of. `take_back(path, armings)` has the server forget them.
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
        """Armed paths that nobody watches, the oldest first."""
        self._connected = False

    def add(self, path: str) -> TreeWatch:
        """InvalidPathError."""
        watch = self._table.add(path)
        self._idle.pop(path, None)
        if self._connected:
            self._arm(path, self._newest())
        else:
            watch.hold()
        return watch

    def connected(self) -> None:
        """Arm everything, then tell every watch: what happened meanwhile may have been missed."""
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
        """The server told; a word about an arming that is not in force any more is no news."""
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
        """The node was there, last changed by the transaction `changed`, itself or its list of children."""
        if arming.since is not None and changed > arming.since:
            self._table.fire((arming.path,))

    def no_children(self, arming: Arming) -> None:
        """There was no node, so the children are not watched; the node's own arming tells when it comes."""
        armed = self._armed.get(arming.path, NOT_ARMED)
        if arming is armed.children:
            self._keep(arming.path, armed._replace(children=None))

    def refused(self, arming: Arming) -> None:
        """The server does not arm it: no right to read, say. Whoever watches is told, as it will not hear of changes otherwise, and
        meets the reason with its next read. It is tried again when the other arming fires, and with the next connection."""
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
        """The last watch of `path` was closed."""
        if path not in self._armed:
            return
        self._idle[path] = None
        if len(self._idle) > self._idle_max:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            self._take_back(oldest, [arming for arming in self._armed.pop(oldest) if arming is not None])


class _Table(WatchTable):
    """Tells when the last watch of a path is gone."""

    def __init__(self, emptied: Callable[[str], None]) -> None:
        super().__init__()
        self._emptied = emptied

    def remove(self, watch: TreeWatch) -> None:
        super().remove(watch)
        if watch.path not in self:
            self._emptied(watch.path)
