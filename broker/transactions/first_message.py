"""The first message of a transaction on a topic, from a producer that did not announce transactions.

Nothing of a transaction may be stored before the topic has its first snapshot. Java's producers announce that they may
send in transactions, so that it is there in time; Go's do not. Such a producer is disconnected, with its later sends
ignored, until the snapshot is stored: then its client connects again, and repeats what has no receipt.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import trio

from broker.context import Context
from broker.ends import End
from broker.errors import BrokerError
from broker.topics.ports import TopicTransactions
from broker.topics.producer import Producer
from quire.service.log import Logger
from quire.wire.pulsar.entry_features import TRANSACTION as NAMED_IN_METADATA
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.splitter import TRANSACTION as NAMED_IN_SEND
from quire.wire.pulsar.splitter import SendRun


class FirstTopic(Protocol):
    """Topic as used here."""

    context: Context
    name: TopicName
    nursery: trio.Nursery
    transactions: TopicTransactions | None

    @property
    def log(self) -> Logger: ...

    def end_producer(self, producer: Producer, end: End) -> None:
        """End a producer, as `broker.ends` has it."""


def waits_for_snapshot(topic: FirstTopic, producer: Producer, run: SendRun, features: int) -> bool:
    """Return whether a run of a transaction is not taken now: the producer has to connect again, and repeat it."""
    if not (run.flags & NAMED_IN_SEND or features & NAMED_IN_METADATA):
        return False
    if topic.context.enable_transactions is None or (
        topic.transactions is not None and topic.transactions.takes_messages
    ):
        return False
    producer.connection.sends_answered(len(run.sequence_ids))
    topic.end_producer(producer, End.FAILED)
    topic.nursery.start_soon(partial(_enable, topic, producer), name=f"first transaction of {topic.name.full}")
    return True


async def _enable(topic: FirstTopic, producer: Producer) -> None:
    enable = topic.context.enable_transactions
    assert enable is not None, "it is set before the first client"
    try:
        await enable(topic)
    except BrokerError as error:  # the client tries again
        topic.log.info("topic takes no messages of transactions yet", reason=str(error))
    topic.end_producer(producer, End.CUT)
