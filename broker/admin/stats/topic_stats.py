"""Statistics of one topic: its counters, publishers, subscriptions and their consumers, under the original's names.

Counters begin when the topic is loaded. A value that Quire does not keep is left out, never made up: rates and
throughputs, times of connections, of the last message and of the last acknowledgement, replication.
`msgBacklog` counts entries, as the original does; where a precise backlog is asked for it counts messages, if the
backlog is small enough to be read (subscriptionBacklogScanMaxEntries). A backlog in bytes is exact for whole ledgers,
and by the mean entry for part of one. -1 is the original's "unknown".

Source: Pulsar's TopicStatsImpl, SubscriptionStatsImpl, ConsumerStatsImpl, PublisherStatsImpl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio

from broker.admin.positions.analysis import count_backlog
from broker.dispatch.filtering import filtered_by
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.publish_time import time_of
from broker.dispatch.shared_subscription import KeySharedSubscription
from broker.dispatch.single_active import SingleActiveSubscription
from broker.dispatch.subscription import Subscription
from broker.topics.backlog_size import size_behind
from broker.topics.compaction.counts import CompactionCounts
from broker.topics.compaction.leftovers import COMPACTION_CURSOR
from broker.topics.producer_access import topic_epoch
from broker.topics.quotas.backlog import quotas_of
from broker.topics.topic import Topic
from cursors.cursor import Cursor
from quire.wire.pulsar import PulsarApi_pb2 as pb

RANGES_MAX = 100_000
"""Ranges of acknowledged entries up to which they are counted."""
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """Parts of the statistics that cost reads or much output."""

    precise_backlog: bool = False
    backlog_size: bool = True
    earliest_time: bool = False
    publishers: bool = True
    consumers: bool = True


async def take(topic: Topic, asked: Asked) -> dict[str, Any]:
    """Return the statistics of a topic. Raises ManagedLedgerError if reads that were asked for fail."""
    subscriptions: dict[str, dict[str, Any]] = {}
    for name, subscription in list(topic.subscriptions.items()):
        subscriptions[name] = await _subscription(subscription, asked)
        await trio.lowlevel.checkpoint()
    compaction = topic.ledger.cursors.get(COMPACTION_CURSOR)
    if compaction is not None:
        subscriptions[COMPACTION_CURSOR] = _of_compaction(topic, compaction, asked)
    ledger, access = topic.ledger, topic.access
    exclusive = None if access is None or access.holder is None else access.holder.producer
    slowest = min((each.cursor.mark_delete for each in topic.subscriptions.values() if each.durable), default=None)
    earliest = [(found["earliestMsgPublishTimeInBacklog"], name) for name, found in subscriptions.items()]
    oldest = min(((time_ms, name) for time_ms, name in earliest if time_ms > 0), default=None)
    quotas = quotas_of(topic)
    now_ms = topic.context.world.clock.wall_ms()
    return {
        "msgInCounter": topic.messages_in,
        "bytesInCounter": topic.bytes_in,
        "msgOutCounter": sum(found["msgOutCounter"] for found in subscriptions.values()),
        "storageSize": ledger.size,
        "offloadedStorageSize": sum(info.size for info in ledger.ledgers if info.is_offloaded),
        "backlogSize": 0 if slowest is None else size_behind(ledger, slowest),
        "backlogQuotaLimitSize": quotas.storage.limit_bytes,
        "backlogQuotaLimitTime": quotas.age.limit_s,
        "earliestMsgPublishTimeInBacklogs": 0 if oldest is None else oldest[0],
        "oldestBacklogMessageAgeSeconds": UNKNOWN if oldest is None else max(0, now_ms - oldest[0]) // 1000,
        "oldestBacklogMessageSubscriptionName": None if oldest is None else oldest[1],
        "publishRateLimitedTimes": 0 if topic.rates is None else topic.rates.times_limited,
        "deduplicationStatus": "Disabled" if topic.deduplication is None else "Enabled",
        "topicEpoch": topic_epoch(ledger.properties),
        "waitingPublishers": 0 if access is None else len(access.waiting),
        "nonContiguousDeletedMessagesRanges": sum(
            found["nonContiguousDeletedMessagesRanges"] for found in subscriptions.values()
        ),
        "publishers": [
            {
                "producerId": producer.producer_id,
                "producerName": producer.name,
                "clientVersion": producer.connection.client_version,
                "accessMode": "Exclusive" if producer is exclusive else "Shared",
            }
            for producer in (list(topic.producers.values()) if asked.publishers else ())
        ],
        "subscriptions": subscriptions,
        "compaction": (topic.compaction.counts if topic.compaction is not None else CompactionCounts()).as_json(),
        "replication": {},
        "ownerBroker": topic.context.service_url.partition("://")[2],
    }


async def _subscription(subscription: Subscription, asked: Asked) -> dict[str, Any]:
    cursor, topic = subscription.cursor, subscription.topic
    backlog = cursor.backlog()
    if asked.precise_backlog and backlog:
        counted = await count_backlog(subscription)
        backlog = cursor.backlog() if counted.aborted else counted.messages
    earliest = 0
    if asked.earliest_time and cursor.backlog():
        earliest = await time_of(topic.ledger, cursor.next_unacked(cursor.mark_delete)) or 0
    many = subscription if isinstance(subscription, ManyConsumers) else None
    active = subscription.active if isinstance(subscription, SingleActiveSubscription) else None
    kind: str = pb.CommandSubscribe.SubType.Name(subscription.kind)
    consumers, expiry = list(subscription.consumers), subscription.known_expiry
    filtered = filtered_by(subscription)
    found: dict[str, Any] = {
        "msgOutCounter": subscription.messages_out,
        "msgBacklog": backlog,
        "backlogSize": size_behind(topic.ledger, cursor.mark_delete) if asked.backlog_size else UNKNOWN,
        "earliestMsgPublishTimeInBacklog": earliest,
        "blockedSubscriptionOnUnackedMsgs": many is not None and many.is_blocked,
        "msgInReplay": 0 if many is None else many.waiting_again,
        "unackedMessages": sum(map(subscription.unacked_of, consumers)),
        # The type is that of its consumers: a subscription that had none since it was loaded may get any.
        "type": kind if consumers or subscription.messages_out else "None",
        "allowOutOfOrderDelivery": isinstance(subscription, KeySharedSubscription) and not subscription.is_ordered,
        "activeConsumerName": "" if active is None else active.name,
        "totalMsgExpired": 0 if expiry is None else expiry.expired,
        "lastExpireTimestamp": 0 if expiry is None else expiry.last_ms,
        "filterProcessedMsgCount": filtered.processed,
        "filterAcceptedMsgCount": filtered.accepted,
        "filterRejectedMsgCount": filtered.rejected,
        "filterRescheduledMsgCount": filtered.rescheduled,
        "consumers": [
            {
                "consumerName": consumer.name,
                "msgOutCounter": consumer.messages_out,
                "availablePermits": subscription.permits_of(consumer),
                "unackedMessages": subscription.unacked_of(consumer),
                "blockedConsumerOnUnackedMsgs": consumer.blocked,
                "clientVersion": consumer.connection.client_version,
                "metadata": dict(consumer.properties),
            }
            for consumer in (consumers if asked.consumers else ())
        ],
        **_kept(cursor, durable=subscription.durable),
    }
    return found


def _kept(cursor: Cursor, *, durable: bool) -> dict[str, Any]:
    """Return what is the same with and without consumers. Java's mapper writes two fields under both of their names."""
    return {
        "isDurable": durable,
        "durable": durable,
        "isReplicated": False,
        "replicated": False,
        "nonContiguousDeletedMessagesRanges": cursor.range_count(RANGES_MAX),
        "subscriptionProperties": dict(cursor.cursor_properties),
    }


def _of_compaction(topic: Topic, cursor: Cursor, asked: Asked) -> dict[str, Any]:
    """Return the statistics of the cursor of the compaction, which the original shows as a subscription."""
    return {
        "msgOutCounter": 0,
        "msgBacklog": cursor.backlog(),
        "backlogSize": size_behind(topic.ledger, cursor.mark_delete) if asked.backlog_size else UNKNOWN,
        "earliestMsgPublishTimeInBacklog": 0,
        "type": "None",
        "allowOutOfOrderDelivery": False,
        "consumers": [],
        **_kept(cursor, durable=True),
    }
