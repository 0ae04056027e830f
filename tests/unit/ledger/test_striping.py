from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.striping import Striping
from tests.support.refusals import refuses

stripings = st.integers(1, 7).flatmap(
    lambda size: st.integers(1, size).map(lambda write_quorum: Striping(size, write_quorum))
)


def test_write_sets_are_those_of_the_reference() -> None:
    assert [Striping(4, 3).write_set(entry_id) for entry_id in range(4)] == [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]


@settings(deadline=None)
@given(stripings, st.integers(0, 50), st.integers(0, 6))
def test_a_bookie_stores_exactly_the_entries_whose_write_set_it_is_in(striping: Striping, entry_id: int, index: int):
    index %= striping.ensemble_size
    assert striping.stores(index, entry_id) == (index in striping.write_set(entry_id))


@settings(deadline=None)
@given(stripings, st.integers(0, 50), st.integers(0, 6))
def test_the_next_and_the_previous_stored_entry_are_found_without_a_search(striping, entry_id, index):
    index %= striping.ensemble_size
    following = next(each for each in range(entry_id, entry_id + 8) if striping.stores(index, each))
    previous = next(each for each in range(entry_id, entry_id - 8, -1) if striping.stores(index, each))
    assert striping.stored_from(index, entry_id) == following
    assert striping.stored_until(index, entry_id) == previous


@settings(deadline=None)
@given(stripings, st.integers(0, 50), st.integers(0, 30), st.integers(0, 6))
def test_select_takes_what_the_bookie_stores(striping: Striping, first: int, count: int, index: int) -> None:
    index %= striping.ensemble_size
    ids = list(range(first, first + count))
    assert striping.select(index, first, ids) == [each for each in ids if striping.stores(index, each)]


def test_quorums_that_cannot_be_are_refused() -> None:
    refuses(AssertionError, lambda: Striping(2, 3))
    refuses(AssertionError, lambda: Striping(2, 0))
