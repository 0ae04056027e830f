"""Counts and times of the ends that coordinators of this broker brought to participants, by topic.

Source: Pulsar's TransactionBufferClientStatsImpl, whose times are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio
from cachetools import LRUCache

from broker.errors import BrokerError
from quire.service.metrics import LATENCY_MS, Histogram
from quire.wire.pulsar.names import TopicName

TOPICS_MAX: Final = 10_000
"""Topics with counts of their own. Those not used for longest are forgotten, and begin at 0 again."""
BOUNDS_NS: Final = tuple(bound * 1e6 for bound in LATENCY_MS)


class EndsOfTopic:
    """Ends that one topic and its subscriptions were told."""

    __slots__ = ("abort_ns", "aborts_failed", "commit_ns", "commits_failed", "name")

    def __init__(self, name: TopicName) -> None:
        self.name = name
        self.commit_ns = Histogram(BOUNDS_NS)
        self.abort_ns = Histogram(BOUNDS_NS)
        self.commits_failed = self.aborts_failed = 0


class ToldEnds:
    """Ends that were told, and those being told."""

    def __init__(self) -> None:
        self.topics: LRUCache[TopicName, EndsOfTopic] = LRUCache(TOPICS_MAX)
        self.pending = 0
        """Requests without an answer yet."""

    @contextmanager
    def telling(self, name: TopicName, *, commit: bool) -> Iterator[None]:
        """Count and time one request, made inside."""
        begun = trio.current_time()
        self.pending += 1
        try:
            yield
        except BrokerError:
            found = self._of(name)
            if commit:
                found.commits_failed += 1
            else:
                found.aborts_failed += 1
            raise
        else:
            found = self._of(name)
            (found.commit_ns if commit else found.abort_ns).observe(round((trio.current_time() - begun) * 1e9))
        finally:
            self.pending -= 1

    def _of(self, name: TopicName) -> EndsOfTopic:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = EndsOfTopic(name)
        return found
