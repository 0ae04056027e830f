"""Age of the oldest unacknowledged entry of each topic, from its publish time.

Reading an entry may need a bookie, so a scrape reads none: rounds do, after those of the rates, for topics whose oldest
entry is another than in the round before, and at most READS_IN_ROUND of them. The age grows between the rounds.

Source: Pulsar's PersistentTopic.getBestEffortOldestUnacknowledgedMessageAgeSeconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from broker.dispatch.publish_time import time_of
from broker.topics.quotas.backlog import slowest
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import Position

READS_IN_ROUND: Final = 500
READ_S: Final = 5.0
"""Deadline of one read."""
TOPICS_IN_STEP: Final = 100
UNKNOWN: Final = -1.0


class BacklogAges:
    """Publish times of the oldest entries, of topics that have a backlog."""

    def __init__(self) -> None:
        self._oldest: dict[Topic, tuple[Position, int]] = {}
        """The position behind which the entry lies, and its time in ms since 1970."""

    def of(self, topic: Topic) -> float:
        """Return the age in seconds; 0.0 without a backlog, UNKNOWN until a round has read the entry."""
        found = slowest(topic)
        if found is None or not found.backlog:
            return 0.0
        known = self._oldest.get(topic)
        if known is None or known[0] != found.cursor.mark_delete:
            return UNKNOWN
        return max(0.0, (topic.context.world.clock.wall_ms() - known[1]) / 1000)

    async def round(self, topics: Iterable[Topic]) -> None:
        """Read the oldest entries, as far as they are not known."""
        oldest: dict[Topic, tuple[Position, int]] = {}
        reads = 0
        for number, topic in enumerate(topics, 1):
            if not number % TOPICS_IN_STEP:
                await trio.lowlevel.checkpoint()
            found = slowest(topic)
            if found is None or topic.closing or not found.backlog:
                continue
            position = found.cursor.mark_delete
            known = self._oldest.get(topic)
            if known is not None and known[0] == position:
                oldest[topic] = known
            elif reads < READS_IN_ROUND:
                reads += 1
                time_ms = await _time_behind(topic, position)
                if time_ms is not None:
                    oldest[topic] = position, time_ms
        self._oldest = oldest


async def _time_behind(topic: Topic, position: Position) -> int | None:
    """Return the time of the first entry behind a position; None: unknown."""
    with trio.move_on_after(READ_S):
        try:
            return await time_of(topic.ledger, topic.ledger.next_position(position))
        except ManagedLedgerError:
            return None  # the next round tries again
    return None
