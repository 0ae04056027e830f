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
from broker.admin.openapi.parameters import PER_PARTITION
from broker.admin.positions.every import of_partitions, on_topic
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.admin.stats.partitioned import merging
from broker.admin.stats.topic_stats import Asked, take
from broker.errors import IsPartitionedError, NotPartitionedError, ServiceNotReadyError, TopicNotFoundError
from broker.slices import run_through
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.service.web.parameters import Flag
from quire.wire.pulsar.names import TopicName

STATUSES: Statuses = {IsPartitionedError: 404}
_PRECISE = Flag("getPreciseBacklog", "Count the messages of backlogs, not only their entries.")
_SIZE = Flag("subscriptionBacklogSize", "Answer the bytes of backlogs.", default=True)
_EARLIEST = Flag("getEarliestTimeInBacklog", "Answer the age of the oldest message of each backlog.")
_NO_PUBLISHERS = Flag("excludePublishers", "Leave publishers out.")
_NO_CONSUMERS = Flag("excludeConsumers", "Leave consumers out.")
_OF_ONE = (_PRECISE, _SIZE, _EARLIEST, _NO_PUBLISHERS, _NO_CONSUMERS)
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
    every = await of_partitions(call, count, lambda each: _of_partition(call, each, asked))
    partitions = {each.full: shown for each, shown in every.items() if shown is not None}
    found = await run_through(merging(partitions.values()))
    for each_name in ("ownerBroker", "deduplicationStatus"):
        found.pop(each_name, None)  # of single topics, which the original does not add up
    stored = await call.administration.partitioned.find(name)
    metadata: dict[str, Any] = {"partitions": count, "deleted": False}
    if stored is not None and stored.properties:
        metadata["properties"] = dict(stored.properties)
    shown = partitions if call.flag(PER_PARTITION) else {}
    return answer({**found, "metadata": metadata, "partitions": shown})


async def _of_partition(call: AdminCall, name: TopicName, asked: Asked) -> dict[str, Any] | None:
    """Return the statistics of a partition, which is loaded for them as in the original; None: it does not exist."""
    try:
        remote = await call.administration.elsewhere(name)
        if remote is None:
            return await _taken(call, await call.administration.partition(name), asked)
        query = "&".join(f"{each.name}={'true' if call.flag(each) else 'false'}" for each in _OF_ONE)
        found: dict[str, Any] = await remote.ask("GET", f"/stats?{query}", errors={404: TopicNotFoundError})
        return found
    except TopicNotFoundError:
        return None


async def _taken(call: AdminCall, topic: Topic, asked: Asked) -> dict[str, Any]:
    topic.check_open()
    try:
        return {**await take(topic, asked), "ownerBroker": call.broker_id}
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error


def _asked(call: AdminCall) -> Asked:
    return Asked(
        precise_backlog=call.flag(_PRECISE),
        backlog_size=call.flag(_SIZE),
        earliest_time=call.flag(_EARLIEST),
        publishers=not call.flag(_NO_PUBLISHERS),
        consumers=not call.flag(_NO_CONSUMERS),
    )
