"""The tree of nodes behind the embedded stores (pure): validation and effects of ops.

`plan` applies a list of ops to a view of the nodes and returns their effects, without changing anything; `Tree.apply`
makes effects visible. So a store may validate against more than it shows (pending writes).

Sequence numbers come from a counter in the parent that grows with every child created, sequential or not, and never
goes back while the parent lives. Source: ZooKeeper's cversion, counted in creates; seen in tests/golden/bookkeeper/zk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from quire.metadata import paths
from quire.metadata.errors import (
    BadVersionError,
    InvalidPathError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from quire.metadata.store import ANY_VERSION, Check, Create, Delete, Kind, Op, Put

NOBODY = 0
"""Owner of a persistent node; sessions count from 1."""


class Znode(NamedTuple):
    value: bytes
    version: int
    owner: int
    """Session that created it, if it is ephemeral; NOBODY otherwise."""
    counter: int
    """Number of children ever created here: the next sequence number."""


EMPTY_ROOT = Znode(b"", 0, NOBODY, 0)

Effects: TypeAlias = dict[str, Znode | None]
"""Path to the node's new state; None: it is deleted."""


class NodesView(Protocol):
    """Nodes that ops are validated against. Both may raise an error of the view, which `plan` passes on."""

    def get(self, path: str, /) -> Znode | None: ...

    def child_count(self, path: str, /) -> int:
        """Return the number of its children; 0 without a node."""


class Plan(NamedTuple):
    effects: Effects
    kept: dict[str, None]
    """Paths among the effects that a durable store must write, in order: values, created and deleted persistent nodes,
    and counters from which a sequence number was taken.

    The other effects can be rebuilt.
    """
    results: list[str]
    """Result per op: the path created, or the op's own."""


def plan(view: NodesView, ops: Sequence[Op], session: int) -> Plan:
    """Return the effects of `ops`, in order, all or nothing, on the nodes of `view`.

    `session` owns the ephemeral ones. Raises the first failing op's error with its `.index`.
    """
    draft = Draft(view, session)
    draft.do_all(ops)
    return draft.plan()


class Draft:
    """Effects of the ops so far, on top of the original nodes."""

    __slots__ = ("_born", "_results", "_session", "_view", "effects", "kept")

    def __init__(self, view: NodesView, session: int) -> None:
        self._view = view
        self._session = session
        self._born: dict[str, int] = {}
        """Children created less those deleted by the ops so far, by the path of their parent."""
        self.effects: Effects = {}
        self.kept: dict[str, None] = {}
        self._results: list[str] = []

    def plan(self) -> Plan:
        """Return the plan of all ops so far."""
        return Plan(self.effects, self.kept, self._results)

    def do_all(self, ops: Sequence[Op]) -> None:
        """Add ops. Raises the first failing op's error with its `.index` among all so far."""
        results = self._results
        for op in ops:
            try:
                results.append(self._do(op))
            except MetadataError as error:
                error.index = len(results)
                raise

    def _do(self, op: Op) -> str:
        if isinstance(op, Create):
            return self._create(op)
        path = op.path
        node = self._node(path)
        if node is None:
            raise NoNodeError(f"there is no node {paths.check(path)}")
        if op.version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {op.version}")
        if isinstance(op, Put):
            self.effects[path] = Znode(op.value, node.version + 1, node.owner, node.counter)
            if node.owner == NOBODY:
                self.kept[path] = None
        elif isinstance(op, Delete):
            self._delete(path, node)
        else:
            assert isinstance(op, Check), f"{op!r} is not an op"
        return path

    def _node(self, path: str) -> Znode | None:
        return self.effects[path] if path in self.effects else self._view.get(path)

    def _existing(self, path: str) -> Znode:
        node = self._node(path)
        if node is None:
            raise NoNodeError(f"there is no node {path}")
        return node

    def _create(self, op: Create) -> str:
        # A sequential path may end with a slash: then the number is the whole name.
        folder = paths.parent(paths.check(f"{op.path}0" if op.sequential else op.path))
        above = self._node(folder)
        if above is None:
            if not op.make_parents:
                raise NoNodeError(f"{op.path} cannot be created: there is no node {folder}")
            self._create(Create(path=folder, make_parents=True))
            above = self._existing(folder)
        if above.owner != NOBODY:
            raise InvalidPathError(f"{op.path} cannot be created: {folder} is ephemeral and has no children")
        path = f"{op.path}{above.counter:010d}" if op.sequential else op.path
        if self._node(path) is not None:
            raise NodeExistsError(f"there is a node {path} already")
        self.effects[folder] = Znode(above.value, above.version, above.owner, above.counter + 1)
        self._born[folder] = self._born.get(folder, 0) + 1
        if op.sequential:
            self.kept[folder] = None
        if op.kind is Kind.EPHEMERAL:
            assert self._session != NOBODY, "an ephemeral node needs a session"
            self.effects[path] = Znode(op.value, 0, self._session, 0)
        else:
            self.effects[path] = Znode(op.value, 0, NOBODY, 0)
            self.kept[path] = None
        return path

    def _delete(self, path: str, node: Znode) -> None:
        if path == paths.ROOT:
            raise InvalidPathError("the root cannot be deleted")
        if node.owner == NOBODY and self._view.child_count(path) + self._born.get(path, 0) > 0:
            raise NotEmptyError(f"{path} has children")
        folder = paths.parent(path)
        self._born[folder] = self._born.get(folder, 0) - 1
        self.effects[path] = None
        if node.owner == NOBODY:
            self.kept[path] = None


