"""Comparison of deliveries with the plan: every planned entry, in order, once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.planning.ranges import LedgerRange
from quire.spark.reading.range_check import RangeCheck, shown, steps_back
from tests.support.effort import effort


def test_exactly_the_planned_entries_are_accepted_over_ledgers():
    check = RangeCheck((LedgerRange(5, 8, 9), LedgerRange(7, 0, 1)))
    assert check.due == (5, 8)
    assert check.accept([5, 5, 7, 7, 7], [8, 9, 0, 1, 2], 0, 5) == 4
    assert check.done


def test_a_wrong_entry_stops_the_run_at_it():
    for ledgers, entries, stop in (
        ([5, 5, 5], [0, 1, 3], 2),  # a hole
        ([5, 5, 5], [0, 1, 1], 2),  # twice
        ([5, 5, 6], [0, 1, 2], 2),  # another ledger
        ([5, 5, 5], [1, 2, 3], 0),  # the first one missing
        ([5, 5, 5, 5], [0, 1, 1, 3], 2),  # the ends fit
    ):
        check = RangeCheck((LedgerRange(5, 0, 9),))
        assert check.accept(ledgers, entries, 0, len(entries)) == stop
        assert check.due == (5, stop)


def test_what_is_given_up_is_told_to_the_entry():
    ranges = (LedgerRange(5, 0, 9), LedgerRange(6, 0, 0), LedgerRange(7, 0, 9))
    for came, given_up, due in (
        ((5, 4), [(5, 0, 3)], (5, 4)),
        ((6, 0), [(5, 0, 9)], (6, 0)),
        ((7, 3), [(5, 0, 9), (6, 0, 0), (7, 0, 2)], (7, 3)),
        ((7, 10), [(5, 0, 9), (6, 0, 0), (7, 0, 9)], None),
        ((9, 0), [(5, 0, 9), (6, 0, 0), (7, 0, 9)], None),
        ((5, 10), [(5, 0, 9)], (6, 0)),
    ):
        check = RangeCheck(ranges)
        assert check.skip_to(*came) == [LedgerRange(*each) for each in given_up]
        assert check.done if due is None else check.due == due
    check = RangeCheck(ranges)
    check.accept([5, 5], [0, 1], 0, 2)
    with pytest.raises(ValueError, match="received 5:1 instead of 5:2"):
        check.skip_to(5, 1)


@settings(max_examples=effort(quick=66, full=200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4),
    st.sets(st.integers(0, 30)),
    st.lists(st.integers(1, 5), min_size=1),
)
def test_whatever_is_missing_what_came_and_what_was_given_up_are_the_plan(parts, missing, sizes):
    ranges = [LedgerRange(number, first, first + count - 1) for number, (first, count) in enumerate(parts)]
    planned = [(each.ledger_id, entry) for each in ranges for entry in range(each.first, each.last + 1)]
    came = [place for number, place in enumerate(planned) if number not in missing] + [(99, 0)]
    check = RangeCheck(ranges)
    accepted, given_up = [], []
    at = 0
    ledgers, entries = ([place[number] for place in came] for number in (0, 1))
    turn = 0
    while not check.done:
        stop = min(at + sizes[turn % len(sizes)], len(came))
        turn += 1
        taken = check.accept(ledgers, entries, at, stop)
        accepted += came[at:taken]
        at = taken
        if taken < stop and not check.done:
            given_up += [
                (each.ledger_id, entry)
                for each in check.skip_to(*came[taken])
                for entry in range(each.first, each.last + 1)
            ]
    assert accepted == [place for place in came if place in planned]
    assert sorted(accepted + given_up) == planned


def test_steps_back_are_near_first_and_grow():
    earlier = (LedgerRange(2, 0, 99), LedgerRange(3, 0, 19))
    assert [shown(step) for step in steps_back(earlier)] == [
        "3:4..3:19 (16 entries)",
        "2:40..2:99, 3:0..3:3 (64 entries)",
        "2:0..2:39 (40 entries)",
    ]
    assert list(steps_back(())) == []
