from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from managed_ledger.slowest import Slowest
from quire.ledger.position import Position

CALL = st.tuples(st.sampled_from(["add", "discard", "move"]), st.integers(0, 6), st.integers(0, 40))


@given(st.lists(CALL, max_size=200))
def test_it_is_the_least_of_all_positions_whatever_moves(calls: list[tuple[str, int, int]]) -> None:
    places: dict[int, Position] = {number: Position(0, 0) for number in range(7)}
    members: set[int] = set()
    slowest = Slowest[int](places.__getitem__)
    for kind, cursor, entry in calls:
        if kind == "add":
            slowest.add(cursor)
            members.add(cursor)
        elif kind == "discard":
            slowest.discard(cursor)
            members.discard(cursor)
        else:
            back = Position(0, entry) < places[cursor]
            places[cursor] = Position(0, entry)
            if back:
                slowest.moved_back(cursor)
        assert slowest.position() == min((places[each] for each in members), default=None)


def test_a_move_of_one_among_thousands_looks_at_few() -> None:
    asked = 0
    places = dict.fromkeys(range(5000), 0)

    def position_of(cursor: int) -> Position:
        nonlocal asked
        asked += 1
        return Position(0, places[cursor])

    slowest = Slowest[int](position_of)
    for cursor in places:
        slowest.add(cursor)
    asked = 0
    for step in range(1, 4):
        for cursor in places:
            places[cursor] = step
            slowest.position()
    assert asked < 3 * 3 * len(places)
