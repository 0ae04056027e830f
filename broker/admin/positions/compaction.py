"""Compaction of a topic, on demand.

PUT      {topic}/compaction     204: it runs, for a partitioned topic on all partitions; 404, 409 it runs already
GET      {topic}/compaction     {"status": "NOT_RUN|RUNNING|SUCCESS|ERROR", "lastError": ""}, since the topic was
                                loaded; 404, 405 the topic is partitioned

Source: Pulsar's PersistentTopicsBase (internalTriggerCompaction), LongRunningProcessStatus.
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.positions.every import on_every, on_topic
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import SubscriptionNotFoundError
from broker.topics.compaction.compaction import NOT_RUN, compaction_of
from broker.topics.compaction.leftovers import COMPACTION_CURSOR
from broker.topics.topic import Topic


async def start(call: AdminCall) -> None:
    await on_every(call, _start)


async def _start(topic: Topic) -> None:
    compaction_of(topic).start()


async def status(call: AdminCall) -> Response:
    return answer(await on_topic(call, _status))


async def _status(topic: Topic) -> dict[str, str]:
    found = topic.compaction
    if found is None:
        return {"status": NOT_RUN, "lastError": ""}
    return {"status": found.status, "lastError": found.error}


async def drop(call: AdminCall) -> None:
    """Forget the compaction of a topic, of all partitions of a partitioned one; see `subscriptions.delete`."""
    await on_every(call, _drop)


async def _drop(topic: Topic) -> None:
    topic.check_open()
    if topic.compaction is None or COMPACTION_CURSOR not in topic.ledger.cursors:
        raise SubscriptionNotFoundError(f"{topic.name.full} has no subscription {COMPACTION_CURSOR!r}")
    await topic.compaction.drop()
