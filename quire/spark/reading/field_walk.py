"""Reading of the same fields of many messages at once, from their bytes. Pure.

Why this is hard: protobuf's fields have no fixed places, and a loop in Python costs more for a message than everything
else that is done with it. But producers write the same few fields, in the order of their numbers. So all messages are
walked together, one field after the other: each step is a few operations on whole arrays. A message that has anything
else, or writes it in another way, ends the walk: `usual` is False then, and the messages are left to protobuf.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]
Octets: TypeAlias = NDArray[np.uint8]

PAD = bytes(512)
"""Bytes that must follow the last message, because sizes are read before they are checked."""
_VARINT_MAX = 9
"""Longer varints may not fit 63 bits."""
_TEXT_MAX = 0x7F
"""Longest text whose size is one byte."""
_ALL = slice(None)


class TextSpans(NamedTuple):
    """TextSpans of messages, as places in their bytes."""

    starts: Numbers
    sizes: Numbers
    """In bytes; -1: the message has none."""


class Pairs(NamedTuple):
    """Properties that have the same number in their messages."""

    rows: Numbers
    names: TextSpans
    values: TextSpans


class FieldWalk:
    """Walk over the fields of messages: call its methods in the order of the fields, and look at `usual` then."""

    def __init__(self, data: Octets, starts: Numbers, stops: Numbers) -> None:
        """`data` ends with PAD; `starts` and `stops` (exclusive) are the bounds of each message in it."""
        self._data = data
        self._at = starts.copy()
        self._stops = stops
        self._usual = True

    @property
    def usual(self) -> bool:
        """Return whether every message had the fields asked for, in this order, and no others."""
        return self._usual and bool((self._at == self._stops).all())

    def require(self, *tag: int) -> None:
        """Check that the next field of every message is this one."""
        if self._having(tag) is not _ALL:
            self._usual = False

    def text(self, *tag: int) -> TextSpans | None:
        """Return the texts of a field; None: no message has it."""
        rows = self._having(tag)
        if rows is None:
            return None
        starts = self._at[rows] + (len(tag) + 1)
        sizes = self._data[starts - 1].astype(np.int64)
        if sizes.max() > _TEXT_MAX or not self._move(rows, starts + sizes):
            self._usual = False
            return None
        if rows is _ALL:
            return TextSpans(starts, sizes)
        found = TextSpans(np.zeros(len(self._at), np.int64), np.full(len(self._at), -1, np.int64))
        found.starts[rows], found.sizes[rows] = starts, sizes
        return found

    def number(self, *tag: int) -> Numbers | None:
        """Return the numbers of a field, 0 where a message has none; None: no message has it."""
        rows = self._having(tag)
        if rows is None:
            return None
        at = self._at[rows] + len(tag)
        octets = self._data[at].astype(np.int64)
        at += 1
        numbers = octets & 0x7F
        for step in range(1, _VARINT_MAX + 1):
            more = octets > 0x7F
            if not more.any():
                break
            if step == _VARINT_MAX:
                self._usual = False
                return None
            octets = np.where(more, self._data[at], 0).astype(np.int64)
            numbers |= (octets & 0x7F) << (7 * step)
            at += more
        if not self._move(rows, at):
            return None
        if rows is _ALL:
            return numbers
        found = np.zeros(len(self._at), np.int64)
        found[rows] = numbers
        return found

    def skip_number(self, *tag: int) -> None:
        """Pass a field that is not wanted."""
        rows = self._having(tag)
        if rows is None:
            return
        at = self._at[rows] + len(tag)
        for _ in range(_VARINT_MAX):
            more = self._data[at] > 0x7F
            at += 1
            if not more.any():
                break
            if not more.all():  # back to the last byte of those that have ended
                at -= ~more
        else:
            self._usual = False
        self._move(rows, at)

    def pairs(self, tag: int) -> list[Pairs]:
        """Return the properties of a repeated field: first those that are the first of their messages."""
        found: list[Pairs] = []
        data = self._data
        while (rows := self._having((tag,))) is not None:
            at = self._at[rows]
            after = at + 2 + data[at + 1]
            name_sizes = data[at + 3].astype(np.int64)
            middle = at + 4 + name_sizes
            good = data[at + 2] == 0x0A
            good &= data[at + 1] <= _TEXT_MAX
            good &= data[middle] == 0x12
            good &= data[middle + 1] == after - middle - 2
            # Made before the walk moves on, because `at` may be a view of its places.
            names, values = TextSpans(at + 4, name_sizes), TextSpans(middle + 2, after - middle - 2)
            if not good.all() or not self._move(rows, after):
                self._usual = False
                break
            found.append(Pairs(np.arange(len(self._at))[rows], names, values))
        return found

    def _having(self, tag: tuple[int, ...]) -> slice | Numbers | None:
        """Return the messages whose next field has this tag; None: there is none, or the walk has ended."""
        if not self._usual:
            return None
        found = self._data[self._at] == tag[0]
        found &= self._at < self._stops
        if len(tag) > 1:
            found &= self._data[self._at + 1] == tag[1]
        count = np.count_nonzero(found)
        if count == len(found):
            return _ALL
        return np.flatnonzero(found) if count else None

    def _move(self, rows: slice | Numbers, to: Numbers) -> bool:
        """Continue behind a field; return False if it ends behind its message."""
        if (to > self._stops[rows]).any():
            self._usual = False
            return False
        self._at[rows] = to
        return True
