"""AckTracker: turns acknowledgements, in any order and by run, into confirmations, in entry order. Pure.

Why this is hard: each bookie acknowledges its own subset of entries, in runs that may arrive out of order, and a failed
bookie may change the ensemble in between. Counting copies per entry would be simple but too slow: there is one call per
acknowledged run and no object per entry.

An entry is complete when `ack_quorum` distinct bookies of its write set have it. It is confirmed when it and every
entry before it are complete. The entries of each bookie are kept as one watermark, `through`, and the few ranges ahead
of it that arrived out of order. Entries that a bookie does not store count as present, so that striping leaves no gaps
in a range. They do not count as copies, because copies are only counted in the entry's write set.

    confirmed of one write set = the ack_quorum-th highest `through` of its bookies
    confirmed                  = the entry before the first one that its write set has not confirmed

So an in-order acknowledgement costs the same for one entry and for a thousand.

While a failed bookie is not replaced nothing is confirmed: the new fragment begins at confirmed + 1, which must not
move. Acks of a replaced bookie are dropped.

Source: BookKeeper's PendingAddOp and LedgerHandle.sendAddSuccessCallbacks.
"""

from __future__ import annotations

from bisect import bisect_left

from quire.ledger.striping import Striping

EMPTY = range(0)


class AckTracker:
    """Counts copies of a writer's entries in flight. The writer pushes entries in the order of their ids."""

    __slots__ = ("_ack_quorum", "_ahead", "_failed", "_reach", "_striping", "_through", "confirmed", "pushed_last")

    def __init__(self, striping: Striping, ack_quorum: int, *, confirmed: int = -1) -> None:
        assert 0 < ack_quorum <= striping.write_quorum, f"Qa={ack_quorum}, Qw={striping.write_quorum}"
        self._striping = striping
        self._ack_quorum = ack_quorum
        self.confirmed = confirmed
        """Last entry confirmed (LAC), inclusive; -1 for none."""
        self.pushed_last = confirmed
        """Last entry pushed (LAP), inclusive."""
        self._reach = confirmed
        """Last entry before the first one that was not pushed: no entry above it can be confirmed."""
        size = striping.ensemble_size
        self._through = [self._vacuous(index, confirmed) for index in range(size)]
        self._ahead: list[list[tuple[int, int]]] | None = None
        """From the first acknowledgement on that comes out of order: nearly all writers see none."""
        self._failed = 0
        """A bit for each bookie that is out."""

    def pushed(self, first: int, last: int) -> None:
        """Record that entries `first` to `last` were sent to their write sets."""
        assert first == self.pushed_last + 1 <= last, f"pushed {first}..{last} after {self.pushed_last}"
        self.pushed_last = self._reach = last

    def sent(self, first: int, last: int) -> bool:
        """Return whether entries `first` to `last` were pushed, judging by both ends."""
        return first >= 0 and last <= self.pushed_last

    def acked(self, index: int, first: int, last: int) -> range:
        """Record that bookie `index` has those of the entries `first` to `last` that it stores; return what this
        confirms.

        The same acknowledgement may arrive twice. Acks of a failed bookie are ignored.
        """
        assert last <= self.pushed_last, f"ack of {last}, which was never pushed (LAP={self.pushed_last})"
        if self._failed and self._failed >> index & 1:
            return EMPTY
        striping = self._striping
        if striping.striped:
            first = striping.stored_until(index, first - 1) + 1
            last = striping.stored_from(index, last + 1) - 1
        through = self._through
        if last <= through[index]:
            return EMPTY
        if first > through[index] + 1:
            self._insert_ahead(index, first, last)
        else:
            through[index] = last
            if self._ahead is not None and self._ahead[index]:
                self._absorb(self._ahead[index], index)
        return self._advance()

    def failed(self, index: int) -> None:
        """Record that bookie `index` failed: its acks do not count, and nothing is confirmed until it is replaced."""
        self._failed |= 1 << index

    def replaced(self, index: int) -> None:
        """Record a new bookie at `index`, which has none of the unconfirmed entries. Call `resume` afterwards."""
        self._failed &= ~(1 << index)
        self._through[index] = self._vacuous(index, self.confirmed)
        if self._ahead is not None:
            self._ahead[index].clear()

    def resume(self) -> range:
        """Return the entries confirmed now that the failed bookies have been replaced; empty while one has not."""
        return self._advance()

    def lacks(self, index: int, last: int) -> bool:
        """Return whether bookie `index` has not yet acknowledged all entries up to `last` that it stores."""
        return self._through[index] < last and self._striping.stored_until(index, last) > self._through[index]

    def lacking(self) -> list[int]:
        """Return the indices of the bookies that have not acknowledged all confirmed entries that they store."""
        return [index for index in range(len(self._through)) if self.lacks(index, self.confirmed)]

    def lacked(self, index: int) -> int:
        """Return the number of confirmed entries that bookie `index` stores and has not acknowledged."""
        first, last = self._through[index] + 1, self.confirmed
        if first > last:
            return 0
        ahead = () if self._ahead is None else self._ahead[index]
        had = sum([self._stored(index, start, min(stop, last)) for start, stop in ahead if start <= last])
        return self._stored(index, first, last) - had

    def _stored(self, index: int, first: int, last: int) -> int:
        """Return how many of the entries `first` to `last` bookie `index` stores."""
        rounds, rest = divmod(last - first + 1, self._striping.ensemble_size)
        more = sum([self._striping.stores(index, entry_id) for entry_id in range(last - rest + 1, last + 1)])
        return rounds * self._striping.write_quorum + more

    # --- for deadlines: entries pushed up to a moment, and bookies that lack some of them

    def moment(self) -> object:
        """Return a record of the entries pushed so far, for `overdue`."""
        return self.pushed_last

    def overdue(self, index: int, moment: object) -> bool:
        """Return whether bookie `index` has not yet acknowledged an entry that was pushed at that moment."""
        assert isinstance(moment, int), "a moment of this tracker"
        return self.lacks(index, moment)

    def unconfirmed(self, moment: object) -> bool:
        """Return whether an entry that was pushed at that moment is unconfirmed."""
        assert isinstance(moment, int), "a moment of this tracker"
        return self.confirmed < moment

    def waits(self, index: int) -> bool:
        """Return whether bookie `index` has any acknowledgement outstanding."""
        return self.lacks(index, self.pushed_last)

    def _vacuous(self, index: int, confirmed: int) -> int:
        """Return the watermark of a bookie that has no entry after `confirmed`."""
        return self._striping.stored_from(index, confirmed + 1) - 1

    def _insert_ahead(self, index: int, first: int, last: int) -> None:
        """Add a range ahead of the watermark, merging it with those it touches."""
        if self._ahead is None:
            self._ahead = [[] for _ in self._through]
        ahead = self._ahead[index]
        start = bisect_left(ahead, (first, last))
        if start and ahead[start - 1][1] >= first - 1:
            start -= 1
            first = ahead[start][0]
            last = max(last, ahead[start][1])
        stop = start
        while stop < len(ahead) and ahead[stop][0] <= last + 1:
            last = max(last, ahead[stop][1])
            stop += 1
        ahead[start:stop] = [(first, last)]

    def _absorb(self, ahead: list[tuple[int, int]], index: int) -> None:
        """Move the watermark over the ranges of the bookie that it has reached."""
        through = self._through[index]
        reached = 0
        while reached < len(ahead) and ahead[reached][0] <= through + 1:
            through = max(through, ahead[reached][1])
            reached += 1
        del ahead[:reached]
        self._through[index] = through

    def _advance(self) -> range:
        if self._failed:
            return EMPTY
        before = self.confirmed
        after = self._by_watermarks()
        if after < self._reach and self._ahead is not None and any(self._ahead):
            after = self._by_counting(after)
        if after <= before:
            return EMPTY
        self.confirmed = after
        return range(before + 1, after + 1)

    def _by_watermarks(self) -> int:
        """Return the last entry that watermarks alone confirm."""
        striping = self._striping
        if not striping.striped:
            through = self._through
            reached = through[0] if len(through) == 1 else sorted(through)[-self._ack_quorum]
            return min(reached, self._reach)
        after = self._reach
        size = striping.ensemble_size
        for entry_id in range(self.confirmed + 1, self.confirmed + 1 + size):
            reached = sorted([self._through[index] for index in striping.write_set(entry_id)])[-self._ack_quorum]
            if reached < entry_id:
                first_open = entry_id
            else:
                first_open = entry_id + ((reached - entry_id) // size + 1) * size
            after = min(after, first_open - 1)
        return after

    def _by_counting(self, after: int) -> int:
        """Return the last entry confirmed if ranges ahead of the watermarks count too; checks entry by entry."""
        while after < self._reach and self._copies(after + 1) >= self._ack_quorum:
            after += 1
        return after

    def _copies(self, entry_id: int) -> int:
        return sum([self._has(index, entry_id) for index in self._striping.write_set(entry_id)])

    def _has(self, index: int, entry_id: int) -> bool:
        if entry_id <= self._through[index]:
            return True
        if self._ahead is None:
            return False
        ahead = self._ahead[index]
        place = bisect_left(ahead, (entry_id + 1, -1)) - 1
        return place >= 0 and ahead[place][1] >= entry_id
