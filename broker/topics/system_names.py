"""Topics and subscriptions of the servers themselves, to which expiry does not apply.

Source: Pulsar's SystemTopicNames, and the names of the cursors of compaction and deduplication.
"""

from __future__ import annotations

from quire.wire.pulsar.names import TopicName

_TOPICS = ("__change_events", "__transaction_buffer_snapshot", "__transaction_log_")
_KEYED = ("__change_events", "__transaction_buffer_snapshot")
"""Topics of which the last message of each key counts."""
_CURSORS = ("__compaction", "pulsar.dedup")


def is_system_topic(name: TopicName) -> bool:
    """Return whether a topic, or partition, is one of the servers.

    >>> is_system_topic(TopicName.parse("persistent://a/b/__change_events-partition-0"))
    True
    """
    return is_system_name(name.local)


def is_system_name(local: str) -> bool:
    """Return whether the last part of a topic's name is that of a topic of the servers."""
    return local.startswith(_TOPICS)


def is_keyed_system_topic(name: TopicName) -> bool:
    """Return whether a topic, or partition, is one of the servers of which the last message of each key counts, so that
    it is compacted. Source: Pulsar's SystemTopic.isCompactionEnabled.

    >>> is_keyed_system_topic(TopicName.parse("a/b/__transaction_buffer_snapshot_segments"))
    True
    >>> is_keyed_system_topic(TopicName.parse("persistent://pulsar/system/__transaction_log_0"))
    False
    """
    return name.local.startswith(_KEYED)


def is_system_cursor(name: str) -> bool:
    """Return whether a subscription is one of the servers."""
    return name in _CURSORS
