from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.planning.logs import LedgerRange
from quire.spark.planning.tasks import TopicRange, split


def task(entries: list[int], name: str = "t", *, batch: int = 0, earlier: int = 0) -> TopicRange:
    ranges = tuple(LedgerRange(3 * number, 5, 4 + each) for number, each in enumerate(entries) if each)
    return TopicRange(
        partition=name,
        ranges=ranges,
        start_batch_index=batch,
        earlier=(LedgerRange(0, 5 - earlier, 4),) if earlier else (),
    )


def entries_of(ranges: tuple[LedgerRange, ...]) -> list[tuple[int, int]]:
    return [(part.ledger_id, n) for part in ranges for n in range(part.first, part.last + 1)]


TASKS = st.lists(
    st.lists(st.integers(0, 12), min_size=1, max_size=4).filter(any).map(lambda each: task(each, batch=2, earlier=3)),
    max_size=4,
)


def test_without_a_minimum_tasks_stay_as_they_are() -> None:
    tasks = [task([5]), task([100, 3])]
    assert split(tasks, None) == tasks
    assert split(tasks, 2) == tasks


def test_the_largest_are_cut_into_even_pieces() -> None:
    assert [part.entries for part in split([task([5]), task([60, 40])], 5)] == [5, 25, 25, 25, 25]


def test_no_task_has_more_entries_than_allowed() -> None:
    tasks = [task([5]), task([60, 41])]
    assert [part.entries for part in split(tasks, None, entries_max=50)] == [5, 33, 34, 34]
    assert [part.entries for part in split(tasks, 6, entries_max=50)] == [5, 20, 20, 20, 20, 21]
    assert split(tasks, 2, entries_max=101) == tasks


def test_no_task_is_without_an_entry() -> None:
    assert [part.entries for part in split([task([2]), task([1])], 100)] == [1, 1, 1]
    assert split([], 100) == []


def test_only_the_first_piece_begins_in_the_middle_of_a_batch() -> None:
    assert [part.start_batch_index for part in split([task([9], batch=4)], 3)] == [4, 0, 0]


def test_a_piece_looks_back_into_the_ones_before_it_for_chunks() -> None:
    pieces = split([task([4, 4], earlier=3)], 2, earlier_max=6)
    assert pieces[0].earlier == (LedgerRange(0, 2, 4),)
    assert pieces[1].earlier == (LedgerRange(0, 3, 8),)


@settings(deadline=None)
@given(TASKS, st.integers(1, 30))
def test_the_pieces_have_every_entry_once_in_order(tasks: list[TopicRange], tasks_min: int) -> None:
    pieces = split(tasks, tasks_min, earlier_max=4)
    assert [e for each in pieces for e in entries_of(each.ranges)] == [e for t in tasks for e in entries_of(t.ranges)]
    assert len(pieces) == max(len(tasks), min(tasks_min, sum(each.entries for each in tasks)) if tasks else 0)
    assert all(each.entries for each in pieces)


@settings(deadline=None)
@given(TASKS, st.integers(1, 30), st.integers(0, 20))
def test_what_is_looked_back_at_ends_right_before_the_piece(
    tasks: list[TopicRange], tasks_min: int, earlier_max: int
) -> None:
    for whole in tasks:
        everything = entries_of((*whole.earlier, *whole.ranges))
        for piece in split([whole], tasks_min, earlier_max=earlier_max)[1:]:
            at = everything.index(entries_of(piece.ranges)[0])
            assert entries_of(piece.earlier) == (everything[:at][-earlier_max:] if earlier_max else [])


def test_a_task_pickles() -> None:
    whole = task([5, 5], batch=1, earlier=2)
    assert pickle.loads(pickle.dumps(whole)) == whole
