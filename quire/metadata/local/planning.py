"""Nodes that writes of the embedded store are planned on, and plans of very many ops (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from quire.metadata.local.rows import row_key, row_value
from quire.metadata.local.tree import NOBODY, Draft, Effects, Plan, Znode
from quire.metadata.local.visible import Unknown, VisibleNodes
from quire.metadata.store import Check, Op

OPS_IN_STEP: Final = 500
"""Ops that are planned, or read for, in one step of the event loop: a millisecond or two."""

Row: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a row to put, or to delete (None)."""


class NotInMemoryError(Exception):
    """A node, or the number of its children, has to be read before the ops can be planned."""

    def __init__(self, path: str, *, children: bool = False) -> None:
        super().__init__(path)
        self.path = path
        self.children = children


class LatestNodes:
    """Nodes as they will be when pending writes are durable."""

    __slots__ = ("_overlay", "_visible", "deletes")

    def __init__(self, visible: VisibleNodes, overlay: Mapping[str, tuple[Znode | None, object]]) -> None:
        """Take the visible nodes, and the effects of pending writes by path."""
        self._visible = visible
        self._overlay = overlay
        self.deletes = 0
        """Number of deletions among the ops that are planned now: of more children than that, some are left."""

    def get(self, path: str) -> Znode | None:
        pending = self._overlay.get(path)
        if pending is not None:
            return pending[0]
        node = self._visible.find(path)
        if isinstance(node, Unknown):
            raise NotInMemoryError(path)
        return node

    def child_count(self, path: str) -> int:
        """Return the number of children, or one that is above `deletes` and not above theirs."""
        visible = self._visible.find(path)
        names = {} if visible is None else self._visible.names(path)
        start = f"{path}/"
        if names is None:
            found = 0
            for name in self._visible.some_names.get(path, ()):
                pending = self._overlay.get(start + name)
                found += pending is None or pending[0] is not None
            if found > self.deletes:
                return found
            raise NotInMemoryError(path, children=True)
        count = len(names)
        for each, (node, _) in self._overlay.items():
            if each.startswith(start) and "/" not in each[len(start) :]:
                count += (node is not None) - (each[len(start) :] in names)
        return count


class StepwisePlan:
    """Plan of a write of very many ops, made in steps of the event loop, beside other writes.

    Why this is hard: a plan holds on top of the nodes it has looked at, and others write between its steps. Each node
    that it has looked at is among its effects, or was checked. So it holds if no other write has changed one of these,
    and all are still in memory."""

    __slots__ = ("_draft", "_ops", "_rows", "_visible", "disturbed")

    def __init__(self, visible: VisibleNodes, latest: LatestNodes, ops: Sequence[Op], session: int) -> None:
        self._visible = visible
        self._ops = ops
        self._draft = Draft(latest, session)
        self._rows: list[Row] = []
        self.disturbed: set[str] = set()
        """Paths that others have written meanwhile. Added by the store."""

    def steps(self) -> Iterator[None]:
        """Yield between two steps. Raises NotInMemoryError, MetadataError."""
        for start in range(0, len(self._ops), OPS_IN_STEP):
            if start:
                yield
            self._draft.do_all(self._ops[start : start + OPS_IN_STEP])
        effects = self._draft.effects
        for number, path in enumerate(effects):
            if not number % OPS_IN_STEP:
                yield
            if self._visible.is_unknown(path):
                return  # forgotten meanwhile
            self._visible.hold(path)
        for number, path in enumerate(self._draft.kept):
            if not number % OPS_IN_STEP:
                yield
            self._rows.append(row_of(path, effects))

    def result(self) -> tuple[Plan, list[Row]] | None:
        """Return the plan and its rows; None if it does not hold, and has to be made again."""
        plan, disturbed = self._draft.plan(), self.disturbed
        checked = [op.path for op in self._ops if isinstance(op, Check)]
        if not (disturbed.isdisjoint(plan.effects) and disturbed.isdisjoint(checked)):
            return None
        return (plan, self._rows) if self._visible.holds(plan.effects.keys()) else None


def row_of(path: str, effects: Effects) -> Row:
    """Return the row of a node after these effects."""
    node = effects[path]
    return row_key(path), None if node is None or node.owner != NOBODY else row_value(node)
