"""Termination of a topic: it takes no more messages, and its consumers hear of the end when they have read it.

Source: Pulsar's PersistentTopic.terminate.
"""

from __future__ import annotations

from broker.ends import End
from broker.errors import NotAllowedError, ServiceNotReadyError
from broker.topics.system_names import is_system_topic
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.writing.state import State
from quire.ledger.position import Position


async def terminate(topic: Topic) -> Position:
    """Store the end of a topic behind everything that was published; return its last position. Once more has no effect.

    Raises ServiceNotReadyError, NotAllowedError (a topic of the servers)."""
    topic.check_open()
    if is_system_topic(topic.name):
        raise NotAllowedError("Termination of a system topic is not allowed")
    if topic.ledger.state is not State.TERMINATED:
        try:
            await topic.ledger.terminate()
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full} is not terminated: {error}") from error
        topic.log.info("topic terminated", last=str(topic.ledger.last_confirmed))
        for producer in list(topic.producers.values()):
            topic.end_producer(producer, End.CUT)
    for subscription in list(topic.subscriptions.values()):
        subscription.pump()
    topic.context.turn.flush()
    return topic.ledger.last_confirmed
