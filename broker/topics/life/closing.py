"""Closing of all topics when a broker stops: those with clients first, then the idle ones, which may be very many.

A stop can be cut off at any moment: what is not closed then is recovered when it is used next, as after a kill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from broker.slices import sliced
from broker.topics.topic import Topic
from quire.service.log import get_logger
from quire.world.tasks import for_each

log = get_logger(__name__)

CLOSING_MAX: Final = 2000
"""Idle topics that are closed at a time: enough that few syncs of the metadata serve all, few enough that what this
needs takes little memory."""
PROGRESS_S: Final = 5.0
"""Time between two lines of the log about the progress."""
TOPICS_IN_STEP: Final = 500


async def close_in_order(topics: Sequence[Topic], close: Callable[[Topic], Awaitable[None]]) -> None:
    """Close these topics by `close`, which raises nothing."""
    used: list[Topic] = []
    idle: list[Topic] = []
    async for topic in sliced(topics, TOPICS_IN_STEP):
        (used if is_used(topic) else idle).append(topic)
    closed, told_at = 0, trio.current_time()

    async def close_one(topic: Topic) -> None:
        nonlocal closed, told_at
        await close(topic)
        closed += 1
        if trio.current_time() - told_at >= PROGRESS_S:
            told_at = trio.current_time()
            log.info("closing topics", closed=closed, left=len(topics) - closed)

    try:
        await for_each(used, close_one, at_once=max(1, len(used)), name="close topics in use")
        await for_each(idle, close_one, at_once=CLOSING_MAX, name="close idle topics")
    finally:
        if closed < len(topics):
            left = len(topics) - closed
            log.info("topics not closed in time, their next use recovers them", closed=closed, left=left)


def is_used(topic: Topic) -> bool:
    """Return whether clients are connected to the topic."""
    return bool(topic.producers) or any(each.consumers for each in topic.subscriptions.values())
