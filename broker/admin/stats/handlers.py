"""Statistics of topics.

GET      {topic}/stats                  ?getPreciseBacklog= ?subscriptionBacklogSize= ?getEarliestTimeInBacklog=
                                        ?excludePublishers= ?excludeConsumers=      404 also if it is partitioned
GET      {topic}/partitioned-stats      the same, and ?perPartition=, which is true by default; 404 not partitioned

Any broker answers for a partitioned topic, and asks the owners of its partitions.
Source: Pulsar's PersistentTopics.getStats and getPartitionedStats.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin.errors import Statuses
from broker.admin.positions.every import on_topic
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.admin.stats.partitioned import merged
from broker.admin.stats.topic_stats import Asked, take
from broker.errors import IsPartitionedError, NotPartitionedError, ServiceNotReadyError, TopicNotFoundError
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.wire.pulsar.names import TopicName

STATUSES: Statuses = {IsPartitionedError: 404}
_OF_ONE = (
    "getPreciseBacklog",
    "subscriptionBacklogSize",
    "getEarliestTimeInBacklog",
    "excludePublishers",
    "excludeConsumers",
)
"""Parameters of the call about one partition."""


async def of_topic(call: AdminCall) -> Response:
    asked = _asked(call)

    async def work(topic: Topic) -> dict[str, Any]:
        return await _taken(call, topic, asked)

    return answer(await on_topic(call, work))


async def of_partitioned(call: AdminCall) -> Response:
    name, asked = call.topic(), _asked(call)
    count = await call.administration.partitions(name)
    if not count:
        await at_owner(call, name)
        raise NotPartitionedError("Partitioned Topic not found")
    partitions: dict[str, dict[str, Any]] = {}
    for index in range(count):
        each = name.with_partition(index)
        try:
            partitions[each.full] = await _of_partition(call, each, asked)
        except TopicNotFoundError:
            pass  # it was never used
    found = merged(partitions.values())
    for each_name in ("ownerBroker", "deduplicationStatus"):
        found.pop(each_name, None)  # of single topics, which the original does not add up
    stored = await call.administration.partitioned.find(name)
    metadata: dict[str, Any] = {"partitions": count, "deleted": False}
    if stored is not None and stored.properties:
        metadata["properties"] = dict(stored.properties)
    shown = partitions if call.request.query_params.get("perPartition", "true").lower() == "true" else {}
    return answer({**found, "metadata": metadata, "partitions": shown})


async def _of_partition(call: AdminCall, name: TopicName, asked: Asked) -> dict[str, Any]:
    remote = await call.administration.elsewhere(name)
    if remote is None:
        return await _taken(call, await call.administration.partition(name), asked)
    query = "&".join(f"{key}={'true' if _flag(call, key) else 'false'}" for key in _OF_ONE)
    found: dict[str, Any] = await remote.ask("GET", f"/stats?{query}", errors={404: TopicNotFoundError})
    return found


async def _taken(call: AdminCall, topic: Topic, asked: Asked) -> dict[str, Any]:
    topic.check_open()
    try:
        return {**await take(topic, asked), "ownerBroker": call.broker_id}
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error


def _asked(call: AdminCall) -> Asked:
    return Asked(
        precise_backlog=_flag(call, "getPreciseBacklog"),
        backlog_size=_flag(call, "subscriptionBacklogSize"),
        earliest_time=_flag(call, "getEarliestTimeInBacklog"),
        publishers=not _flag(call, "excludePublishers"),
        consumers=not _flag(call, "excludeConsumers"),
    )


def _flag(call: AdminCall, name: str) -> bool:
    return (name == "subscriptionBacklogSize" and name not in call.request.query_params) or call.flag(name)
