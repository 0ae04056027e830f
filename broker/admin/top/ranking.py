"""The first rows out of many topics (pure).

A heap of at most `count` rows is kept, so that 100,000 topics cost no list of that length, and a topic below the
smallest row costs one comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush, heappushpop
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

SORTS: Final = ("rate", "lag", "age")


class FirstRows(Generic[T]):
    """The rows with the highest keys."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._heap: list[tuple[float, int, T]] = []
        self._number = 0

    def add(self, key: float, row: T) -> None:
        """Add a row; the lowest one goes if there are too many. Equal keys keep the row that came first."""
        self._number -= 1
        if len(self._heap) < self._count:
            heappush(self._heap, (key, self._number, row))
        elif key > self._heap[0][0]:
            heappushpop(self._heap, (key, self._number, row))

    def rows(self) -> list[T]:
        """Return the rows, the highest key first.

        >>> first = FirstRows[str](2)
        >>> for key, row in ((1, "a"), (3, "b"), (2, "c"), (3, "d")): first.add(key, row)
        >>> first.rows()
        ['b', 'd']
        """
        return [row for _, _, row in sorted(self._heap, key=lambda each: each[:2], reverse=True)]


def key_of(sort: str, row: dict[str, Any]) -> float:
    """Return the key of a topic's row in an answer."""
    if sort == "lag":
        return float(row["backlog"])
    if sort == "age":
        return float(row["ageSeconds"])
    return float(row["msgRateIn"] + row["msgRateOut"])


def joined(answers: Iterable[dict[str, Any]], sort: str, count: int) -> dict[str, Any]:
    """Return the answers of several brokers as one: all brokers, the first topics and subscriptions of all."""
    topics, stuck = FirstRows[dict[str, Any]](count), FirstRows[dict[str, Any]](count)
    brokers: list[dict[str, Any]] = []
    for each in answers:
        brokers += each["brokers"]
        for row in each["topics"]:
            topics.add(key_of(sort, row), row)
        for row in each["stuck"]:
            stuck.add(row["backlog"], row)
    return {"brokers": brokers, "topics": topics.rows(), "stuck": stuck.rows()}
