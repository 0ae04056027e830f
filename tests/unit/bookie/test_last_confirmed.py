"""The LAC only increases, and wakes each waiting request exactly once."""

from __future__ import annotations

from collections.abc import Callable

from bookie.last_confirmed import NO_LAC, LacTable


def told(calls: list[tuple[str, bool]], name: str) -> Callable[[bool], None]:
    def waiter(moved: bool) -> None:
        calls.append((name, moved))

    return waiter


def test_nothing_is_known_of_a_ledger_before_the_storage_was_asked() -> None:
    table = LacTable()
    assert table.known(7) is None
    table.raised(7, 5)
    assert 7 not in table.followed
    table.follow(7)
    assert table.known(7) is None
    table.raised(7, 5)
    assert table.known(7) is None
    table.learned(7, 3)
    assert table.known(7) == 5, "an add that came while the storage was asked knew more"


def test_an_empty_ledger_has_no_lac() -> None:
    table = LacTable()
    table.follow(7)
    table.learned(7, NO_LAC)
    assert table.known(7) == NO_LAC


def test_the_lac_never_goes_back() -> None:
    table = LacTable()
    table.follow(7)
    table.learned(7, 5)
    table.raised(7, 4)
    table.learned(7, 2)
    assert table.known(7) == 5


def test_those_who_wait_are_called_once_when_it_is_beyond_what_they_know() -> None:
    table = LacTable()
    calls: list[tuple[str, bool]] = []
    table.follow(7)
    table.learned(7, 1)
    table.wait(7, 1, told(calls, "next"))
    table.wait(7, 3, told(calls, "later"))
    table.raised(7, 1)
    assert calls == []
    table.raised(7, 2)
    assert calls == [("next", True)]
    table.raised(7, 4)
    table.raised(7, 5)
    assert calls == [("next", True), ("later", True)]


def test_a_fence_calls_everybody_and_a_cancelled_one_is_not_called() -> None:
    table = LacTable()
    calls: list[tuple[str, bool]] = []
    table.follow(7)
    table.learned(7, 1)
    gone = told(calls, "gone")
    table.wait(7, 1, gone)
    table.wait(7, 1, told(calls, "there"))
    table.cancel(7, gone)
    table.fenced(7)
    table.fenced(7)
    table.raised(7, 2)
    assert calls == [("there", False)]
    table.cancel(7, gone)
    table.cancel(8, gone)
    table.fenced(8)


def test_a_waiter_may_wait_again_from_within_its_call() -> None:
    table = LacTable()
    calls: list[bool] = []
    table.follow(7)
    table.learned(7, 0)

    def waiter(moved: bool) -> None:
        calls.append(moved)
        table.wait(7, 1, waiter)

    table.wait(7, 0, waiter)
    table.raised(7, 1)
    assert calls == [True]
    table.raised(7, 2)
    assert calls == [True, True]


def test_the_one_followed_for_longest_is_forgotten_unless_somebody_waits_for_it() -> None:
    table = LacTable(ledgers_max=2)
    for ledger_id in (1, 2):
        table.follow(ledger_id)
        table.learned(ledger_id, 0)
    table.wait(1, 0, lambda moved: None)
    table.follow(3)
    assert [table.known(ledger_id) for ledger_id in (1, 2, 3)] == [0, None, None]
    assert sorted(table.followed) == [1, 3]
