"""Non-persistent topics.

GET      non-persistent/{tenant}/{namespace}                  names, partitions one by one, of all brokers
                                                              ?quireHere=true: of this broker only; ?bundle=
GET      non-persistent/{tenant}/{namespace}/{bundle}         the same of a bundle
GET      non-persistent/{tenant}/{namespace}/partitioned      names of partitioned topics
PUT      {topic}                                              204; 409
DELETE   {topic}?force=true                                   204; 404, 409 it is partitioned, 412 it is in use
PUT      {topic}/unload                                       204; 404
GET      {topic}/stats, partitioned-stats, internalStats      404
GET      {topic}/subscriptions                                names; of a partitioned topic those on any partition
PUT      {topic}/subscription/{subscription}                  405: only clients make these subscriptions
DELETE   {topic}/subscription/{subscription}?force=true       204; 404, 412 it has consumers

{topic}/partitions is as for persistent topics. A topic exists while it is loaded, so each call about one goes to its
owner. Source: Pulsar's NonPersistentTopics and PersistentTopicsBase.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin.administration import Administration
from broker.admin.errors import MalformedRequestError
from broker.admin.openapi.parameters import FORCE, PER_PARTITION
from broker.admin.other_brokers import OtherBrokers
from broker.admin.permissions.handlers import forget_topic
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall, string_map
from broker.admin.resource import answer
from broker.admin.stats.clients import consumer, incoming, outgoing, publisher, times, wall_ms
from broker.admin.stats.partitioned import merging
from broker.admin.topics import in_bundle
from broker.background import for_all
from broker.errors import (
    IsPartitionedError,
    NotPartitionedError,
    SubscriptionBusyError,
    SubscriptionNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
    translated,
)
from broker.ownership.brokers import BROKERS
from broker.ownership.values import decode_report
from broker.slices import run_through
from broker.topics.exclusive import epoch_of
from broker.topics.non_persistent.subscription import NonPersistentSubscription
from broker.topics.non_persistent.topic import NonPersistentTopic
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.service.web.parameters import Flag
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.names import NON_PERSISTENT, NamespaceName, TopicName

HERE: Final = "quireHere"
_HERE: Final = Flag(HERE, "Answer those of this broker only. Sent by brokers.")


class NamesElsewhere:
    """Non-persistent topics of the other brokers of a cluster, each of which knows its own only."""

    def __init__(self, metadata: MetadataStore, others: OtherBrokers, own_id: str) -> None:
        self._metadata = metadata
        self._others = others
        self._own_id = own_id

    async def names(self, namespace: NamespaceName) -> list[TopicName]:
        """Return their topics of a namespace. Raises ServiceNotReadyError if one does not answer: clients would take a
        part for the whole."""
        with translated("brokers"):
            try:
                brokers = await self._metadata.children(BROKERS)
            except NoNodeError:
                brokers = []
        found: list[TopicName] = []

        async def ask(broker_id: str) -> None:
            with translated(broker_id):
                node = await self._metadata.get(f"{BROKERS}/{broker_id}")
            if node is None:
                return  # it has gone, and its topics with it
            web_url = self._others.url_of(decode_report(broker_id, node.value).broker)
            path = f"/admin/v2/{NON_PERSISTENT}/{namespace}?{HERE}=true"
            found.extend(map(TopicName.parse, await self._others.call(web_url, "GET", path)))

        others = [each for each in brokers if each != self._own_id]
        await for_all(others, ask, name="ask for non-persistent topics")
        return found


async def names(call: AdminCall) -> Response:
    namespace, here = call.namespace(), call.flag(_HERE)
    await call.administration.check_namespace(TopicName.parse(f"{NON_PERSISTENT}://{namespace}/x"))
    direct = call.administration.direct
    found = direct.names(namespace) if here else await direct.names_everywhere(namespace)
    return answer(await in_bundle(call, [name.full for name in found]))


async def names_of_bundle(call: AdminCall) -> Response:
    await call.administration.check_namespace(TopicName.parse(f"{NON_PERSISTENT}://{call.namespace()}/x"))
    found = await call.administration.direct.names_everywhere(call.namespace())
    return answer(await in_bundle(call, [name.full for name in found], call.part("topic")))


async def partitioned_names(call: AdminCall) -> Response:
    return answer(await call.administration.partitioned_topics_of_namespace(call.namespace(), NON_PERSISTENT))


async def create(call: AdminCall) -> None:
    name = call.topic()
    string_map(await call.json(), "properties")
    await call.administration.check_namespace(name)
    await at_owner(call, name)
    if await call.administration.partitions(name) or call.administration.direct.find(name) is not None:
        raise TopicExistsError(f"topic {name.full} exists")
    await call.administration.direct.get(name, explicit=True)


async def delete(call: AdminCall) -> None:
    name, force = call.topic(), call.flag(FORCE)
    await at_owner(call, name)
    if await call.administration.partitions(name):
        raise IsPartitionedError(f"topic {name.full} is partitioned")
    await call.administration.direct.delete(name, force=force)
    await forget_topic(call, name)


async def unload(call: AdminCall) -> None:
    name = call.topic()
    await at_owner(call, name)
    direct, every = call.administration.direct, await _every(call.administration, name)

    async def close(each: TopicName) -> None:
        remote = await call.administration.elsewhere(each)
        if remote is not None:
            try:
                await remote.unload()
            except TopicNotFoundError:
                pass  # a partition that is not used
        elif (topic := direct.find(each)) is not None:
            direct.close(topic)
        elif len(every) == 1:
            raise TopicNotFoundError(f"topic {name.full} does not exist")

    await call.administration.complete(partial(for_all, every, close, name="unload"), f"unload {name.full}")


async def stats(call: AdminCall) -> Response:
    return answer(stats_of(await _topic(call), call.broker_id))


async def internal_stats(call: AdminCall) -> Response:
    topic = await _topic(call)
    return answer({"entriesAddedCounter": topic.entries_in, "cursors": {name: {} for name in topic.subscriptions}})


async def partitioned_stats(call: AdminCall) -> Response:
    name = call.topic()
    count = await call.administration.partitions(name)
    if not count:
        await at_owner(call, name)
        raise NotPartitionedError("Partitioned Topic not found")
    partitions: dict[str, dict[str, Any]] = {}
    for each in await _every(call.administration, name):
        remote = await call.administration.elsewhere(each)
        topic = call.administration.direct.find(each)
        if remote is not None:
            try:
                partitions[each.full] = await remote.ask("GET", "/stats", errors={404: TopicNotFoundError})
            except TopicNotFoundError:
                pass  # it is not used
        elif topic is not None:
            partitions[each.full] = stats_of(topic, call.broker_id)
    shown = partitions if call.flag(PER_PARTITION) else {}
    metadata = {"partitions": count, "deleted": False}
    found = await run_through(merging(partitions.values()))
    found.pop("ownerBroker", None)
    return answer({**found, "metadata": metadata, "partitions": shown})


async def subscriptions(call: AdminCall) -> Response:
    name = call.topic()
    await at_owner(call, name)
    found: set[str] = set()
    for each in await _every(call.administration, name):
        remote = await call.administration.elsewhere(each)
        if remote is not None:
            try:
                found.update(await remote.ask("GET", "/subscriptions", errors={404: TopicNotFoundError}))
            except TopicNotFoundError:
                pass
        elif (topic := call.administration.direct.find(each)) is not None:
            found.update(topic.subscriptions)
        elif each == name:
            raise TopicNotFoundError(f"topic {name.full} does not exist")
    return answer(sorted(found))


async def create_subscription(call: AdminCall) -> None:
    """Refuse the request, as the original does."""
    raise MalformedRequestError("Create subscription on non-persistent topic can only be done through client")


async def delete_subscription(call: AdminCall) -> None:
    name, subscription, force = call.topic(), call.subscription(), call.flag(FORCE)
    await at_owner(call, name)
    deleted: list[TopicName] = []

    async def delete(each: TopicName) -> None:
        try:
            if (remote := await call.administration.elsewhere(each)) is not None:
                await remote.delete_subscription(subscription, force=force)
            else:
                _delete(call.administration.direct.find(each), subscription, force=force)
            deleted.append(each)
        except SubscriptionNotFoundError:
            pass

    every = await _every(call.administration, name)
    await call.administration.complete(partial(for_all, every, delete, name="delete"), f"delete of {name.full}")
    if not deleted:
        raise SubscriptionNotFoundError(f"{name.full} has no subscription {subscription!r}")


def _delete(topic: NonPersistentTopic | None, name: str, *, force: bool) -> None:
    found = None if topic is None else topic.subscriptions.get(name)
    if found is None:
        raise SubscriptionNotFoundError(f"there is no subscription {name!r}")
    if found.consumers and not force:
        raise SubscriptionBusyError(f"subscription {name!r} has consumers")
    found.delete()


async def _topic(call: AdminCall) -> NonPersistentTopic:
    name = call.topic()
    await at_owner(call, name)
    topic = call.administration.direct.find(name)
    if topic is None:
        await call.administration.check_namespace(name)
        raise TopicNotFoundError(f"topic {name.full} does not exist")
    return topic


async def _every(administration: Administration, name: TopicName) -> list[TopicName]:
    """Return the topic, or the partitions of a partitioned one."""
    count = await administration.partitions(name)
    return [name.with_partition(index) for index in range(count)] or [name]


def stats_of(topic: NonPersistentTopic, broker_id: str) -> dict[str, Any]:
    """Return the statistics of a topic, under the original's names. Source: NonPersistentTopicStatsImpl."""
    now, rates, access = trio.current_time(), topic.context.measures.of(topic), topic.access
    exclusive = None if access is None or access.holder is None else access.holder.producer
    subscriptions = {name: _of_subscription(each, now) for name, each in topic.subscriptions.items()}
    return {
        "msgInCounter": topic.messages_in,
        "bytesInCounter": topic.bytes_in,
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "bytesOutCounter": sum(each["bytesOutCounter"] for each in subscriptions.values()),
        **incoming(rates),
        "msgRateOut": rates.messages_out,
        "msgThroughputOut": rates.bytes_out,
        "msgChunkPublished": bool(topic.chunks_in),
        "lastPublishTimeStamp": wall_ms(topic.context.world.clock, topic.published_at),
        "msgDropRate": topic.dropped.rate(now),
        **({} if (epoch := epoch_of(topic)) is None else {"topicEpoch": epoch}),
        "waitingPublishers": 0 if topic.access is None else len(topic.access.waiting),
        "publishers": [
            {
                **publisher(topic.context, producer, is_exclusive=producer is exclusive),
                "msgDropRate": topic.drop_rate(producer, now),
            }
            for producer in list(topic.producers.values())
        ],
        "subscriptions": subscriptions,
        "replication": {},
        "ownerBroker": broker_id,
    }


def _of_subscription(subscription: NonPersistentSubscription, now: float) -> dict[str, Any]:
    active, context = subscription.active, subscription.topic.context
    return {
        "msgOutCounter": subscription.messages_out,
        "bytesOutCounter": subscription.counts.bytes_out,
        **outgoing(context.measures.of(subscription)),
        **times(context.world.clock, subscription.counts),
        "msgDropRate": subscription.dropped.rate(now),
        "msgBacklog": 0,
        "type": pb.CommandSubscribe.SubType.Name(subscription.kind),
        **({} if active is None else {"activeConsumerName": active.name}),
        "isDurable": subscription.durable,
        "consumers": [
            consumer(context, each, subscription.permits_of(each), unacked=0) for each in subscription.consumers
        ],
    }
