"""/admin/v2/broker-stats: what this broker serves, by bundle.

GET      load-report             LocalBrokerData, as in the node of the broker, of this moment
GET      topics                  {namespace: {bundle: {"persistent": {name: statistics}, "non-persistent": ...}}}
GET      metrics, mbeans, allocator-stats/{allocator}, pending-bookie-ops, broker-resource-availability/{...}     501

Rates are those of the last statsUpdateFrequencyInSecs. Resources of the machine are not measured, and have the limit
-1000. Source: Pulsar's BrokerStatsBase; LocalBrokerData; PersistentTopic.updateRates (the fields of a topic).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from broker.admin.errors import NotServedError
from broker.admin.non_persistent import stats_of
from broker.admin.requests import AdminCall
from broker.admin.resource import Handler, answer
from broker.admin.stats.internal_stats import pending_adds
from broker.admin.stats.topic_stats import Asked, take
from broker.config import SERVER_VERSION
from broker.ownership.bundles import even
from broker.ownership.values import BrokerReport, BundleLoad, LocalBroker, encode_report
from broker.slices import sliced
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.wire.pulsar.names import NON_PERSISTENT, PERSISTENT, TopicName

TOPICS_IN_STEP = 50


async def load_report(call: AdminCall) -> Response:
    """Answer the load of this broker."""
    options = call.administration.options
    value = encode_report(
        await of_this_broker(call),
        version=SERVER_VERSION,
        started_ms=call.cluster.started_ms,
        now_ms=call.cluster.wall_ms(),
        persistent=options.persistent_topics,
        non_persistent=options.non_persistent_topics,
    )
    return answer(json.loads(value))


async def of_this_broker(call: AdminCall) -> BrokerReport:
    """Return the load of this broker, of this moment."""
    loads: dict[str, BundleLoad] = {str(bundle): BundleLoad() for bundle in call.cluster.ownership.owned()}
    async for topic in sliced(list(loaded_topics(call)), TOPICS_IN_STEP):
        bundle = _bundle(call, topic.name)
        loads[bundle] = with_topic(loads.get(bundle, BundleLoad()), topic)
    service = call.service
    broker = LocalBroker(
        id=call.cluster.broker_id,
        broker_url=service.broker_url(),
        web_url=service.web_url(),
        broker_url_tls=service.broker_url_tls(),
        web_url_tls=service.web_url_tls(),
    )
    return BrokerReport(broker=broker, bundles=loads)


async def topics(call: AdminCall) -> Response:
    """Answer the statistics of all loaded topics."""
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    asked = Asked()
    for topic in loaded_topics(call):
        stats = await _of_topic(topic, asked, call.broker_id)
        if stats is not None:
            domain = PERSISTENT if isinstance(topic, Topic) else NON_PERSISTENT
            bundle = _bundle(call, topic.name).rpartition("/")[2]
            of_bundle = found.setdefault(topic.name.namespace_path, {}).setdefault(bundle, {})
            of_bundle.setdefault(domain, {})[topic.name.full] = stats
    return answer(found)


async def _of_topic(topic: Topic | NonPersistentTopic, asked: Asked, broker_id: str) -> dict[str, Any] | None:
    """Return the statistics of a topic under the names that this call has for them; None: it is closing."""
    if isinstance(topic, NonPersistentTopic):
        stats, pending = stats_of(topic, broker_id), 0
    elif topic.closing:
        return None
    else:
        try:
            stats, pending = await take(topic, asked), pending_adds(topic.ledger)
        except ManagedLedgerError:
            return None  # its log was lost or closed meanwhile
    rate = stats["msgRateIn"]
    return {
        "publishers": stats["publishers"],
        "replication": {},
        "subscriptions": {name: _of_subscription(each) for name, each in stats["subscriptions"].items()},
        "producerCount": len(stats["publishers"]),
        "averageMsgSize": stats["msgThroughputIn"] / rate if rate else 0.0,
        **{key: stats[key] for key in ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")},
        "msgInCount": stats["msgInCounter"],
        "bytesInCount": stats["bytesInCounter"],
        "msgOutCount": stats["msgOutCounter"],
        "bytesOutCount": stats["bytesOutCounter"],
        "filteredEntriesCount": sum(each.get("filterProcessedMsgCount", 0) for each in stats["subscriptions"].values()),
        "storageSize": stats.get("storageSize", 0),
        "backlogSize": stats.get("backlogSize", 0),
        "pendingAddEntriesCount": pending,
    }


def _of_subscription(stats: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics of a subscription under the names of this call."""
    names = ("msgBacklog", "msgRateExpired", "msgRateOut", "messageAckRate", "msgThroughputOut", "msgRateRedeliver")
    return {
        "consumers": stats["consumers"],
        **{key: stats.get(key, 0) for key in names},
        "totalNonContiguousDeletedMessagesRange": stats.get("nonContiguousDeletedMessagesRanges", 0),
        "type": stats["type"],
    }


def not_served(why: str) -> Handler:
    """Return a handler that refuses with the reason."""

    async def refuse(call: AdminCall) -> Response | None:
        raise NotServedError(why)

    return refuse


def loaded_topics(call: AdminCall) -> Iterator[Topic | NonPersistentTopic]:
    """Yield all topics that this broker serves."""
    yield from call.cluster.loaded()
    yield from call.administration.direct.loaded()


def _bundle(call: AdminCall, name: TopicName) -> str:
    bundle = call.cluster.ownership.bundle_of(name)
    return str(even(name.namespace_name, 1).find(name) if bundle is None else bundle)


def with_topic(load: BundleLoad, topic: Topic | NonPersistentTopic) -> BundleLoad:
    """Return the load of a bundle with one more topic."""
    rates = topic.context.measures.of(topic)
    return BundleLoad(
        topics=load.topics + 1,
        producers=load.producers + len(topic.producers),
        consumers=load.consumers + sum(len(each.consumers) for each in topic.subscriptions.values()),
        messages_in=load.messages_in + rates.messages_in,
        messages_out=load.messages_out + rates.messages_out,
        bytes_in=load.bytes_in + rates.bytes_in,
        bytes_out=load.bytes_out + rates.bytes_out,
    )
