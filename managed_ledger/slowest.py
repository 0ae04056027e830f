"""The slowest of many cursors, without a walk over all of them. Pure.

A heap has for each cursor a position at or before the one where it stands: cursors go forward nearly always, and one
that did is looked at again only when it comes up. What goes back has to be noted (`moved_back`). So an acknowledgement
costs the same whether the log has one subscription or thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

from quire.ledger.position import Position

C = TypeVar("C", bound=Hashable)


class Slowest(Generic[C]):
    """Heap of cursors by position. `position_of` returns the position of a cursor."""

    __slots__ = ("_added", "_heap", "_numbers", "_position_of")

    def __init__(self, position_of: Callable[[C], Position]) -> None:
        self._position_of = position_of
        self._heap: list[tuple[Position, int, C]] = []
        self._numbers: dict[C, int] = {}
        """Position of the valid element of the heap, by cursor."""
        self._added = 0

    def add(self, cursor: C) -> None:
        self._added += 1
        self._numbers[cursor] = self._added
        if len(self._heap) > 2 * len(self._numbers) + 64:  # mostly outdated elements
            self._heap = [each for each in self._heap if self._numbers.get(each[2]) == each[1]]
            heapify(self._heap)
        heappush(self._heap, (self._position_of(cursor), self._added, cursor))

    def discard(self, cursor: C) -> None:
        self._numbers.pop(cursor, None)

    def moved_back(self, cursor: C) -> None:
        """Note that a cursor has, or may have, moved back."""
        if cursor in self._numbers:
            self.add(cursor)

    def position(self) -> Position | None:
        """Return the position of the slowest; None if there is no cursor."""
        heap = self._heap
        while heap:
            known, number, cursor = heap[0]
            if self._numbers.get(cursor) != number:
                heappop(heap)
                continue
            now = self._position_of(cursor)
            if now == known:
                return now
            heapreplace(heap, (now, number, cursor))
        return None
