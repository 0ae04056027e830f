from __future__ import annotations

from itertools import permutations

import mmh3

from broker.dispatch.policies.failover import FailoverChoice


def test_nobody_is_active_of_nobody() -> None:
    assert FailoverChoice("t").choose([]) is None
    assert FailoverChoice("t", 2).choose([]) is None


def test_partitions_go_around_the_names_of_the_highest_priority() -> None:
    consumers = [(1, "a", "low"), (0, "c", "C"), (0, "b", "B"), (0, "d", "D")]
    for order in permutations(consumers):
        assert [FailoverChoice("t", n).choose(order) for n in range(7)] == ["B", "C", "D", "B", "C", "D", "B"]


def test_without_partitions_the_ring_decides_whatever_the_order() -> None:
    names = ["red", "green", "blue", "black"]
    for topic in (f"persistent://public/default/t{n}" for n in range(30)):
        place = mmh3.hash(topic, 0, False) & 0x7FFFFFFF
        points = [(mmh3.hash(f"{name}{j}", 0, False) & 0x7FFFFFFF, name) for name in names for j in range(100)]
        expected = min([each for each in points if each[0] >= place] or points)[1]
        for order in permutations(names):
            assert FailoverChoice(topic).choose([(0, name, name) for name in order]) == expected


def test_with_consistent_hashing_the_ring_decides_for_partitions_too() -> None:
    consumers = [(0, name, name) for name in ("red", "green", "blue", "black")]
    for n in range(30):
        topic = f"persistent://public/default/t-partition-{n}"
        chosen = FailoverChoice(topic, n, consistent_hashing=True).choose(consumers)
        assert chosen == FailoverChoice(topic).choose(consumers)
    spread = {FailoverChoice(f"t{n}", n, consistent_hashing=True).choose(consumers) for n in range(30)}
    assert spread == {"red", "green", "blue", "black"}


def test_most_topics_keep_their_consumer_when_another_one_comes() -> None:
    before = [(0, f"c{n}", n) for n in range(4)]
    after = [*before, (0, "c4", 4)]
    topics = [FailoverChoice(f"topic-{n}") for n in range(300)]
    moved = [topic.choose(after) for topic in topics if topic.choose(before) != topic.choose(after)]
    assert 10 < len(moved) < 120
    assert set(moved) == {4}


def test_a_lower_priority_is_active_only_without_a_higher_one() -> None:
    for partition in (-1, 0, 5):
        choice = FailoverChoice("t", partition)
        assert choice.choose([(2, "a", "a"), (1, "z", "z")]) == "z"
        assert choice.choose([(2, "a", "a")]) == "a"


def test_of_equal_names_the_first_one_stays_active() -> None:
    assert FailoverChoice("t").choose([(0, "same", 1), (0, "same", 2)]) == 1
    assert FailoverChoice("t", 0).choose([(0, "same", 1), (0, "same", 2)]) == 1
