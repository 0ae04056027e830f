"""broker.admin.top.ranking: the first rows of many, of one broker and of several."""

from __future__ import annotations

import random
from typing import Any

from broker.admin.top.ranking import FirstRows, joined, key_of


def test_the_first_rows_are_those_of_a_whole_sort_and_no_more_are_kept() -> None:
    rng = random.Random(3)
    keys = [rng.randrange(1000) for _ in range(5000)]
    first = FirstRows[int](30)
    for index, key in enumerate(keys):
        first.add(key, index)
        assert len(first._heap) <= 30
    wanted = sorted(range(5000), key=lambda index: (-keys[index], index))[:30]
    assert first.rows() == wanted


def test_answers_of_several_brokers_become_one() -> None:
    def topic(name: str, rate: float, backlog: int, age: int) -> dict[str, Any]:
        return {"topic": name, "msgRateIn": rate, "msgRateOut": 1.0, "backlog": backlog, "ageSeconds": age}

    one = {"brokers": [1], "topics": [topic("a", 5, 1, 9)], "stuck": [{"topic": "a", "backlog": 1}]}
    two = {
        "brokers": [2],
        "topics": [topic("b", 7, 0, -1), topic("c", 1, 9, 3)],
        "stuck": [{"topic": "c", "backlog": 9}],
    }

    def order(sort: str, count: int = 9) -> list[str]:
        return [row["topic"] for row in joined([one, two], sort, count)["topics"]]

    assert (order("rate"), order("lag"), order("age"), order("lag", 1)) == (
        ["b", "a", "c"],
        ["c", "a", "b"],
        ["a", "c", "b"],
        ["c"],
    )
    found = joined([one, two], "rate", 9)
    assert (found["brokers"], [row["topic"] for row in found["stuck"]]) == ([1, 2], ["c", "a"])
    assert key_of("rate", topic("a", 5, 1, 9)) == 6
