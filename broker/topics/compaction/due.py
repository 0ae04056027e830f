"""Compaction of topics by itself: when enough bytes were added.

Source: Pulsar's PersistentTopic.checkCompaction, SystemTopic.isCompactionEnabled. There all system topics except those
of health checks are compacted at each check if anything was added, as their threshold is that of the policies, and 0
means any byte rather than never. Here they wait for quireSystemTopicCompactionThresholdInBytes, 1 MiB, unless a policy
or the broker's threshold says something: a compaction writes all keys again, which for each changed policy of a
namespace with thousands of topics would be a thousand times what was added. 1 MiB is read in a fraction of a second
when the topic is loaded. And only topics whose last message of a key counts are compacted; of others it would lose
messages.
"""

from __future__ import annotations

from broker.errors import BrokerError
from broker.topics.backlog_size import size_behind
from broker.topics.compaction.compaction import RUNNING, compaction_of
from broker.topics.compaction.leftovers import COMPACTION_CURSOR
from broker.topics.system_names import is_keyed_system_topic, is_system_topic
from broker.topics.topic import Topic
from broker.topics.topic_policies.catalog import COMPACTION_THRESHOLD
from broker.topics.topic_policies.known import value_of
from managed_ledger.managed_ledger import ManagedLedger


def compact_if_due(topic: Topic) -> None:
    """Compact a topic in the background if more was added to it than its policies allow."""
    threshold = value_of(topic.policies, COMPACTION_THRESHOLD, topic.context.options)
    if is_system_topic(topic.name):
        keyed = is_keyed_system_topic(topic.name)
        threshold = (threshold or topic.context.options.system_compaction_threshold_bytes) if keyed else 0
    if not threshold or topic.closing:
        return
    if topic.compaction is not None and topic.compaction.status == RUNNING:
        return
    added = added_bytes(topic.ledger)
    if added > threshold:
        topic.log.info("topic is compacted: enough was added", bytes=added, threshold=threshold)
        try:
            compaction_of(topic).start()
        except BrokerError as error:
            topic.log.warning("topic not compacted", reason=str(error))


def added_bytes(ledger: ManagedLedger) -> int:
    """Return the bytes behind the last compaction, about; of a topic that never was compacted those that are not
    consumed, or all of one without durable subscriptions."""
    cursor = ledger.cursors.get(COMPACTION_CURSOR)
    start = ledger.slowest() if cursor is None else cursor.mark_delete
    return ledger.size if start is None else size_behind(ledger, start)
