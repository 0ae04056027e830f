"""Shared: round robin over the consumers of the highest priority that can take something (pure).

Why this is hard: fairness, priorities and chunked messages conflict. The chunks of one message go to one consumer, in
order, since only a single consumer can join them. Chunks of other messages lie between, and that consumer may have no
permits. The consumer is remembered from the first delivered chunk to the last.

Source: reading of Pulsar's dispatcher for multiple consumers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Hashable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from broker.dispatch.policies.permits import Permits, Slot
from broker.dispatch.policies.refusal import Refusal, Why

C = TypeVar("C")

CHUNKED_MAX = 10_000
"""Maximum number of chunked messages whose consumers are remembered; the oldest are dropped first."""
ANYBODY = True
"""Group of entries that any consumer may have."""


class Chunk(NamedTuple):
    """Facts about an entry that is a chunk of a message."""

    key: int
    """Identity of the chunked message; the same for all its chunks, and not 0."""
    last: bool


class _Level(Generic[C]):
    """The consumers of one priority."""

    __slots__ = ("slots", "turn")

    def __init__(self) -> None:
        self.slots: list[Slot[C]] = []
        self.turn = 0
        """Index of the one whose turn is next."""

    def next(self) -> Slot[C] | None:
        """Return the next consumer that can take something, and make it the current turn; None if none can."""
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
    """Assignment of runs of entries. Priority 0 goes first; a lower level gets what the higher ones cannot take."""

    __slots__ = ("_chunked", "_levels", "_priorities", "batch_max", "forgotten")

    def __init__(self, batch_max: int = 20) -> None:
        """Take the number of entries that one consumer gets before the next one's turn."""
        assert batch_max > 0
        super().__init__()
        self.batch_max = batch_max
        self._levels: dict[int, _Level[C]] = {}
        self._priorities: list[int] = []
        self._chunked: dict[int, Slot[C]] = {}
        """Consumers of the first chunks of a message, by its key."""
        self.forgotten: list[int] = []
        """Keys whose group became ANYBODY; the caller removes them."""

    def add(self, consumer: C, priority: int = 0) -> None:
        """Add a consumer, without permits. `priority`: 0 is the highest."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            insort(self._priorities, priority)
        level.slots.append(self._add(consumer))

    def remove(self, consumer: C) -> None:
        """Remove a consumer. The caller delivers again what it held."""
        slot = self._slots.pop(consumer)
        if self._chunked:
            self._chunked = {key: holder for key, holder in self._chunked.items() if holder is not slot}
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
        """Assign a run of entries that have `counts` messages each (at least 1) to consumers.

        Returns (consumer, start, stop) in order, covering the run from its first entry on. Entries behind the last stop
        are not assigned. Permits go down by messages, below 0 by less than one entry's."""
        assigned: list[tuple[C, int, int]] = []
        total = len(counts)
        at = 0
        while at < total and (slot := self._next()) is not None:
            start = at
            stop = min(at + self.batch_max, total)
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

    def assign_chunks(
        self, counts: Sequence[int], chunks: Sequence[Chunk | None], waiting: Container[int] = ()
    ) -> tuple[list[tuple[C, list[int]]], list[int], int]:
        """Assign a run in which some entries are `chunks`.

        `waiting`: keys of which an older chunk waits to be delivered again. Returns the indexes per consumer, in order;
        those of chunks that only a consumer without permits may have; and the index at which the run was cut because no
        consumer can take more."""
        given: dict[C, list[int]] = {}
        blocked: list[int] = []
        held_back: set[int] = set()
        turn: Slot[C] | None = None
        left = 0
        for index, chunk in enumerate(chunks):
            slot = None if chunk is None else self._chunked.get(chunk.key)
            if chunk is not None and (
                chunk.key in waiting or chunk.key in held_back or (slot is not None and not slot.is_ready)
            ):
                blocked.append(index)
                held_back.add(chunk.key)
                continue
            if slot is None:
                if turn is None or not left or not turn.is_ready:
                    turn = self._next()
                    left = self.batch_max
                    if turn is None:
                        return list(given.items()), blocked, index
                left -= 1
                slot = turn
            if chunk is not None:
                self._remember(chunk, slot)
            slot.permits -= counts[index]
            given.setdefault(slot.consumer, []).append(index)
        return list(given.items()), blocked, len(chunks)

    def _remember(self, chunk: Chunk, slot: Slot[C]) -> None:
        if chunk.last:
            if self._chunked.pop(chunk.key, None) is not None:
                self.forgotten.append(chunk.key)
        elif chunk.key not in self._chunked:
            self._chunked[chunk.key] = slot
            if len(self._chunked) > CHUNKED_MAX:
                oldest = next(iter(self._chunked))
                del self._chunked[oldest]
                self.forgotten.append(oldest)

    def refusal(self, key: int) -> Refusal[C] | None:
        """Return why an entry of that key (0: not a chunk) is given to no consumer; None if one gets it."""
        slot = self._chunked.get(key)
        if slot is not None:
            return None if slot.is_ready else Refusal(Why.BUSY, slot.consumer, slot.consumer)
        return None if self.has_permits else Refusal(Why.NO_TAKER)

    def group_of(self, key: int) -> Hashable:
        """Return the group of entries of that key: ANYBODY, or the slot of one consumer."""
        return self._chunked.get(key, ANYBODY)

    def ready_groups(self) -> Iterator[Hashable]:
        """Return the groups of which something can be delivered now."""
        if self.has_permits:
            yield ANYBODY
            if self._chunked:
                yield from (slot for slot in self._slots.values() if slot.is_ready)

    def _next(self) -> Slot[C] | None:
        for priority in self._priorities:
            slot = self._levels[priority].next()
            if slot is not None:
                return slot
        return None


class _NoConsumers(Shared[Any]):
    """Stand-in of the policies of subscriptions without consumers, of which there are thousands: shared."""

    __slots__ = ()

    def add(self, consumer: Any, priority: int = 0) -> None:
        raise AssertionError("a subscription has a policy of its own before it has a consumer")


NO_CONSUMERS: Final[Shared[Any]] = _NoConsumers()
