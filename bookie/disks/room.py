"""DiskRoom: decides from the room on the disks of a ledger directory whether it takes adds (pure).

On a completely full disk nothing can be freed: acknowledgements, metadata and flushes need room themselves, and only
they free room. So adds are refused while some room is left, whatever the thresholds are (usage.py). When even that is
gone, the reserve, a file that only keeps room, is deleted.

    writable --- free < unflushed + ahead + spare, or a write failed ---> full
    full ------- the reserve is there, free >= unflushed + ahead + 2 spare ---> writable

`ahead` is the space that the journal reserves before it writes. Unflushed entries are in the journal and will be
written to an entry log as well, so their room is counted as taken.

Source of the idea: BookKeeper's disk thresholds and minUsableSizeForHighPriorityWrites; the reserve is ours.
"""

from __future__ import annotations

from typing import Final

SPARE_PART: Final = 4
"""Adds are refused when less than 1/SPARE_PART of the reserve's size is left."""


class Fullness:
    """Reason why a whole bookie is read-only for its disks; "" while it is not."""

    def __init__(self) -> None:
        self.reason = ""

    def why_full(self) -> str:
        """Return why nothing can be published, for clients; "" while adds are accepted."""
        return f"the disk is full: {self.reason}" if self.reason else ""


class DiskRoom:
    """Known room on the disks. Sizes in bytes."""

    def __init__(self, reserve_size: int, journal_ahead: int) -> None:
        """`journal_ahead`: bytes the journal may reserve at once before it writes."""
        self._ahead = journal_ahead
        self._spare = reserve_size // SPARE_PART
        self._failure = ""
        self._left = 1 << 62
        """Bytes that adds may still use. Each add is stored twice, in the journal and in an entry log."""
        self._since = 0
        """Bytes that adds took since the measurement that is under way began, which it may not have seen."""
        self._asked = 0
        """Bytes that an add waits for, which did not fit into what the last measurement left."""
        self._lack = ""
        """Description of the missing bytes; "" while there are enough."""
        self._above = ""
        """The threshold that is passed; "" if none is."""
        self.reason = ""
        """Reason why adds are refused; "" while they are accepted."""

    @property
    def is_full(self) -> bool:
        """Return whether bytes are missing."""
        return bool(self._lack)

    def _lacks(self, lack: str) -> None:
        self._lack = lack
        self.reason = lack or self._above

    def threshold(self, above: str) -> None:
        """Set the reason why the directory is full by its thresholds; "": it is not."""
        self._above = above
        self.reason = self._lack or above

    def take(self, size: int) -> bool:
        """Count an add; return False if there is no room for it.

        With a reason it must be refused. Without one the last measurement does not suffice: it has to wait for the next
        one, which makes room for it or is the reason.
        """
        left = self._left - 2 * size
        if left < 0:
            self._asked = max(self._asked, 2 * size)
        else:
            self._left = left
            self._since += 2 * size
        return left >= 0 and not self.reason

    def failed(self, error: str) -> None:
        """Record that a write found no room on any disk.

        Adds stay refused until the reserve was released and taken again.
        """
        self._failure = error
        self._lacks(error)

    def began(self) -> None:
        """Record that a measurement begins."""
        self._since = 0

    def measured(self, free: int, unflushed: int, *, reserve_held: bool) -> None:
        """Update the figures: bytes free on the fullest disk, and bytes that are not in an entry log yet."""
        if self._failure and self._spare:
            return
        self._failure = ""
        kept = unflushed + self._ahead + self._spare
        self._left = free - kept - self._since
        wanted = kept + max(self._asked, self._spare if self.is_full or not reserve_held else 0)
        self._asked = 0
        if self.is_full and not reserve_held and free >= wanted:
            return
        self._lacks("" if free >= wanted else f"{free} bytes are free, {wanted} are needed")

    def may_compact(self, free: int, unflushed: int) -> bool:
        """Decide whether compaction, which needs room before it frees any, leaves enough of it.

        An earlier failure of a write does not matter: adds wait for the reserve, and perhaps only compaction can free
        the room for it.
        """
        return free >= unflushed + self._ahead + self._spare

    def reserve_taken(self) -> None:
        """Forget earlier write failures: the reserve could be taken again."""
        self._failure = ""

    def needs_reserve(self, free: int, unflushed: int) -> bool:
        """Decide whether to release the reserve, so that acknowledgements, metadata and flushes have room."""
        return self.is_full and (bool(self._failure) or free < unflushed + self._spare // 2)

    def may_take_reserve(self, free: int, unflushed: int, size: int) -> bool:
        """Decide whether the reserve can be taken again without using up what adds and flushes need."""
        return free >= size + unflushed + self._ahead + 2 * self._spare
