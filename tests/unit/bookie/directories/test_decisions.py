"""Covers routes.py, barrier.py and health.py of bookie/directories: their decisions."""

from __future__ import annotations

import pytest

from bookie.directories.barrier import MarkBarrier
from bookie.directories.health import DirectoryHealth
from bookie.directories.routes import Routes
from bookie.errors import DirectoryUnavailableError
from bookie.journal.format import LogMark


def test_a_new_ledger_is_where_the_original_looks_for_it() -> None:
    routes = Routes(3, 2)
    routes.settle([[0, 3], [1], [2, 5]])
    assert [routes.directory(ledger_id) for ledger_id in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [routes.journal(ledger_id) for ledger_id in range(4)] == [0, 1, 0, 1]


def test_a_ledger_stays_where_it_is_when_a_directory_is_added() -> None:
    routes = Routes(3, 1)
    routes.settle([[0, 2, 4], [1, 3, 5], []])
    assert [routes.directory(ledger_id) for ledger_id in range(6)] == [0, 1, 0, 1, 0, 1]
    assert routes.directory(8) == 2


def test_a_ledger_in_two_directories_is_written_where_the_original_looks_and_read_in_both() -> None:
    routes = Routes(3, 1)
    routes.settle([[2], [5], [2, 5]])
    assert (routes.directory(2), routes.others(2)) == (2, (0,))
    assert (routes.directory(5), routes.others(5)) == (2, (1,))
    assert routes.split_ledgers() == [2, 5]


def test_a_ledger_in_two_directories_that_are_both_not_its_own_is_read_in_both() -> None:
    routes = Routes(4, 1)
    routes.settle([[3], [3], [], []])
    assert (routes.directory(3), routes.others(3)) == (0, (1,))


def test_a_mark_moves_as_far_as_the_directory_that_is_furthest_behind() -> None:
    begin, later, last = LogMark(1, 512), LogMark(1, 1024), LogMark(2, 512)
    barrier = MarkBarrier(2, [begin, begin])
    barrier.flushed(0, [last, later])
    assert (barrier.mark(0), barrier.mark(1)) == (begin, begin)
    barrier.flushed(1, [later, last])
    assert (barrier.mark(0), barrier.mark(1)) == (later, later)
    barrier.flushed(1, [begin, begin])
    assert barrier.mark(0) == later, "a flush that began earlier and ended later takes nothing back"


def test_a_failed_directory_holds_back_the_marks_of_the_journals_it_needs_and_no_others() -> None:
    begin, last = LogMark(1, 512), LogMark(2, 512)
    barrier = MarkBarrier(2, [begin, begin])
    barrier.failed(1, {1})
    barrier.flushed(0, [last, last])
    assert (barrier.mark(0), barrier.mark(1)) == (last, begin)


@pytest.mark.expect_error("does not answer", "failed, refusing its ledgers")
def test_a_directory_that_stalled_is_used_again_and_one_that_failed_is_not() -> None:
    changes: list[int] = []
    health = DirectoryHealth("ledger directory", ("/a", "/b"))
    health.changed = changes.append
    health.stalled(1)
    health.stalled(1)
    with pytest.raises(DirectoryUnavailableError, match="/b: its disk does not answer"):
        health.check(1)
    health.answers(1)
    health.check(1)
    health.failed(1, "EIO")
    health.answers(1)
    assert changes == [1, 1, 1]
    assert (health.usable, health.all_failed, health.is_final(1)) == ([0], False, True)
