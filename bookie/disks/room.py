"""DiskRoom: decides from the room on a bookie's disks whether it takes adds (pure).

A disk that is really full lets nothing go any more: acknowledgements, metadata and flushes need room themselves, and only they make
room. So adds end while some is left, and a file of the reserve's size, which nothing else may use, is given up when even that is
gone.

    writable --- free < unflushed + ahead + spare, or a write failed ---> full
    full ------- the reserve is there, free >= unflushed + ahead + 2 spare ---> writable

`ahead` is what the journal reserves before it writes. What was added and is not flushed yet stands in the journal and goes into an entry log as well: its room is counted as taken.

Source of the idea: BookKeeper's disk thresholds and minUsableSizeForHighPriorityWrites; the reserve is ours.
"""

from __future__ import annotations

from typing import Final

SPARE_PART: Final = 4
"""Adds end when this part of the reserve's size is left."""


class DiskRoom:
    """What is known of the room. Sizes in bytes."""

    def __init__(self, reserve_size: int, journal_ahead: int) -> None:
        """`journal_ahead`: what the journal may take at once, before it is written to."""
        self._ahead = journal_ahead
        self._spare = reserve_size // SPARE_PART
        self._failure = ""
        self._left = 1 << 62
        """Bytes that adds may still take, to be stored twice: in the journal and in an entry log."""
        self.reason = ""
        """Why no adds are taken; "" while they are."""

    @property
    def is_full(self) -> bool:
        return bool(self.reason)

    def take(self, size: int) -> bool:
        """Count an add. False if there is no room for it: then no adds are taken until there is clearly more."""
        self._left -= 2 * size
        if self._left < 0 and not self.reason:
            self.reason = "what was added since the free space was measured uses it up"
        return not self.reason

    def failed(self, error: str) -> None:
        """Note that a write found no room, wherever it was: that counts until the reserve was given up and put back."""
        self._failure = self.reason = error

    def measured(self, free: int, unflushed: int, *, reserve_held: bool) -> None:
        """Take new figures: bytes free on the fullest disk, and bytes that are not in an entry log yet."""
        if self._failure and self._spare:
            return
        self._failure = ""
        wanted = unflushed + self._ahead + self._spare * (2 if self.is_full or not reserve_held else 1)
        self._left = free - wanted
        if self.is_full and not reserve_held and free >= wanted:
            return
        self.reason = "" if free >= wanted else f"{free} bytes are free, {wanted} are needed"

    def reserve_taken(self) -> None:
        """The reserve was put back: what failed before for want of room counts no longer."""
        self._failure = ""

    def needs_reserve(self, free: int) -> bool:
        """Decide whether the reserve is to be given up, so that acknowledgements, metadata and flushes have room."""
        return self.is_full and (bool(self._failure) or free < self._spare // 2)

    def may_take_reserve(self, free: int, unflushed: int, size: int) -> bool:
        """Decide whether the reserve can be put back without using up what adds and flushes need."""
        return free >= size + unflushed + self._ahead + 2 * self._spare
