from __future__ import annotations

from quire.ledger.writing.add_deadlines import AddDeadlines


def test_a_moment_is_due_once_a_timeout_after_it() -> None:
    deadlines = AddDeadlines(3, None)
    assert [deadlines.passed(now, f"at {now}") for now in range(10, 16)] == [
        [], [], [], ["at 10"], ["at 11"], ["at 12"],
    ]  # fmt: skip
    assert deadlines.quorums_due(100) == []
    assert not deadlines.of_quorums


def test_a_moment_asked_for_again_is_due_a_timeout_later() -> None:
    deadlines = AddDeadlines(3, None)
    deadlines.passed(10, "first")
    for now in range(11, 13):
        deadlines.passed(now, "other")
    assert deadlines.passed(13, "other") == ["first"]
    deadlines.again(13, "first")
    assert "first" not in deadlines.passed(14, "other") + deadlines.passed(15, "other")
    assert "first" in deadlines.passed(16, "other")


def test_quorums_have_a_time_of_their_own() -> None:
    deadlines = AddDeadlines(3, 5)
    assert deadlines.of_quorums
    for now in range(10, 15):
        deadlines.passed(now, now)
        assert deadlines.quorums_due(now) == []
    deadlines.passed(15, 15)
    assert deadlines.quorums_due(15) == [10]


def test_a_channel_is_late_only_if_it_was_open_for_the_whole_time() -> None:
    deadlines = AddDeadlines(3, None)
    assert [deadlines.opened_in_time(10, opened) for opened in (6, 7, 8)] == [True, True, False]
