"""Topics: list those of a namespace, create and delete one, inspect it.

GET      persistent/{tenant}/{namespace}?includeSystemTopic=&bundle=   full names, partitions one by one
GET      persistent/{tenant}/{namespace}/partitioned      full names of partitioned topics
GET      namespaces/{tenant}/{namespace}/topics?mode=     as the first; NON_PERSISTENT: those; ALL
PUT      {topic}                                          body: properties; 204; 409, 412 it would be no partition
DELETE   {topic}?force=true                               204; 404, 409 it is partitioned, 412 it is in use
PUT      {topic}/unload                                   204; 404
GET      {topic}/internalStats?metadata=true              404, 405 it is partitioned
GET      {topic}/partitioned-internalStats                {"metadata":{...},"partitions":{name:...}}; 404
GET      {topic}/messageid/{timestamp}                    message id; 404, 405 it is partitioned
GET      {topic}/lastMessageId                            the same
GET      {topic}/quireUnused                              204; 412 producers or consumers are connected

A call about a topic that is not partitioned goes to its owner with 307.
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.errors import NotServedError, Statuses
from broker.admin.message_ids import message_id
from broker.admin.openapi.parameters import BUNDLE, FORCE, METADATA, TIMESTAMP
from broker.admin.permissions.handlers import forget_topic
from broker.admin.positions.every import of_partitions, on_topic
from broker.admin.properties import checked
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.dispatch.last_message import last_message
from broker.errors import (
    BeingDeletedError,
    IsPartitionedError,
    NotAllowedError,
    NotPartitionedError,
    ServiceNotReadyError,
)
from broker.topics.system_names import is_system_topic
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.service.web.parameters import Flag, OneOf
from quire.wire.pulsar.names import TopicName

CREATING: Statuses = {BeingDeletedError: 409, NotAllowedError: 412}
DELETING: Statuses = {IsPartitionedError: 409}
"""Statuses of PUT and DELETE that differ from those of other resources.
Source: Pulsar's validateNonPartitionTopicNameAsync and PersistentTopics.deleteTopic."""

_MODE = OneOf("mode", "Topics that are wanted.", ("PERSISTENT", "NON_PERSISTENT", "ALL"), "PERSISTENT")
_SYSTEM_TOPICS = Flag("includeSystemTopic", "Answer the topics of the brokers themselves, too.")


async def names(call: AdminCall) -> Response:
    return answer(await in_bundle(call, await _shown(call)))


async def partitioned_names(call: AdminCall) -> Response:
    if call.given(BUNDLE) is not None:
        raise NotServedError("listing of partitioned topics by bundle is not served: their partitions have bundles")
    return answer(await call.administration.partitioned_topics_of_namespace(call.namespace()))


async def names_by_mode(call: AdminCall) -> Response:
    mode = call.choice(_MODE)
    # Asked in any case, for 404 if the namespace does not exist.
    found = await _shown(call)
    stored = [] if mode == "NON_PERSISTENT" else found
    direct = [] if mode == "PERSISTENT" else await call.administration.direct.names_everywhere(call.namespace())
    return answer([*stored, *(name.full for name in direct)])


async def create(call: AdminCall) -> None:
    name, properties = call.topic(), checked(await call.json())
    await at_owner(call, name)
    await call.administration.create_topic(name, tuple(properties.items()))


async def delete(call: AdminCall) -> None:
    name, force = call.topic(), call.flag(FORCE)
    await at_owner(call, name)
    await call.administration.delete_topic(name, force)
    await forget_topic(call, name)


async def unload(call: AdminCall) -> None:
    name = call.topic()
    await at_owner(call, name)
    await call.administration.unload_topic(name)


async def check_unused(call: AdminCall) -> None:
    """Answer a broker that is about to delete a partitioned topic."""
    name = call.topic()
    await at_owner(call, name)
    await call.administration.check_unused(name)


async def internal_stats(call: AdminCall) -> Response:
    name, metadata = call.topic(), call.flag(METADATA)
    await at_owner(call, name)
    found = await call.administration.internal_stats(name, metadata)
    return answer(found.as_json(lambda cursor: cursor))


async def partitioned_internal_stats(call: AdminCall) -> Response:
    """Return the state of all partitions. Each partition is consistent in itself, all together are not."""
    name = call.topic()
    count = await call.administration.partitions(name)
    if count == 0:
        raise NotPartitionedError(f"there is no partitioned topic {name.full}")
    every = await of_partitions(call, count, call.administration.internal_stats_json)
    partitions = {each.full: shown for each, shown in every.items()}
    return answer({"metadata": {"partitions": count, "deleted": False}, "partitions": partitions})


async def message_id_at(call: AdminCall) -> Response:
    name, at = call.topic(), call.number(TIMESTAMP)
    await at_owner(call, name)
    return answer(message_id(await call.administration.message_id_at(name, at), name))


async def last_message_id(call: AdminCall) -> Response:
    """Return the id of the last message that consumers may have; -1:-1 if there is none."""

    async def work(topic: Topic) -> Response:
        topic.check_open()
        try:
            position, index = await last_message(topic.ledger, topic.screen, topic.read_bound)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
        return answer(message_id(position, topic.name, index))

    return await on_topic(call, work)


async def _shown(call: AdminCall) -> list[str]:
    """Return the topics of a namespace; those of the servers themselves only with ?includeSystemTopic=true."""
    found = await call.administration.topics_of_namespace(call.namespace())
    if call.flag(_SYSTEM_TOPICS):
        return found
    return [each for each in found if "/__" not in each or not is_system_topic(TopicName.parse(each))]


async def in_bundle(call: AdminCall, names: list[str], bundle: str | None = None) -> list[str]:
    """Return the topics of the bundle that `bundle`, or else ?bundle=, names; all, if neither does. Raises
    NoSuchBundleError."""
    text = bundle or call.given(BUNDLE)
    if not text:
        return names
    found = (await call.cluster.namespaces.bundles(call.namespace())).bundle(text)
    return [each for each in names if found.has(TopicName.parse(each))]
