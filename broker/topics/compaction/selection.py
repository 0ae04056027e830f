"""Selection of the newest message of each key (pure).

Why this is hard: a topic has more keys than fit in memory, and its values are many times as large. So the topic is read
twice, first to decide, then to copy. The decision is a bit per unit. Keys are held only while they are compared: up to
`keys_max` of them, those of one part of all hash values. If there are more, the part is made smaller, and what was left
out of it is decided when the topic is read again, as often as needed. A read finds the same units in the same order,
because nothing is trimmed that was not compacted yet.

Chunks of one message are one value. Those of a message whose end is not there yet are kept: the next compaction finds
the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.topics.compaction.units import ChunkPlace, Key, MessageUnit

PARTS: Final = 1024
"""Parts of the hash values. Small ones: the step that drops one is short, and so is the growth of its dict."""
OPEN_MESSAGES_MAX: Final = 1000
"""Chunked messages without their end. The oldest one is given up for one more."""
_SEGMENT_BITS: Final = 1 << 16


class TooManyKeysError(Exception):
    """More keys than can be compared with any number of reads."""


class Bits:
    """One bit for each unit, in segments: to grow copies nothing."""

    __slots__ = ("_segments", "count")

    def __init__(self) -> None:
        self._segments: list[bytearray] = []
        self.count = 0
        """Number of bits that are set."""

    def __getitem__(self, number: int) -> bool:
        segment, at = divmod(number, _SEGMENT_BITS)
        return segment < len(self._segments) and bool(self._segments[segment][at >> 3] >> (at & 7) & 1)

    def set(self, number: int) -> None:
        segment, at = divmod(number, _SEGMENT_BITS)
        while segment >= len(self._segments):
            self._segments.append(bytearray(_SEGMENT_BITS >> 3))
        self.count += not self[number]
        self._segments[segment][at >> 3] |= 1 << (at & 7)

    def clear(self, number: int) -> None:
        if self[number]:
            segment, at = divmod(number, _SEGMENT_BITS)
            self._segments[segment][at >> 3] &= ~(1 << (at & 7))
            self.count -= 1


class Selection:
    """Selection among the units of one topic; see the module. Use:

    while selection.begin_read():
        selection.add(units)  # all units, from the first one on
    """

    def __init__(self, keys_max: int) -> None:
        self.kept = Bits()
        """By number of the unit, from 0. Final after the last read."""
        self.units = 0
        """Units of this read so far."""
        self._keys_max = keys_max
        self._latest: list[dict[Key, int | tuple[int, ...]]] = []
        """By part of this read: units of the newest value of each key."""
        self._keys = 0
        self._open: dict[tuple[Key, Key], tuple[int, list[int]]] = {}
        """Chunked messages without their end: part, and units."""
        self._first, self._end = 0, 0
        """Parts of this read; the second is exclusive."""

    @property
    def keys(self) -> int:
        """Return how many keys are held."""
        return self._keys

    def begin_read(self) -> bool:
        """Begin to read from the first unit; return False if all is decided."""
        if self._end == PARTS:
            return False
        self._first, self._end = self._end, PARTS
        self._latest = [{} for _ in range(self._first, self._end)]
        self._open = {}
        self.units = self._keys = 0
        return True

    def add(self, units: Iterable[MessageUnit]) -> None:
        """Decide about the next units. Raises TooManyKeysError."""
        for key, size, chunk in units:
            at = self.units
            self.units += 1
            if key is None:
                if size:
                    self.kept.set(at)
                continue
            part = hash(key) % PARTS
            if not self._first <= part < self._end:
                continue
            value = at if chunk is None else self._completed(part, at, chunk)
            if value is None:
                continue
            latest = self._latest[part - self._first]
            old = latest.get(key)
            if old is not None:
                self._clear(old)
            if size > 0:
                latest[key] = value
                self._keys += old is None
                if chunk is None:
                    self.kept.set(at)
                if self._keys > self._keys_max:
                    self._narrow()
            elif old is not None:
                del latest[key]
                self._keys -= 1

    def _completed(self, part: int, at: int, chunk: ChunkPlace) -> tuple[int, ...] | None:
        """Return all units of a chunked message whose last chunk this is; None: it is not complete.

        A chunk without the ones before it is dropped, as consumers do."""
        message, number, total = chunk
        if number == 0:
            self._give_up(message)
            if len(self._open) >= OPEN_MESSAGES_MAX:
                self._give_up(next(iter(self._open)))
            self._open[message] = part, []
        known = self._open.get(message)
        if known is None or len(known[1]) != number:
            return None
        known[1].append(at)
        self.kept.set(at)
        if number < total - 1:
            return None
        del self._open[message]
        return tuple(known[1])

    def _give_up(self, message: tuple[Key, Key]) -> None:
        known = self._open.pop(message, None)
        if known is not None:
            self._clear(tuple(known[1]))

    def _clear(self, units: int | Sequence[int]) -> None:
        for unit in (units,) if isinstance(units, int) else units:
            self.kept.clear(unit)

    def _narrow(self) -> None:
        """Leave parts to a later read, until what is held is within the bound."""
        while self._keys > self._keys_max:
            if self._end - self._first == 1:
                raise TooManyKeysError(f"more than {self._keys_max * PARTS} keys")
            self._end -= 1
            dropped = self._latest.pop()
            self._keys -= len(dropped)
            for units in dropped.values():
                self._clear(units)
            for message in [each for each, (part, _) in self._open.items() if part == self._end]:
                self._give_up(message)
