from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.striping import Striping
from quire.ledger.writing.adv_ack_tracker import AdvAckTracker


class NaiveTracker:
    """The same tracker, entry by entry, directly from the definition: only a pushed entry has a set of acks."""

    def __init__(self, striping: Striping, ack_quorum: int) -> None:
        self.striping = striping
        self.ack_quorum = ack_quorum
        self.acks: dict[int, set[int]] = {}
        self.failed: set[int] = set()
        self.confirmed = -1
        self.since = [0] * striping.ensemble_size

    def pushed(self, first: int, last: int) -> None:
        for entry_id in range(first, last + 1):
            assert entry_id not in self.acks
            self.acks[entry_id] = set()

    def acked(self, index: int, entry_ids: list[int]) -> list[int]:
        for entry_id in entry_ids:
            if index not in self.failed and index in self.striping.write_set(entry_id):
                self.acks[entry_id].add(index)
        return self.advance()

    def replaced(self, index: int) -> list[int]:
        self.failed.discard(index)
        self.since[index] = self.confirmed + 1
        for entry_id, acks in self.acks.items():
            if entry_id > self.confirmed:
                acks.discard(index)
        return self.advance()

    def advance(self) -> list[int]:
        confirmed = []
        while not self.failed and len(self.acks.get(self.confirmed + 1, ())) >= self.ack_quorum:
            self.confirmed += 1
            confirmed.append(self.confirmed)
        return confirmed

    def waits(self, index: int, entry_ids: list[int]) -> bool:
        return any(
            index in self.striping.write_set(entry_id) and index not in self.acks[entry_id]
            for entry_id in entry_ids
            if entry_id >= self.since[index]
        )

    def contiguous(self, entry_ids: list[int]) -> list[tuple[int, int]]:
        """Return the pushed ids as ranges."""
        ranges: list[tuple[int, int]] = []
        for entry_id in sorted(entry_ids):
            if ranges and ranges[-1][1] == entry_id - 1:
                ranges[-1] = (ranges[-1][0], entry_id)
            else:
                ranges.append((entry_id, entry_id))
        return ranges


quorums = st.integers(1, 5).flatmap(
    lambda size: st.integers(1, size).flatmap(
        lambda write: st.tuples(st.just(size), st.just(write), st.integers(1, write))
    )
)


@settings(deadline=None)
@given(quorums, st.data())
def test_whatever_the_order_of_pushes_acks_failures_and_replacements_it_does_what_the_definition_says(quorum, data):
    size, write_quorum, ack_quorum = quorum
    striping = Striping(size, write_quorum)
    tracker = AdvAckTracker(striping, ack_quorum)
    naive = NaiveTracker(striping, ack_quorum)
    moments: list[tuple[object, list[int]]] = []
    recent: list[int] = []
    for _ in range(data.draw(st.integers(1, 40))):
        kind = data.draw(st.sampled_from(["push", "push", "ack", "ack", "ack", "fail", "replace", "moment"]))
        index = data.draw(st.integers(0, size - 1))
        if kind == "push":
            first = data.draw(st.integers(0, 25))
            last = first + data.draw(st.integers(0, 4))
            free = not any(entry_id in naive.acks for entry_id in range(first, last + 1))
            assert tracker.is_new(first, last) == free
            if free:
                tracker.pushed(first, last)
                naive.pushed(first, last)
                recent += range(first, last + 1)
        elif kind == "ack" and naive.acks:
            first, last = data.draw(st.sampled_from(naive.contiguous(list(naive.acks))))
            first = data.draw(st.integers(first, last))
            last = data.draw(st.integers(first, last))
            assert tracker.sent(first, last)
            assert list(tracker.acked(index, first, last)) == naive.acked(index, list(range(first, last + 1)))
        elif kind == "fail":
            tracker.failed(index)
            naive.failed.add(index)
        elif kind == "replace" and index in naive.failed:
            tracker.replaced(index)
            confirmed = naive.replaced(index)
            assert list(tracker.resume()) == confirmed
        elif kind == "moment":
            moments.append((tracker.moment(), recent))
            recent = []
        assert tracker.confirmed == naive.confirmed
        assert tracker.pushed_last == max(naive.acks, default=-1)
        for each in set(range(size)) - naive.failed:
            assert tracker.waits(each) == naive.waits(each, list(naive.acks))
            for moment, entry_ids in moments:
                assert tracker.overdue(each, moment) == naive.waits(each, entry_ids)
        for moment, entry_ids in moments:
            assert tracker.unconfirmed(moment) == any(each > naive.confirmed for each in entry_ids)


def test_four_entries_in_any_of_their_24_orders_are_confirmed_in_the_order_of_their_ids() -> None:
    for order in itertools.permutations(range(4)):
        tracker = AdvAckTracker(Striping(2, 2), 2)
        confirmed: list[int] = []
        for entry_id in order:
            tracker.pushed(entry_id, entry_id)
            confirmed += tracker.acked(0, entry_id, entry_id)
            confirmed += tracker.acked(1, entry_id, entry_id)
            whole = next(gap for gap in range(5) if gap not in order[: order.index(entry_id) + 1])
            assert confirmed == list(range(whole)), order
        assert confirmed == [0, 1, 2, 3]


def test_an_id_that_was_pushed_is_not_new_whether_confirmed_or_waiting_or_beyond_a_gap() -> None:
    tracker = AdvAckTracker(Striping(1, 1), 1)
    tracker.pushed(0, 3)
    tracker.acked(0, 0, 1)
    tracker.pushed(10, 12)
    runs = [(1, 1, 0), (3, 5, 0), (4, 9, 1), (9, 10, 0), (12, 12, 0), (13, 20, 1), (5, 30, 0)]
    for first, last, new in runs:
        assert tracker.is_new(first, last) == new, (first, last)
    with pytest.raises(AssertionError, match="twice"):
        tracker.pushed(11, 11)


def test_an_answer_for_an_id_in_a_gap_is_known_to_be_wrong() -> None:
    tracker = AdvAckTracker(Striping(1, 1), 1)
    tracker.pushed(0, 3)
    tracker.pushed(10, 12)
    tracker.pushed(20, 20)
    runs = [(0, 3, 1), (2, 4, 0), (5, 6, 0), (10, 11, 1), (9, 10, 0), (12, 13, 0), (20, 20, 1), (21, 21, 0), (-1, 0, 0)]
    for first, last, sent in runs:
        assert tracker.sent(first, last) == sent, (first, last)
