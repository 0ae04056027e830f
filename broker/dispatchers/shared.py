"""Shared: round robin over the consumers of the highest priority that can take something (pure).

Source: reading of Pulsar's dispatcher for multiple consumers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Generic, TypeVar

from broker.dispatchers.permits import Permits, Slot

C = TypeVar("C")


class _Level(Generic[C]):
    """The consumers of one priority."""

    __slots__ = ("slots", "turn")

    def __init__(self) -> None:
        self.slots: list[Slot[C]] = []
        self.turn = 0
        """Index of the one whose turn is next."""

    def next(self) -> Slot[C] | None:
        """The next one that can take something, whose turn this is then; None if nobody can."""
        slots = self.slots
        count = len(slots)
        for step in range(count):
            index = (self.turn + step) % count
            slot = slots[index]
            if slot.permits > 0 and not slot.paused:
                self.turn = (index + 1) % count
                return slot
        return None


class Shared(Permits[C]):
    """Hands out runs of entries. Priority 0 goes first; a lower level gets what the higher ones cannot take."""

    __slots__ = ("_batch_max", "_levels", "_priorities")

    def __init__(self, batch_max: int = 20) -> None:
        """`batch_max`: entries that one consumer gets before it is the next one's turn."""
        assert batch_max > 0
        super().__init__()
        self._batch_max = batch_max
        self._levels: dict[int, _Level[C]] = {}
        self._priorities: list[int] = []

    def add(self, consumer: C, priority: int = 0) -> None:
        """A consumer joins, without permits. `priority`: 0 is the highest."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            insort(self._priorities, priority)
        level.slots.append(self._add(consumer))

    def remove(self, consumer: C) -> None:
        """A consumer leaves; what it held is the caller's to replay."""
        slot = self._slots.pop(consumer)
        for priority, level in self._levels.items():
            if slot in level.slots:
                index = level.slots.index(slot)
                del level.slots[index]
                if index < level.turn:
                    level.turn -= 1
                if not level.slots:
                    del self._levels[priority]
                    self._priorities.remove(priority)
                elif level.turn == len(level.slots):
                    level.turn = 0
                return

    def assign(self, counts: Sequence[int]) -> list[tuple[C, int, int]]:
        """Who gets which of a run of entries that have `counts` messages each (at least 1).

        Returns (consumer, start, stop) in order, covering the run from its first entry on; what is behind the last stop
        was given to nobody. Permits go down by messages, below 0 by less than one entry's.
        """
        assigned: list[tuple[C, int, int]] = []
        total = len(counts)
        at = 0
        while at < total and (slot := self._next()) is not None:
            start = at
            stop = min(at + self._batch_max, total)
            part = counts[start:stop]
            messages = sum(part)
            if messages - part[-1] < slot.permits:
                slot.permits -= messages
                at = stop
            else:
                while slot.permits > 0:
                    slot.permits -= counts[at]
                    at += 1
            if assigned and assigned[-1][0] is slot.consumer:
                start = assigned.pop()[1]
            assigned.append((slot.consumer, start, at))
        return assigned

    def _next(self) -> Slot[C] | None:
        for priority in self._priorities:
            slot = self._levels[priority].next()
            if slot is not None:
                return slot
        return None
