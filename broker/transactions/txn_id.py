"""Ids of transactions, and names that belong to them. Source: Pulsar's TxnID, SystemTopicNames, MLPendingAckStore."""

from __future__ import annotations

from typing import Final, NamedTuple

from quire.wire.pulsar.names import TopicName, encode_name

COORDINATORS: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
"""Partitioned topic whose partition N is looked up to find the broker with coordinator N."""
PENDING_ACKS_SUFFIX: Final = "__transaction_pending_ack"
SNAPSHOT_PROPERTY: Final = "quire.transactions"
"""Property of the log of a topic that has transactions."""
IN_TOPIC: Final = "topic"
"""Its value: the snapshot is in the topic for snapshots. A topic whose snapshot is lost is read from its beginning."""
NO_TRANSACTIONS: Final = "none"
"""Value that older versions wrote for a topic of Pulsar without transactions. Pulsar may have added some since."""
SNAPSHOT_TOPICS: Final = ("__transaction_buffer_snapshot", "__transaction_buffer_snapshot_indexes")
"""Topics of a namespace that say which topics have transactions. Source: Pulsar's SystemTopicNames."""


class TxnId(NamedTuple):
    """Id of a transaction: its coordinator, and its number there."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


def coordinator_log(coordinator_id: int) -> TopicName:
    """Return the name of a coordinator's log."""
    return TopicName.parse(f"persistent://pulsar/system/__transaction_log_{coordinator_id}")


def pending_acks_log(topic: TopicName, subscription: str) -> TopicName:
    """Return the name of the log of what a subscription acknowledged in transactions.

    >>> pending_acks_log(TopicName.parse("a/b/c"), "s/1").full
    'persistent://a/b/c-s%2F1__transaction_pending_ack'
    """
    local = f"{topic.local}-{encode_name(subscription)}{PENDING_ACKS_SUFFIX}"
    return TopicName(topic.domain, topic.tenant, topic.namespace, local)


def holds_snapshots(name: TopicName) -> bool:
    """Return whether a topic, or partition, has snapshots of the transactions of others.

    >>> holds_snapshots(TopicName.parse("a/b/__transaction_buffer_snapshot_segments"))
    True
    """
    return name.local.startswith(SNAPSHOT_TOPICS[0])


def is_log_of_transactions(name: TopicName) -> bool:
    """Return whether a name is that of a log of a coordinator or a subscription, which no client may open as a topic.

    Source: Pulsar's SystemTopicNames.isTransactionInternalName.

    >>> is_log_of_transactions(TopicName.parse("a/b/c-s__transaction_pending_ack"))
    True
    """
    return name.local.endswith(PENDING_ACKS_SUFFIX) or (
        name.namespace_path == "pulsar/system"
        and name.local.startswith(("__transaction_log_", "transaction_coordinator_assign"))
    )
