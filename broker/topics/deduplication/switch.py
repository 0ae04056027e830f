"""Switching of deduplication, when the policies of a topic change."""

from __future__ import annotations

from broker.topics.deduplication.replay import delete_cursor
from broker.topics.policies import Held
from broker.topics.topic import Topic
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError


def follow_policies(topic: Topic, policies: Held) -> bool:
    """Switch deduplication of a loaded topic as its policies ask; return False if the topic is being closed for it.

    It begins with the loading of the topic: what is on its way to the log has been published without a look at its
    sequence ids, and the log tells which ids it has only when nothing is added to it."""
    asked = policies.asks_deduplication()
    if asked == (topic.deduplication is not None):
        return True
    if asked:
        topic.log.info("topic is loaded again, to drop duplicates from now on")
        topic.reload()
        return False
    topic.log.info("duplicates are not dropped any more")
    deduplication, topic.deduplication = topic.deduplication, None
    if deduplication is not None:
        deduplication.stopped = True
        topic.nursery.start_soon(_delete, topic, name=f"stop deduplication of {topic.name.full}")
    return True


async def _delete(topic: Topic) -> None:
    """Delete what is stored for it. If that fails, the next load does it."""
    try:
        await delete_cursor(topic.ledger)
    except (ManagedLedgerError, CursorError) as error:
        topic.log.warning("deduplication cursor not deleted", reason=str(error))
