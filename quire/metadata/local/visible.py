"""Nodes of the embedded store that are in memory, as readers see them (pure).

Why this is hard: the map on the disk may be ahead of what readers may see, or behind it. It has rows of writes that are
not synced yet, and of writes that failed, and none of ephemeral nodes. A node of which any of that holds is unsettled
and stays in memory. All others can be forgotten at any time and read again.

What is absent is known too: by a read of the node, because its parent is known to be absent, or because all names below
its parent are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as SetOf
from enum import Enum
from typing import Final, TypeAlias

from quire.metadata import paths
from quire.metadata.local.tree import NOBODY, Znode

HALF_BYTES: Final = 2 << 20
"""Estimated memory of one generation; there are two."""
NODE_COST: Final = 300
"""Estimated bytes of a node or a name, beside its path and its value."""
LISTED_MAX: Final = 1000
"""Names above which the list of a node's children is not kept."""

SOME_MAX: Final = 1000
"""Nodes of which the names of some children are kept."""


class Unknown(Enum):
    """Type of UNKNOWN."""

    UNKNOWN = "has to be read"


UNKNOWN: Final = Unknown.UNKNOWN
Found: TypeAlias = Znode | Unknown | None


class VisibleNodes:
    """Nodes, and lists of children, in two generations: what is not used while one fills is forgotten."""

    __slots__ = ("_half_bytes", "_names", "_nodes", "_old_names", "_old_nodes", "_room", "ephemerals", "some_names")

    def __init__(self, half_bytes: int = HALF_BYTES) -> None:
        self.ephemerals: dict[str, None] = {}
        """Paths of the ephemeral nodes, oldest first."""
        self._half_bytes = half_bytes
        self._room = half_bytes
        self._nodes: dict[str, Znode | None] = {}
        """None: there is no such node."""
        self._old_nodes: dict[str, Znode | None] = {}
        self._names: dict[str, dict[str, None]] = {}
        """All names of children, by path."""
        self._old_names: dict[str, dict[str, None]] = {}
        self.some_names: dict[str, dict[str, None]] = {}
        """Names of some children, of nodes with too many to know all."""

    def find(self, path: str) -> Found:
        """Return a node; None if there is none. Raises InvalidPathError for a path that no node can have."""
        node: Found = self._nodes.get(path, UNKNOWN)
        if node is UNKNOWN:
            node = self._old_nodes.get(path, UNKNOWN)
            if not isinstance(node, Unknown):
                self._keep(path, node)
            elif paths.check(path) != paths.ROOT and self._is_absent(path):
                return None
        return node

    def is_unknown(self, path: str) -> bool:
        """Return whether `find` returns UNKNOWN for a path that a node can have."""
        known = path in self._nodes or path in self._old_nodes
        return not known and (path == paths.ROOT or not self._is_absent(path))

    def holds(self, found: SetOf[str]) -> bool:
        """Return whether all these nodes are kept themselves; see `hold`."""
        return self._nodes.keys() >= found

    def _is_absent(self, path: str) -> bool:
        folder = paths.parent(path)
        above: Found = self._nodes.get(folder, UNKNOWN)
        if above is UNKNOWN:
            above = self._old_nodes.get(folder, UNKNOWN)
        if above is None:
            return True
        names = self.names(folder)
        return names is not None and paths.name(path) not in names

    def learn(self, path: str, node: Znode | None) -> None:
        """Keep what was read of a node, or is deduced of it."""
        self._keep(path, node)

    def hold(self, path: str) -> None:
        """Keep a known node itself, and not only what it is deduced from, because it becomes unsettled."""
        if path not in self._nodes:
            node = self.find(path)
            assert not isinstance(node, Unknown), f"{path} was planned, so it is known"
            self._keep(path, node)

    def names(self, folder: str) -> Mapping[str, None] | None:
        """Return the names of all children; None: they have to be read. Only for a node that exists."""
        names = self._names.get(folder)
        if names is None:
            names = self._old_names.pop(folder, None)
            if names is not None:
                self._keep_names(folder, names)
        return names

    def learn_names(self, folder: str, names: Iterable[str]) -> None:
        """Keep the names of all children of a node."""
        self._keep_names(folder, dict.fromkeys(names))

    def apply(self, effects: Mapping[str, Znode | None]) -> list[str]:
        """Make `effects`, on nodes that are known, visible; return the paths whose node, or whose list of children,
        changed: watches report these."""
        changed: dict[str, None] = {}
        nodes = self._nodes
        for path, node in effects.items():
            old: Found = nodes.get(path, UNKNOWN)
            if old is UNKNOWN:
                old = self.find(path)
            assert old is not UNKNOWN, f"{path} was planned, so it is known"
            if node == old:
                continue
            changed[path] = None
            self._keep(path, node)
            if (old is None) != (node is None):
                changed[self._exists(path, node is not None)] = None
            if node is None or node.owner == NOBODY:
                self.ephemerals.pop(path, None)
            else:
                self.ephemerals[path] = None
        return list(changed)

    def _exists(self, path: str, exists: bool) -> str:
        """Change the list of children that the node is in, and begin or end its own. Return the parent."""
        self._old_names.pop(path, None)
        if exists:
            self._names[path] = {}
            self._room -= NODE_COST + len(path)
        else:
            self._names.pop(path, None)
        at = path.rindex("/")  # `paths` would be five calls more, for each of thousands of nodes
        folder, name = path[:at] or paths.ROOT, path[at + 1 :]
        if not exists and (some := self.some_names.get(folder)) is not None:
            some.pop(name, None)
        if self.names(folder) is None:
            return folder
        siblings = self._names[folder]
        if not exists:
            siblings.pop(name, None)
        elif len(siblings) < LISTED_MAX:
            siblings[name] = None
            self._room -= NODE_COST
        else:
            del self._names[folder]
        return folder

    def _keep(self, path: str, node: Znode | None) -> None:
        self._nodes[path] = node
        self._room -= NODE_COST + len(path) + (0 if node is None else len(node.value))

    def _keep_names(self, folder: str, names: dict[str, None]) -> None:
        self._names[folder] = names
        self._room -= NODE_COST * (1 + len(names)) + len(folder)

    @property
    def is_full(self) -> bool:
        """Return whether `age` is due."""
        return self._room < 0

    def age(self, unsettled: Iterable[str]) -> None:
        """Forget what was not used since the last call, but no ephemeral node, and none of these."""
        kept: dict[str, Znode | None] = {}
        for path in (*self.ephemerals, *unsettled):
            node = self.find(path)
            assert not isinstance(node, Unknown), f"{path} is unsettled, so it is known"
            kept[path] = node
        self._old_nodes, self._nodes = self._nodes, kept
        self._old_names, self._names = self._names, {}
        if len(self.some_names) > SOME_MAX:
            self.some_names = {}
        self._room = self._half_bytes
