"""Failover: choice of the active consumer (pure).

Why this is hard: every broker has to choose the same consumer from the same list, because a topic that moves to another
broker keeps its active consumer. Each change of the active consumer costs redeliveries, so a consumer that joins or
leaves should move few topics, and yet the topics have to spread evenly over the consumers.

Only consumers of the highest priority (the lowest number) count. On a partition, it is the one at the partition's
number in the order of names, so that the partitions spread over the consumers. On a topic without partitions, and on
all of them if consistent hashing is asked for, each consumer has POINTS places on a ring, and the first place at or
behind the topic's name belongs to the active one: when a consumer joins or leaves, most topics keep theirs. It is the
same on every broker, so that a topic that moves keeps its active consumer.
Source: reading of Pulsar 4, AbstractDispatcherSingleActiveConsumer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeVar

from broker.dispatch.policies.hashing import murmur

C = TypeVar("C")

POINTS = 100


class FailoverChoice:
    """Choice of the active consumer of one topic."""

    __slots__ = ("_partition", "_place")

    def __init__(self, topic: str, partition: int = -1, *, consistent_hashing: bool = False) -> None:
        """Take the topic's place in the choice.

        Args:
            topic: its full name.
            partition: its number; -1 if it is not a partition.
            consistent_hashing: choose by the ring also for partitions (activeConsumerFailoverConsistentHashing).
        """
        self._place = murmur(topic)
        self._partition = -1 if consistent_hashing else partition

    def choose(self, consumers: Sequence[tuple[int, str, C]]) -> C | None:
        """Return the active one of (priority, name, consumer); None if there is none. Of equal names the first in the
        list."""
        if not consumers:
            return None
        top = min(priority for priority, _, _ in consumers)
        candidates = [(name, consumer) for priority, name, consumer in consumers if priority == top]
        if self._partition >= 0:
            candidates.sort(key=lambda candidate: candidate[0])
            return candidates[self._partition % len(candidates)][1]
        if len(candidates) == 1:
            return candidates[0][1]
        ring: dict[int, C] = {}
        for name, consumer in candidates:
            for point in range(POINTS):
                ring.setdefault(murmur(f"{name}{point}"), consumer)
        points = sorted(ring)
        return ring[points[bisect_left(points, self._place) % len(points)]]
