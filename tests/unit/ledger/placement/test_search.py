from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.placement.search import Search, covers, windows


def no_preference(place: int, labels: object, label: str) -> tuple[int, ...]:
    return ()


def queues_of(pool: str) -> dict[str, list[int]]:
    queues: dict[str, list[int]] = {}
    for rank, label in enumerate(pool):
        queues.setdefault(label, []).append(rank)
    return queues


def test_a_write_set_that_spans_the_whole_ensemble_is_one() -> None:
    assert windows(["a", "b", "c"], 3) == [["a", "b", "c"]]


def test_open_places_count_as_whatever_is_needed() -> None:
    assert covers(3)(["a", None, None])
    assert not covers(3)(["a", "a", None])


def test_the_next_candidate_with_the_least_rank_is_taken_among_equals() -> None:
    assert Search([None] * 3, queues_of("abab"), 1, covers(1), no_preference).run() == [0, 1, 2]


def test_it_goes_back_where_the_first_choice_leads_nowhere() -> None:
    assert Search([None] * 3, queues_of("aabb"), 2, covers(2), no_preference).run() is None, "an odd ring of two"
    ranks = Search([None] * 4, queues_of("aabb"), 2, covers(2), no_preference).run()
    assert ranks == [0, 2, 1, 3]
    assert Search([None] * 4, queues_of("aabc"), 2, covers(2), lambda place, labels, label: (label != "b",)).run() == [
        2,
        0,
        3,
        1,
    ], "b first, then c and a a would be the end"


def test_only_write_sets_with_an_open_place_must_fit() -> None:
    assert Search(["a", "a", "b", None], queues_of("b"), 2, covers(2), no_preference).run() is None
    assert Search(["b", "b", "a", None], queues_of("c"), 2, covers(2), no_preference).run() == [0]


@settings(deadline=None)
@given(
    labels=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=6),
    pool=st.text("abcd", max_size=7),
    data=st.data(),
)
def test_it_finds_a_filling_exactly_if_there_is_one(labels: list[str | None], pool: str, data: st.DataObject) -> None:
    quorum = data.draw(st.integers(1, len(labels)))
    fits = covers(data.draw(st.integers(1, quorum)))
    places = [place for place, label in enumerate(labels) if label is None]
    touched = [start for start in range(len(labels)) if any((place - start) % len(labels) < quorum for place in places)]

    def good(filling: tuple[str, ...]) -> bool:
        filled = list(labels)
        for place, label in zip(places, filling, strict=True):
            filled[place] = label
        size = len(filled)
        return all(fits([filled[(start + i) % size] for i in range(quorum)]) for start in touched)

    exists = any(
        good(filling)
        for filling in product(sorted(set(pool)), repeat=len(places))
        if all(filling.count(each) <= pool.count(each) for each in filling)
    )
    ranks = Search(labels, queues_of(pool), quorum, fits, no_preference).run()
    assert (ranks is not None) == exists
    if ranks is not None:
        assert len(set(ranks)) == len(places)
        assert good(tuple(pool[rank] for rank in ranks))


def test_what_is_plentiful_is_used_early_where_a_first_attempt_gives_up() -> None:
    pool = "a" * 20 + "bcdefghijklmnopqrst"
    ranks = Search([None] * 39, queues_of(pool), 3, covers(2), lambda place, labels, label: (label == "a",)).run()
    assert ranks is not None
    assert all(map(covers(2), windows([pool[rank] for rank in ranks], 3)))


def test_a_search_among_many_that_cannot_succeed_ends_soon() -> None:
    pool = "a" * 10 + "".join(chr(ord("b") + i) * 1 for i in range(20))
    assert Search([None] * 21, queues_of(pool[:21]), 3, covers(3), no_preference).run() is None