class Tree:
    """The nodes visible to readers."""

    __slots__ = ("_ephemerals", "_names", "nodes")

    def __init__(self, nodes: dict[str, Znode] | None = None, names: dict[str, dict[str, None]] | None = None) -> None:
        """Take the nodes by path, and the names of the children of each path that has any; None: the root alone."""
        self.nodes: dict[str, Znode] = nodes or {paths.ROOT: EMPTY_ROOT}
        self._names: dict[str, dict[str, None]] = names or {}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Znode | None:
        return self.nodes.get(path)

    def child_count(self, path: str) -> int:
        """Return the number of children; 0 without a node."""
        return len(self._names.get(path, ()))

    def children(self, path: str) -> list[str]:
        """Return the names of the children, sorted; NoNodeError."""
        if path not in self.nodes:
            raise NoNodeError(f"there is no node {path}")
        return sorted(self._names.get(path, ()))

    def ephemerals(self, session: int) -> list[str]:
        """Return the paths of the nodes that `session` owns, oldest first."""
        return list(self._ephemerals.get(session, ()))

    def apply(self, effects: Mapping[str, Znode | None]) -> list[str]:
        """Make `effects` visible; return the paths whose node, or whose list of children, changed: watches report
        these.
        """
        nodes = self.nodes
        changed: dict[str, None] = {}
        for path, node in effects.items():
            old = nodes.get(path)
            if node == old:
                continue
            changed[path] = None
            if old is None or node is None:
                changed[paths.parent(path)] = None
            if old is not None and (node is None or node.owner != old.owner):
                self._forget(path, old)
            if node is None:
                del nodes[path]
                continue
            nodes[path] = node
            if old is None or node.owner != old.owner:
                self._names.setdefault(paths.parent(path), {})[paths.name(path)] = None
                if node.owner != NOBODY:
                    self._ephemerals.setdefault(node.owner, {})[path] = None
        return list(changed)

    def _forget(self, path: str, old: Znode) -> None:
        folder = paths.parent(path)
        names = self._names[folder]
        del names[paths.name(path)]
        if not names:
            del self._names[folder]
        if old.owner != NOBODY:
            owned = self._ephemerals[old.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[old.owner]
