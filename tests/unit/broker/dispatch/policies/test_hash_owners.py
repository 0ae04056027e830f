from __future__ import annotations

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.policies.hash_owners import RANGE_SIZE, RING_SIZE, Ranges, Ring


def model_owner(members: list[tuple[str, int]], key_hash: int, points: int = 100) -> set[tuple[str, int]]:
    """Return the possible owners of a hash: (name, index of the name); several where points collide."""
    places: dict[int, set[tuple[str, int]]] = {}
    for name, index in members:
        for point in range(points):
            place = (mmh3.hash(f"{name}\0{index}\0{point}", 0, False) & 0x7FFFFFFF) % 65535 + 1
            places.setdefault(place, set()).add((name, index))
    ordered = sorted(places)
    return places[next((place for place in ordered if place >= key_hash), ordered[0])]


def test_a_hash_belongs_to_the_first_point_at_or_behind_it() -> None:
    ring: Ring[tuple[str, int]] = Ring(100)
    members = [("a", 0), ("b", 0), ("a", 1)]
    for member in members:
        ring.add(member, member[0])
    for key_hash in range(1, RING_SIZE + 1, 13):
        assert ring.owner(key_hash) in model_owner(members, key_hash)


def test_nobody_owns_anything_on_an_empty_ring() -> None:
    ring: Ring[str] = Ring(100)
    assert ring.owner(5) is None
    ring.add("m", "m")
    ring.remove("m")
    assert ring.owner(5) is None


def test_members_share_the_ring_and_only_the_newcomers_part_moves() -> None:
    ring: Ring[int] = Ring(100)
    for n in range(4):
        ring.add(n, f"consumer-{n}")
    hashes = range(1, RING_SIZE + 1, 7)
    before = [ring.owner(h) for h in hashes]
    for n in range(4):
        assert 0.15 < before.count(n) / len(before) < 0.35
    ring.add(4, "consumer-4")
    after = [ring.owner(h) for h in hashes]
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {4}
    ring.remove(4)
    assert [ring.owner(h) for h in hashes] == before


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30))
def test_what_a_ring_says_depends_on_its_members_only(steps: list[tuple[bool, int]]) -> None:
    """Two members share each name; the places of members that left are used again."""
    ring: Ring[int] = Ring(10)
    index: dict[int, tuple[str, int]] = {}
    for join, member in steps:
        name = f"n{member % 3}"
        if join and member not in index:
            taken = {number for other, number in index.values() if other == name}
            ring.add(member, name)
            index[member] = (name, 0 if 0 not in taken else 1)
        elif not join and member in index:
            ring.remove(member)
            del index[member]
    for key_hash in range(1, RING_SIZE, 999):
        owner = ring.owner(key_hash)
        if owner is None:
            assert not index
        else:
            assert index[owner] in model_owner(list(index.values()), key_hash, points=10)


def test_ranges_own_what_they_declare_ends_included() -> None:
    ranges: Ranges[str] = Ranges()
    ranges.add("a", [(100, 200), (0, 9)])
    ranges.add("b", [(10, 99), (201, RANGE_SIZE - 1)])
    found = [ranges.owner(h) for h in (1, 9, 10, 99, 100, 200, 201, RANGE_SIZE - 1)]
    assert found == ["a", "a", "b", "b", "a", "a", "b", "b"]
    ranges.remove("b")
    assert [ranges.owner(h) for h in (9, 10, 99, 100, 200, 201)] == ["a", None, None, "a", "a", None]
    ranges.remove("a")
    assert ranges.owner(5) is None


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [(5, 4)],
        [(-1, 4)],
        [(0, RANGE_SIZE)],
        [(200, 300)],
        [(100, 100)],
        [(0, 1000)],
        [(0, 5), (5, 9)],
        [(0, 5), (0, 5)],
    ],
)
def test_ranges_that_do_not_fit_are_refused_and_leave_no_trace(bad: list[tuple[int, int]]) -> None:
    ranges: Ranges[str] = Ranges()
    ranges.add("a", [(100, 200)])
    with pytest.raises(ValueError, match="range"):
        ranges.add("b", bad)
    ranges.add("c", [(0, 99), (201, RANGE_SIZE - 1)])
    assert [ranges.owner(h) for h in (0, 99, 100, 200, 201)] == ["c", "c", "a", "a", "c"]


@pytest.mark.parametrize("members", [1, 4, 300])
def test_the_shares_of_many_hashes_are_those_of_each(members: int) -> None:
    ring: Ring[int] = Ring(100 if members < 100 else 10)
    for member in range(members):
        ring.add(member, f"n{member % 7}")
        if member in (0, members // 2):
            ring.shares(range(100))  # what was made for these members does not hold for more
    hashes = [0, *range(1, RING_SIZE + 1), 0, 5]
    shares = ring.shares(hashes)
    assert sorted(index for indexes in shares.values() for index in indexes) == [*range(1, RING_SIZE + 1), 65537]
    for owner, indexes in shares.items():
        assert indexes == sorted(indexes)
        assert {ring.owner(hashes[index]) for index in indexes} == {owner}
    for member in range(members):
        ring.remove(member)
    assert ring.shares(hashes) == {None: [*range(1, RING_SIZE + 1), 65537]}


def test_the_shares_of_ranges_are_those_of_their_members() -> None:
    ranges: Ranges[str] = Ranges()
    ranges.add("a", [(0, 9)])
    ranges.add("b", [(20, 29)])
    assert ranges.shares([5, 0, 25, 15, 9, 20]) == {"a": [0, 4], "b": [2, 5], None: [3]}
