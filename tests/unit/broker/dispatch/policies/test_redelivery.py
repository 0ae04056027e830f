from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.dispatch.policies import redelivery
from broker.dispatch.policies.redelivery import PendingAcks, Redelivery
from quire.ledger.position import Position


def test_what_is_held_is_counted_in_messages_and_kept_in_order() -> None:
    pending = PendingAcks()
    pending.add(Position(1, 5), 10, 7)
    pending.add(Position(1, 2), 1, 0)
    assert [position for position, _ in pending.items()] == [Position(1, 5), Position(1, 2)]
    assert (len(pending), pending.messages) == (2, 11)
    entry = pending.pop(Position(1, 5))
    assert entry == (10, 7)
    assert pending.pop(Position(1, 5)) is None
    assert pending.messages == 1
    pending.add(Position(1, 2), 3, 0)
    assert (len(pending), pending.messages) == (1, 3)
    pending.clear()
    assert (len(pending), pending.messages) == (0, 0)


def test_the_oldest_run_comes_first_and_ends_at_a_gap_or_the_bound() -> None:
    replay = Redelivery()
    for ledger_id, entry_id in ((2, 0), (1, 7), (1, 5), (1, 4), (2, 1)):
        replay.add(Position(ledger_id, entry_id), 0, again=False)
    assert replay.first_run(100) == (Position(1, 4), 2)
    assert replay.first_run(1) == (Position(1, 4), 1)
    replay.discard(Position(1, 4))
    assert replay.first_run(100) == (Position(1, 5), 1)
    replay.discard(Position(1, 5))
    replay.discard(Position(1, 7))
    assert replay.first_run(100) == (Position(2, 0), 2)
    assert len(replay) == 2


def test_a_run_begins_with_a_hash_of_the_groups_that_are_asked_for() -> None:
    replay = Redelivery(lambda key_hash: {5: "five", 6: "six"}.get(key_hash))
    for entry_id, key_hash in enumerate([5, 6, 5, 7]):
        replay.add(Position(1, entry_id), key_hash, again=False)
    assert replay.first_run(100, ["six"]) == (Position(1, 1), 3)
    assert replay.first_run(100, ["six", "five"]) == (Position(1, 0), 4)
    assert replay.first_run(100, []) is None
    replay.discard(Position(1, 1))
    assert replay.first_run(100, ["six"]) is None
    assert dict(replay.hashes) == {5: 2, 7: 1}


def test_a_hash_is_found_in_the_group_where_it_is_now() -> None:
    groups = {5: "a", 6: "a"}
    replay = Redelivery(groups.get)
    for entry_id, key_hash in enumerate([5, 6, 5]):
        replay.add(Position(1, entry_id), key_hash, again=False)
    groups[5] = "b"
    assert replay.first_run(1, ["a"]) == (Position(1, 1), 1), "this is how it finds out"
    assert replay.first_run(1, ["b"]) == (Position(1, 0), 1)
    del groups[6]
    assert replay.first_run(1, ["a"]) is None
    groups[6] = "b"
    replay.discard(Position(1, 0))
    assert replay.first_run(1, ["b"]) == (Position(1, 2), 1)
    replay.regroup(6)
    assert replay.first_run(1, ["b"]) == (Position(1, 1), 1)
    groups[5] = groups[6] = "c"
    replay.regroup()
    assert not replay.is_settled
    while not replay.is_settled:
        assert replay.settle(1) == 1
    assert replay.settle(1) == 0
    assert replay.first_run(9, ["c"]) == (Position(1, 1), 2)


def test_what_a_call_costs_does_not_grow_with_what_waits_for_others() -> None:
    asked: list[int] = []

    def group_of(key_hash: int) -> str:
        asked.append(key_hash)
        return "mine" if key_hash == 0 else "theirs"

    replay = Redelivery(group_of)
    for entry_id in range(20_000):
        replay.add(Position(1, entry_id), entry_id % 10_000, again=False)
    asked.clear()
    assert replay.first_run(100, ["mine"]) == (Position(1, 0), 100)
    assert len(asked) == 1


def test_nothing_waits_in_an_empty_replay() -> None:
    replay = Redelivery()
    assert replay.first_run(100) is None
    assert not replay.knows
    replay.discard(Position(1, 1))
    assert len(replay) == 0


def test_only_what_was_delivered_before_counts_as_redelivered() -> None:
    replay = Redelivery()
    position = Position(1, 1)
    replay.add(position, 0, again=False)
    assert replay.count(position) == 0
    for again in (1, 2, 3):
        replay.discard(position, keep_count=True)
        assert position not in replay
        replay.add(position, 0, again=True)
        assert replay.count(position) == again
        assert replay.knows
    replay.discard(position)
    assert replay.count(position) == 0
    assert not replay.knows


def test_counts_are_bounded_and_the_oldest_go_first() -> None:
    replay = Redelivery()
    original = redelivery.COUNTS_MAX
    redelivery.COUNTS_MAX = 3
    try:
        for entry_id in range(5):
            replay.add(Position(1, entry_id), 0, again=True)
    finally:
        redelivery.COUNTS_MAX = original
    assert [replay.count(Position(1, entry_id)) for entry_id in range(5)] == [0, 0, 1, 1, 1]
    assert len(replay) == 5


def test_what_was_acknowledged_meanwhile_waits_no_longer() -> None:
    replay = Redelivery()
    for entry_id in range(10):
        replay.add(Position(1, entry_id), 0, again=True)
    replay.discard_acked(lambda position: position.entry_id % 2 == 0, 1, 2, 7)
    assert [e for e in range(10) if Position(1, e) in replay] == [0, 1, 3, 5, 7, 8, 9]
    replay.discard_acked(lambda position: True, 2, 0, 100)
    assert len(replay) == 7


def test_memory_does_not_grow_while_the_oldest_entry_is_stuck() -> None:
    replay = Redelivery()
    replay.add(Position(1, 0), 3, again=False)
    for _ in range(10_000):
        replay.add(Position(1, 9), 3, again=True)
        replay.discard(Position(1, 9), keep_count=True)
    assert sum(map(len, replay._heaps.values())) < 100
    for entry_id in range(10_000):
        replay.add(Position(1, 10 + entry_id), 10 + entry_id, again=True)
        replay.discard(Position(1, 10 + entry_id))
    assert sum(map(len, replay._heads.values())) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from("aadk"), st.integers(1, 2), st.integers(0, 12)),
        max_size=150,
    ),
    st.sets(st.integers(0, 3)),
)
def test_it_is_a_sorted_set(steps: list[tuple[str, int, int]], blocked: set[int]) -> None:
    replay = Redelivery(lambda key_hash: key_hash)
    model: set[Position] = set()
    for action, ledger_id, entry_id in steps:
        position = Position(ledger_id, entry_id)
        if action == "a":
            replay.add(position, entry_id % 4, again=bool(entry_id & 1))
            model.add(position)
        else:
            replay.discard(position, keep_count=action == "k")
            model.discard(position)
        assert len(replay) == len(model)
        able = sorted(each for each in model if each.entry_id % 4 not in blocked)
        found = replay.first_run(5, {0, 1, 2, 3} - blocked)
        if not able:
            assert found is None
            continue
        first = able[0]
        count = 1
        while count < 5 and Position(first.ledger_id, first.entry_id + count) in model:
            count += 1
        assert found == (first, count)
    replay.clear()
    assert len(replay) == 0
    assert not replay.knows
    assert not replay.hashes
