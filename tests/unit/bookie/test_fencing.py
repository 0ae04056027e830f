from __future__ import annotations

from bookie.errors import BookieError, JournalWriteError
from bookie.fencing import FenceTable


def test_fences_at_once_share_one_record() -> None:
    fences = FenceTable()
    told: list[tuple[str, BookieError | None]] = []
    assert fences.needs_wait(7, fenced=False)
    assert fences.wait(7, lambda error: told.append(("a", error)))
    assert fences.needs_wait(7, fenced=True)
    assert not fences.wait(7, lambda error: told.append(("b", error)))
    assert told == []
    fences.written(7, None)
    assert told == [("a", None), ("b", None)]
    assert not fences.needs_wait(7, fenced=True)


def test_ledgers_wait_for_their_own_record() -> None:
    fences = FenceTable()
    assert fences.wait(7, lambda _: None)
    assert fences.wait(8, lambda _: None)
    fences.written(7, None)
    assert not fences.needs_wait(7, fenced=True)
    assert fences.needs_wait(8, fenced=True)


def test_a_record_that_failed_is_written_again_by_the_next_fence() -> None:
    fences = FenceTable()
    told: list[BookieError | None] = []
    assert fences.wait(7, told.append)
    failure = JournalWriteError("disk full")
    fences.written(7, failure)
    assert told == [failure]
    assert fences.needs_wait(7, fenced=True)
    assert fences.wait(7, told.append)
    fences.written(7, None)
    assert not fences.needs_wait(7, fenced=True)
