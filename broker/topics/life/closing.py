"""Closing of all topics when a broker stops: those with clients first, then the idle ones, which may be very many.

Most of these were loaded, and not written to: nothing of them is to be stored, so they are closed in the step that
looks at them. The others close their ledgers, many at a time.

A stop can be cut off at any moment: what is not closed then is recovered when it is used next, as after a kill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from broker.dispatch.delaying import DelayingSubscription
from broker.slices import sliced
from broker.topics.topic import Topic
from quire.service.log import get_logger
from quire.world.tasks import for_each

log = get_logger(__name__)

CLOSING_MAX: Final = 1000
"""Idle topics that are closed at a time: enough that few syncs of the metadata serve all, few enough that what this
needs takes little memory."""
PROGRESS_S: Final = 5.0
"""Time between two lines of the log about the progress."""
TOPICS_IN_STEP: Final = 200


async def close_in_order(loaded: dict[str, Topic], close: Callable[[Topic], Awaitable[None]]) -> None:
    """Close the loaded topics, by name: by `close`, which raises nothing, or at once, which takes them out of the
    map."""
    topics = list(loaded.values())
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
        left: list[Topic] = []
        async for topic in sliced(idle, TOPICS_IN_STEP):
            if close_at_once(topic):
                loaded.pop(topic.name.full, None)
                closed += 1
            else:
                left.append(topic)
        await for_each(left, close_one, at_once=CLOSING_MAX, name="close idle topics")
    finally:
        if closed < len(topics):
            log.info(
                "topics not closed in time, their next use recovers them", closed=closed, left=len(topics) - closed
            )


def close_at_once(topic: Topic) -> bool:
    """Close an idle topic in this step, if nothing of it is to be stored or waited for. Return False otherwise; nothing
    has changed then."""
    if topic.closing or is_used(topic) or topic.transactions is not None or topic.deduplication is not None:
        return False
    if any(isinstance(each, DelayingSubscription) and each.stores_index for each in topic.subscriptions.values()):
        return False
    if not topic.ledger.close_at_once():
        return False
    topic.disconnect_all()
    return True


def is_used(topic: Topic) -> bool:
    """Return whether clients are connected to the topic."""
    return bool(topic.producers) or any(each.consumers for each in topic.subscriptions.values())
