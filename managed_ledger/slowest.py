"""The slowest of many cursors, known without a look at each of them. Pure.

A heap has for each cursor a position at or before the one where it stands: cursors go forward nearly always, and one that did
is looked at again only when it comes up. What goes back has to be noted (`moved_back`). So an acknowledgement costs the
same whether the log has one subscription or thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

from quire.ledger.position import Position

C = TypeVar("C", bound=Hashable)


class Slowest(Generic[C]):
    """`position_of` says where a cursor stands."""

    __slots__ = ("_added", "_heap", "_numbers", "_position_of")

    def __init__(self, position_of: Callable[[C], Position]) -> None:
        self._position_of = position_of
        self._heap: list[tuple[Position, int, C]] = []
        self._numbers: dict[C, int] = {}
        """Of the one element of the heap that counts, by cursor."""
        self._added = 0

    def add(self, cursor: C) -> None:
        self._added += 1
        self._numbers[cursor] = self._added
        if len(self._heap) > 2 * len(self._numbers) + 64:  # mostly elements that do not count any more
            self._heap = [each for each in self._heap if self._numbers.get(each[2]) == each[1]]
            heapify(self._heap)
        heappush(self._heap, (self._position_of(cursor), self._added, cursor))

    def discard(self, cursor: C) -> None:
        self._numbers.pop(cursor, None)

    def moved_back(self, cursor: C) -> None:
        """The cursor stands, or may stand, before the place where it was."""
        if cursor in self._numbers:
            self.add(cursor)

    def position(self) -> Position | None:
        """Where the slowest stands; None if there is no cursor."""
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
