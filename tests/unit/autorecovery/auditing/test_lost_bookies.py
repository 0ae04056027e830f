from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from autorecovery.auditing.lost_bookies import AuditSchedule, lost_of

ALL = frozenset({"b1", "b2", "b3"})


def schedule(delay_s: int) -> AuditSchedule:
    made = AuditSchedule(delay_s)
    made.registered(0.0, ALL)
    assert made.due == inf
    return made


def test_without_a_delay_a_lost_bookie_is_audited_at_once() -> None:
    made = schedule(0)
    made.registered(5.0, ALL - {"b1"})
    assert made.due == 5.0
    assert made.held(5.0) == frozenset()


def test_exactly_one_lost_bookie_is_waited_for() -> None:
    made = schedule(30)
    made.registered(5.0, ALL - {"b1"})
    assert (made.due, made.held(5.0), made.delayed) == (35.0, frozenset({"b1"}), 1)
    made.registered(9.0, ALL - {"b1"})
    assert (made.due, made.delayed) == (35.0, 1)
    assert made.held(35.0) == frozenset()


def test_a_second_lost_bookie_ends_the_waiting() -> None:
    made = schedule(30)
    made.registered(5.0, ALL - {"b1"})
    made.registered(6.0, frozenset({"b3"}))
    assert (made.due, made.held(6.0)) == (6.0, frozenset())


def test_a_bookie_that_comes_back_in_time_is_no_news() -> None:
    made = schedule(30)
    made.registered(5.0, ALL - {"b1"})
    made.registered(6.0, ALL)
    assert (made.due, made.cancelled) == (inf, 1)
    made.registered(7.0, ALL - {"b1"})
    assert made.due == 37.0


def test_what_was_audited_is_no_news_until_it_has_been_back() -> None:
    made = schedule(0)
    made.registered(5.0, ALL - {"b1"})
    made.begun()
    made.registered(6.0, ALL - {"b1"})
    assert made.due == inf
    made.registered(7.0, ALL)
    made.registered(8.0, ALL - {"b1"})
    assert made.due == 8.0


def test_one_more_after_the_audit_is_waited_for_again() -> None:
    made = schedule(30)
    made.registered(5.0, ALL - {"b1"})
    made.begun()
    made.registered(6.0, frozenset({"b3"}))
    assert (made.due, made.held(6.0)) == (36.0, frozenset({"b2"}))


def test_a_bookie_with_a_cookie_is_known_before_it_was_ever_seen() -> None:
    made = AuditSchedule(30)
    made.registered(0.0, ALL - {"b1"}, ALL)
    assert (made.due, made.waiting) == (30.0, frozenset({"b1"}))


def test_the_check_from_time_to_time_does_not_cut_the_delay_short() -> None:
    made = schedule(30)
    assert made.check(1.0)
    assert made.due == 1.0
    made.begun()
    made.registered(5.0, ALL - {"b1"})
    assert not made.check(6.0)
    assert made.due == 35.0


def test_the_delay_set_to_nothing_or_again_to_what_it_was_asks_for_an_audit() -> None:
    for delay_s in (0, 30):
        made = schedule(30)
        made.delay_set(4.0, delay_s)
        assert made.due == 4.0
        made.begun()
        made.registered(5.0, ALL - {"b1"})
        made.delay_set(7.0, delay_s)
        assert (made.due, made.held(7.0)) == ((7.0 if delay_s else 5.0), frozenset())


def test_another_delay_holds_from_the_moment_when_it_is_set() -> None:
    made = schedule(30)
    made.delay_set(4.0, 40)
    assert made.due == inf
    made.registered(5.0, ALL - {"b1"})
    made.delay_set(10.0, 60)
    assert (made.due, made.delayed) == (70.0, 2)
    made.registered(20.0, frozenset({"b3"}))
    made.delay_set(21.0, 90)
    assert made.due == 20.0


def test_an_audit_that_failed_is_made_again() -> None:
    made = schedule(30)
    made.check(1.0)
    made.begun()
    made.failed(2.0)
    assert made.due == 2.0


def test_lost_is_who_is_named_and_neither_there_nor_waited_for() -> None:
    assert lost_of(["b4", "b1", "b2", "b3"], ["b1"], ["b3"]) == ["b2", "b4"]


EVENTS = st.lists(
    st.one_of(
        st.frozensets(st.sampled_from(sorted(ALL))),
        st.integers(0, 3).map(lambda delay: ("delay", delay)),
        st.just("check"),
        st.just("audit"),
        st.just("pass"),
    ),
    max_size=30,
)


@given(st.integers(0, 3), EVENTS)
def test_whoever_is_lost_is_audited_before_long(delay_s: int, events: list[object]) -> None:
    made = AuditSchedule(delay_s)
    now = 0.0
    present = ALL
    made.registered(now, present)
    unseen: frozenset[str] = frozenset()
    """Bookies that were lost and not audited since."""
    for event in events:
        now += 1.0
        if isinstance(event, frozenset):
            unseen = (unseen - event) | (present - event)
            present = event
            made.registered(now, present)
        elif isinstance(event, tuple):
            made.delay_set(now, event[1])
        elif event == "check":
            made.check(now)
        elif event == "audit" and made.due <= now:
            made.begun()
            unseen = frozenset()
        assert made.waiting == unseen
        if unseen:
            assert made.due <= now + 3
        if len(unseen) > 1:
            assert made.due <= now
