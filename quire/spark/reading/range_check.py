"""Check of received entries against a planned range. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.spark.planning.ranges import LedgerRange

LOOK_BACK_FIRST = 16
"""Entries of the first step back for the pieces of a chunked message; each further step is four times as long."""


class RangeCheck:
    """Comparison of deliveries with the plan: every planned entry, in order, once, and nothing above it.

    >>> check = RangeCheck((LedgerRange(5, 8, 9), LedgerRange(7, 0, 0)))
    >>> check.accept([5, 5, 7, 7], [8, 9, 0, 1], 0, 4), check.done
    (3, True)
    """

    def __init__(self, ranges: Sequence[LedgerRange]) -> None:
        self._ranges = [each for each in ranges if each.last >= each.first]
        self._index = 0
        self._next = self._ranges[0].first if self._ranges else 0

    @property
    def done(self) -> bool:
        """Return whether every planned entry was received, or given up."""
        return self._index == len(self._ranges)

    @property
    def due(self) -> tuple[int, int]:
        """Return ledger and entry that must come next; not when done."""
        return self._ranges[self._index].ledger_id, self._next

    def accept(self, ledger_ids: list[int], entry_ids: list[int], first: int, stop: int) -> int:
        """Compare deliveries `first` to `stop` (exclusive) with the plan; return the end of the expected ones.

        If that is before `stop` and the range is not done, the entry there is not the expected one."""
        at = first
        while at < stop and not self.done:
            planned = self._ranges[self._index]
            count = min(stop - at, planned.last - self._next + 1)
            if (
                entry_ids[at : at + count] != list(range(self._next, self._next + count))
                or ledger_ids[at : at + count] != [planned.ledger_id] * count
            ):
                found = zip(ledger_ids[at : at + count], entry_ids[at : at + count], strict=True)
                wanted = ((planned.ledger_id, self._next + offset) for offset in range(count))
                count = next(row for row, (came, due) in enumerate(zip(found, wanted, strict=True)) if came != due)
                self._next += count
                return at + count
            at += count
            self._next += count
            if self._next > planned.last:
                self._to_range(self._index + 1)
        return at

    def accept_run(self, ledger_id: int, first: int, entries: int) -> bool:
        """Compare consecutive entries with the plan, all or none; return whether they are the expected ones."""
        if self.done or self.due != (ledger_id, first) or first + entries - 1 > self._ranges[self._index].last:
            return False
        self._next += entries
        if self._next > self._ranges[self._index].last:
            self._to_range(self._index + 1)
        return True

    def skip_to(self, ledger_id: int, entry_id: int) -> list[LedgerRange]:
        """Give up the entries before the received (`ledger_id`, `entry_id`); return them.

        Raises ValueError if that is before the expected entry, or in an order that contradicts the plan."""
        given_up: list[LedgerRange] = []
        index, due = self._index, self._next
        for planned in self._ranges[self._index :]:
            if planned.ledger_id == ledger_id and due <= entry_id <= planned.last:
                if entry_id > due:
                    given_up.append(LedgerRange(ledger_id, due, entry_id - 1))
                self._index, self._next = index, entry_id
                return given_up
            if (ledger_id, entry_id) < (planned.ledger_id, due):
                break
            given_up.append(LedgerRange(planned.ledger_id, due, planned.last))
            index += 1
            due = self._ranges[index].first if index < len(self._ranges) else 0
        if not given_up:
            raise ValueError(f"received {ledger_id}:{entry_id} instead of {self.due[0]}:{self.due[1]}")
        self._index, self._next = index, due
        return given_up

    def give_up(self) -> list[LedgerRange]:
        """Give up the rest, because no more entries exist; return the missing ones."""
        missing = [LedgerRange(each.ledger_id, each.first, each.last) for each in self._ranges[self._index :]]
        if missing:
            missing[0] = LedgerRange(missing[0].ledger_id, self._next, missing[0].last)
        self._to_range(len(self._ranges))
        return missing

    def _to_range(self, index: int) -> None:
        self._index = index
        self._next = self._ranges[index].first if index < len(self._ranges) else 0


def shown(ranges: Sequence[LedgerRange]) -> str:
    """Format entries for a message: `5:0..5:99, 7:0` and how many."""
    parts = [
        f"{each.ledger_id}:{each.first}" + (f"..{each.ledger_id}:{each.last}" if each.last > each.first else "")
        for each in ranges[:4]
    ]
    if len(ranges) > 4:
        parts.append("...")
    count = sum(each.entries for each in ranges)
    return f"{', '.join(parts)} ({count} {'entry' if count == 1 else 'entries'})"


def steps_back(earlier: Sequence[LedgerRange], size: int = LOOK_BACK_FIRST) -> Iterator[list[LedgerRange]]:
    """Yield the entries before a range, the nearest first, in steps that grow fourfold; within a step in the topic's
    order.

    >>> [shown(step) for step in steps_back((LedgerRange(3, 0, 9), LedgerRange(5, 0, 3)), 8)]
    ['3:6..3:9, 5:0..5:3 (8 entries)', '3:0..3:5 (6 entries)']
    """
    left = list(earlier)
    while left:
        step: list[LedgerRange] = []
        room = size
        while left and room:
            last = left.pop()
            first = max(last.first, last.last - room + 1)
            step.insert(0, LedgerRange(last.ledger_id, first, last.last))
            room -= last.last - first + 1
            if first > last.first:
                left.append(LedgerRange(last.ledger_id, last.first, first - 1))
        yield step
        size *= 4
