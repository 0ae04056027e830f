from __future__ import annotations

from managed_ledger.writing.fill_limits import Fill, LedgerMarks
from managed_ledger.writing.rollover import NO_LIMIT, RolloverLimits

LIMITS = RolloverLimits(entries_max=10, size_max=1000, age_min_s=60, age_max_s=600)
AT_ONCE = RolloverLimits(entries_max=10, size_max=1000, age_min_s=0, age_max_s=600)
OPENED = 5000.0


def begun(limits: RolloverLimits) -> LedgerMarks:
    marks = LedgerMarks(limits)
    marks.begin(0, OPENED)  # ledger 0 has no spread of its greatest age
    return marks


def test_a_ledger_that_may_be_left_at_any_age_has_its_marks_at_once() -> None:
    marks = begun(AT_ONCE)
    assert (marks.entries_max, marks.size_max, marks.entries_near, marks.size_near) == (10, 1000, 9, 900)
    assert [marks.filled(8, 899), marks.filled(9, 0), marks.filled(0, 900)] == [
        Fill.ROOM,
        Fill.NEARLY_FULL,
        Fill.NEARLY_FULL,
    ]
    assert [marks.filled(10, 0), marks.filled(0, 1000)] == [Fill.FULL, Fill.FULL]


def test_below_its_least_age_a_ledger_is_never_full() -> None:
    marks = begun(LIMITS)
    assert marks.filled(10**6, 10**9) is Fill.ROOM
    assert marks.at_age(OPENED + 49, 10**6, 10**9) is Fill.ROOM
    assert marks.at_age(OPENED + 50, 10**6, 10**9) is Fill.NEARLY_FULL
    assert marks.entries_max == NO_LIMIT
    assert marks.at_age(OPENED + 60, 10, 0) is Fill.FULL
    assert marks.entries_max == 10


def test_age_is_asked_for_only_when_it_may_matter() -> None:
    marks = begun(LIMITS)
    assert marks.is_due(OPENED)
    for age_s, next_s in ((0, 50), (50, 50), (60, 590)):
        marks.at_age(OPENED + age_s, 1, 1)
        assert not marks.is_due(OPENED + next_s - 1)
        assert marks.is_due(OPENED + next_s)
    assert marks.at_age(OPENED + 590, 1, 1) is Fill.NEARLY_FULL
    assert marks.at_age(OPENED + 600, 1, 1) is Fill.FULL
    assert marks.at_age(OPENED + 600, 0, 0) is Fill.ROOM


def test_what_was_noticed_is_not_told_again_before_the_end() -> None:
    marks = begun(AT_ONCE)
    marks.pass_near()
    assert marks.filled(9, 999) is Fill.ROOM
    assert marks.filled(10, 0) is Fill.FULL


def test_lifted_marks_come_back_with_the_next_look_at_the_age() -> None:
    marks = begun(AT_ONCE)
    marks.at_age(OPENED + 1, 10, 0)
    marks.lift()
    assert marks.filled(10**6, 10**9) is Fill.ROOM
    assert marks.is_due(OPENED + 1)
    assert marks.at_age(OPENED + 1, 10, 0) is Fill.FULL
    assert marks.entries_max == 10


def test_a_rest_lasts_until_its_end_or_the_next_ledger() -> None:
    marks = begun(AT_ONCE)
    marks.rest_until(OPENED + 600)
    assert not marks.is_due(OPENED + 599)
    assert marks.is_due(OPENED + 600)
    marks.begin(1, OPENED + 1)
    assert marks.is_due(OPENED + 1)
