"""The faults of a chaos run."""

from __future__ import annotations

from collections import Counter

import pytest

from tools.chaos.schedule import DURATIONS_S, FIRST_S, QUIET_SHARE, Group, How, draw


def test_a_seed_always_draws_the_same_faults_and_another_seed_others():
    assert draw(3, 300.0) == draw(3, 300.0)
    assert draw(3, 300.0) != draw(4, 300.0)


@pytest.mark.parametrize("seed", range(20))
def test_five_minutes_have_at_least_thirty_faults_of_every_kind(seed):
    drawn = draw(seed, 300.0)
    kinds = Counter((fault.group, fault.how) for fault in drawn)
    assert len(drawn) >= 30
    assert set(kinds) == {(group, how) for group in Group for how in How}
    assert min(kinds.values()) >= 3


@pytest.mark.parametrize("seconds", [20.0, 42.0, 300.0])
def test_faults_come_in_order_and_leave_the_end_quiet(seconds):
    times = [fault.at_s for fault in draw(5, seconds)]
    assert times == sorted(times)
    assert times[0] >= FIRST_S
    assert times[-1] <= seconds * (1 - QUIET_SHARE)


def test_some_outlast_a_session_and_some_do_not():
    for how in How:
        durations = [fault.for_s for fault in draw(1, 3000.0) if fault.how is how]
        assert min(durations) >= DURATIONS_S[how][0]
        assert max(durations) <= DURATIONS_S[how][1]
        assert any(each < 2 for each in durations)
        assert any(each > 4 for each in durations)


def test_so_many_faults_as_asked_for_are_drawn_and_the_first_five_hurt_every_server():
    drawn = draw(2, 30.0, 5)
    assert len(drawn) == 5
    assert {fault.group for fault in drawn} >= {Group.BROKER, Group.BOOKIE, Group.AUDITOR}


def test_whom_nobody_stands_in_for_is_left_alone():
    drawn = draw(2, 300.0, without=[Group.ZOOKEEPER])
    assert len(drawn) >= 30
    assert {fault.group for fault in drawn} == set(Group) - {Group.ZOOKEEPER}
