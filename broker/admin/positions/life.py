"""The end of a topic, and of what it stores.

POST     {topic}/terminate              the last message id; 404, 405 the topic is partitioned
POST     {topic}/terminate/partitions   {"0": message id, ...}; 404, 405 the topic is not partitioned
POST     {topic}/trim                   204: ledgers that are consumed and past their retention are deleted; 404
DELETE   {topic}/truncate               204: all subscriptions are at the end, and all but the open ledger deleted, the
                                        compacted one included; 404

Of a partitioned topic trim and truncate mean all partitions. Source: Pulsar's PersistentTopicsBase.
"""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from broker.admin.message_ids import message_id
from broker.admin.positions.every import on_every, on_topic
from broker.admin.requests import AdminCall
from broker.admin.resource import Empty, answer
from broker.dispatch import moving
from broker.errors import NotAllowedError, ServiceNotReadyError, SubscriptionBusyError
from broker.topics import termination
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError


async def terminate(call: AdminCall) -> Response:
    return answer(await on_topic(call, _terminate))


async def terminate_partitions(call: AdminCall) -> Response:
    name = call.topic()
    if name.partition >= 0 or not await call.administration.partitions(name):
        raise NotAllowedError(f"topic {name.full} is not partitioned; use terminate")
    found: dict[str, object] = {}
    for index in range(await call.administration.partitions(name)):
        each = name.with_partition(index)
        remote = await call.administration.elsewhere(each)
        if remote is None:
            topic = await call.administration.partition(each)
            found[str(index)] = await call.administration.complete(partial(_terminate, topic), call.line)
        else:
            found[str(index)] = await remote.ask("POST", "/terminate", errors={})
    return answer(found)


async def _terminate(topic: Topic) -> dict[str, int]:
    return message_id(await termination.terminate(topic), topic.name)


async def trim(call: AdminCall) -> Empty:
    await on_every(call, _trim)
    return Empty()


async def _trim(topic: Topic) -> None:
    topic.check_open()
    try:
        await topic.ledger.trim()
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error


async def truncate(call: AdminCall) -> None:
    await on_every(call, _truncate)


async def _truncate(topic: Topic) -> None:
    topic.check_open()
    if topic.compaction is not None:
        await topic.compaction.drop()
    for subscription in list(topic.subscriptions.values()):
        try:
            await moving.skip_all(subscription)
        except SubscriptionBusyError:
            if not subscription.stopped:  # deleted meanwhile
                raise
    try:
        await topic.ledger.truncate()
    except ManagedLedgerError as error:
        raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
