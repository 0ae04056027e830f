"""Binary search for the first of ordered places that is not before a time, as questions and answers. Pure.

The caller asks `place`, looks what is there, and says whether that is before the time, until there is no question left.
The answers need not be in order, since the clocks of producers may run backwards: then `found` is one of the places
where they pass the time.
"""

from __future__ import annotations


class Halving:
    """One search among the places low <= place < high."""

    __slots__ = ("_first", "_high", "_low")

    def __init__(self, low: int, high: int, *, first_alone: bool = False) -> None:
        """Take the range. `first_alone`: the first question is about its first place, which mostly ends the search."""
        self._low = low
        self._high = max(low, high)
        self._first = first_alone

    @property
    def place(self) -> int | None:
        """Return the place that the next question is about; None: the search is done."""
        if self._low == self._high:
            return None
        return self._low if self._first else (self._low + self._high) // 2

    def answer(self, *, before: bool) -> None:
        """Take the answer for `place`."""
        asked = self.place
        assert asked is not None, "no question is open"
        if before:
            self._low = asked + 1
        else:
            self._high = asked
        self._first = False

    @property
    def found(self) -> int:
        """Return the first place that is not before the time; the end of the range if all are."""
        assert self._low == self._high, "the search is not done"
        return self._low
