"""Statistics of a partitioned topic from those of its partitions. Pure.

Numbers are added, but a time or an age is that of the oldest message; lists are joined; subscriptions are merged by
name. Source: Pulsar's PartitionedTopicStatsImpl and TopicStatsImpl.add.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

_OLDEST = ("earliestMsgPublishTimeInBacklogs", "earliestMsgPublishTimeInBacklog")
"""Times of which the smallest counts; 0: unknown."""
_LARGEST = ("oldestBacklogMessageAgeSeconds", "lastExpireTimestamp", "topicEpoch")
_MERGED = ("subscriptions", "subscriptionProperties")


def merged(partitions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of all partitions together.

    >>> merged([{"msgInCounter": 1, "publishers": ["a"]}, {"msgInCounter": 2, "publishers": ["b"]}])
    {'msgInCounter': 3, 'publishers': ['a', 'b']}
    >>> one, other = {"subscriptions": {"s": {"msgBacklog": 1}}}, {"subscriptions": {"s": {"msgBacklog": 4}, "t": {}}}
    >>> merged([one, other])
    {'subscriptions': {'s': {'msgBacklog': 5}, 't': {}}}
    """
    steps = merging(partitions)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: dict[str, Any] = done.value
            return found


def merging(partitions: Iterable[Mapping[str, Any]]) -> Generator[None, None, dict[str, Any]]:
    """Do as `merged`, with one partition in each step."""
    found: dict[str, Any] = {}
    for partition in partitions:
        for name, value in partition.items():
            found[name] = _joined(name, found[name], value) if name in found else value
        yield
    return found


def _joined(name: str, one: Any, other: Any) -> Any:
    if name in _MERGED and isinstance(one, Mapping) and isinstance(other, Mapping):
        return {
            **one,
            **{key: merged([one[key], each]) if _both(one, key, each) else each for key, each in other.items()},
        }
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    if isinstance(one, bool) or isinstance(other, bool):
        return one or other
    if isinstance(one, int) and isinstance(other, int):
        if name in _OLDEST:
            return min(one or other, other or one)
        return max(one, other) if name in _LARGEST else -1 if -1 in (one, other) else one + other
    return other if one is None else one or other


def _both(one: Mapping[str, Any], key: str, each: object) -> bool:
    return key in one and isinstance(each, Mapping) and isinstance(one[key], Mapping)
