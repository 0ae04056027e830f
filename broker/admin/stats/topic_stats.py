"""Statistics of one topic: its counters, publishers, subscriptions and their consumers, under the original's names.

Counters begin when the topic is loaded; rates are those of `broker.measures`. A value that Quire does not keep is left
out, never made up: throttled and draining hashes, times of the first delivery, the creation of a topic, replication.
`msgBacklog` counts entries, as the original does; where a precise backlog is asked for it counts messages that are
not acknowledged, if the backlog is small enough to be read (subscriptionBacklogScanMaxEntries). A backlog in bytes is
exact for whole ledgers, and by the mean entry for part of one. -1 is the original's "unknown".

Source: Pulsar's TopicStatsImpl, SubscriptionStatsImpl, ConsumerStatsImpl, PublisherStatsImpl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio

from broker.admin.positions.analysis import count_backlog
from broker.admin.stats.clients import consumer, incoming, outgoing, publisher, times, wall_ms
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
from broker.topics.system_names import is_system_topic
from broker.topics.topic import Topic
from cursors.cursor import Cursor
from quire.wire.pulsar import PulsarApi_pb2 as pb

UNKNOWN = -1
_OFFLOADED = {"lastOffloadLedgerId": 0, "lastOffloadSuccessTimeStamp": 0, "lastOffloadFailureTimeStamp": 0}
"""The last offload: there is none."""


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
    clock, rates = topic.context.world.clock, topic.context.measures.of(topic)
    now_ms = clock.wall_ms()
    found: dict[str, Any] = {
        "msgInCounter": topic.messages_in,
        "bytesInCounter": topic.bytes_in,
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "bytesOutCounter": sum(each["bytesOutCounter"] for each in subscriptions.values()),
        **incoming(rates),
        "msgRateOut": rates.messages_out,
        "msgThroughputOut": rates.bytes_out,
        "msgChunkPublished": bool(topic.chunks_in),
        "lastPublishTimeStamp": wall_ms(clock, topic.published_at),
        "storageSize": ledger.size,
        "offloadedStorageSize": sum(info.size for info in ledger.ledgers if info.is_offloaded),
        "backlogSize": 0 if slowest is None else size_behind(ledger, slowest),
        "backlogQuotaLimitSize": quotas.storage.limit_bytes,
        "backlogQuotaLimitTime": quotas.age.limit_s,
        "earliestMsgPublishTimeInBacklogs": 0 if oldest is None else oldest[0],
        "oldestBacklogMessageAgeSeconds": UNKNOWN if oldest is None else max(0, now_ms - oldest[0]) // 1000,
        **_OFFLOADED,
        "systemTopicBytesInCounter": topic.bytes_in if is_system_topic(topic.name) else 0,
        "bytesOutInternalCounter": 0,
        "delayedMessageIndexSizeInBytes": sum(
            each["delayedMessageIndexSizeInBytes"] for each in subscriptions.values()
        ),
        **_transactions(topic),
        "publishRateLimitedTimes": 0 if topic.rates is None else topic.rates.times_limited,
        "deduplicationStatus": "Disabled" if topic.deduplication is None else "Enabled",
        "waitingPublishers": 0 if access is None else len(access.waiting),
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
        "publishers": [
            publisher(topic.context, producer, is_exclusive=producer is exclusive)
            for producer in (list(topic.producers.values()) if asked.publishers else ())
        ],
        "subscriptions": subscriptions,
        "compaction": (topic.compaction.counts if topic.compaction is not None else CompactionCounts()).as_json(),
        "replication": {},
    }
    # The original leaves out what is unset.
    if oldest is not None:
        found["oldestBacklogMessageSubscriptionName"] = oldest[1]
    if (epoch := topic_epoch(ledger.properties)) is not None:
        found["topicEpoch"] = epoch
    return found


async def _subscription(subscription: Subscription, asked: Asked) -> dict[str, Any]:
    cursor, topic = subscription.cursor, subscription.topic
    backlog = cursor.backlog()
    if asked.precise_backlog and backlog:
        counted = await count_backlog(subscription)
        backlog = cursor.backlog() if counted.aborted else counted.unacked
    earliest = 0
    if asked.earliest_time and cursor.backlog():
        earliest = await time_of(topic.ledger, cursor.next_unacked(cursor.mark_delete)) or 0
    many = subscription if isinstance(subscription, ManyConsumers) else None
    delayed = subscription.delayed
    active = subscription.active if isinstance(subscription, SingleActiveSubscription) else None
    kind: str = pb.CommandSubscribe.SubType.Name(subscription.kind)
    consumers, expiry = list(subscription.consumers), subscription.known_expiry
    filtered, rates = filtered_by(subscription), topic.context.measures.of(subscription)
    found: dict[str, Any] = {
        "msgOutCounter": subscription.messages_out,
        "bytesOutCounter": subscription.counts.bytes_out,
        **outgoing(rates),
        "msgRateExpired": rates.expired,
        **times(topic.context.world.clock, subscription.counts),
        "msgBacklog": backlog,
        "backlogSize": size_behind(topic.ledger, cursor.mark_delete) if asked.backlog_size else UNKNOWN,
        "earliestMsgPublishTimeInBacklog": earliest,
        "msgBacklogNoDelayed": max(0, backlog - delayed),
        "msgDelayed": delayed,
        "delayedMessageIndexSizeInBytes": subscription.delayed_index_bytes,
        "blockedSubscriptionOnUnackedMsgs": many is not None and many.is_blocked,
        "msgInReplay": 0 if many is None else many.waiting_again,
        "unackedMessages": sum(map(subscription.unacked_of, consumers)),
        # The type is that of its consumers: a subscription that had none since it was loaded may get any.
        "type": kind if consumers or subscription.messages_out else "None",
        "allowOutOfOrderDelivery": isinstance(subscription, KeySharedSubscription) and not subscription.is_ordered,
        **({} if active is None else {"activeConsumerName": active.name}),
        "totalMsgExpired": 0 if expiry is None else expiry.expired,
        "msgExpired": 0 if expiry is None else expiry.expired,
        "lastExpireTimestamp": 0 if expiry is None else expiry.last_ms,
        "filterProcessedMsgCount": filtered.processed,
        "filterAcceptedMsgCount": filtered.accepted,
        "filterRejectedMsgCount": filtered.rejected,
        "filterRescheduledMsgCount": filtered.rescheduled,
        "consumers": [
            consumer(topic.context, each, subscription.permits_of(each), subscription.unacked_of(each))
            for each in (consumers if asked.consumers else ())
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
        "nonContiguousDeletedMessagesRanges": cursor.range_count,
        "subscriptionProperties": dict(cursor.cursor_properties),
    }


def _of_compaction(topic: Topic, cursor: Cursor, asked: Asked) -> dict[str, Any]:
    """Return the statistics of the cursor of the compaction, which the original shows as a subscription."""
    return {
        "msgOutCounter": 0,
        "bytesOutCounter": 0,
        "msgBacklog": cursor.backlog(),
        "backlogSize": size_behind(topic.ledger, cursor.mark_delete) if asked.backlog_size else UNKNOWN,
        "delayedMessageIndexSizeInBytes": 0,
        "earliestMsgPublishTimeInBacklog": 0,
        "type": "None",
        "allowOutOfOrderDelivery": False,
        "consumers": [],
        **_kept(cursor, durable=True),
    }


def _transactions(topic: Topic) -> dict[str, int]:
    """Return the counts of transactions on the topic since it was loaded."""
    found = topic.transactions
    open_count, committed, aborted = (0, 0, 0) if found is None else found.counts
    return {"ongoingTxnCount": open_count, "committedTxnCount": committed, "abortedTxnCount": aborted}
