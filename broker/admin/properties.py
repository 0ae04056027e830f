"""Properties of topics and namespaces, and missing partitions.

GET      {topic}/properties                 {"key":"value"}; of a partitioned topic its own, not those of partitions
PUT      {topic}/properties                 body: properties to add or change; 204
DELETE   {topic}/properties?key=            204, also if there is no such property
GET, PUT, DELETE   {namespace}/properties   {"key":"value"}, to add or change, all; 204
GET, PUT, DELETE   {namespace}/property/{key}, .../{value} (PUT)    bare text, or nothing; 204; as GET
POST     {topic}/createMissedPartitions     204; 404 the topic is not partitioned

They are durable, and are kept where the original keeps them: in the list of ledgers of a topic or partition, in the
node of a partitioned topic. What brokers keep there beside them is not shown, and cannot be changed. 404, 412.
Source: Pulsar's PersistentTopicsBase (internalUpdatePropertiesAsync and its like, internalCreateMissedPartitions),
NamespacesBase (internalSetProperties and its like).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import Response

from broker.admin.errors import PreconditionError
from broker.admin.positions.every import on_topic
from broker.admin.requests import AdminCall, string_map
from broker.admin.resource import answer, text
from broker.errors import NotPartitionedError, ServiceNotReadyError
from broker.ownership.values import Json
from broker.topics.entry_stamps import PROPERTY as INDEX_PROPERTY
from broker.topics.producer_access import EPOCH_PROPERTY
from broker.topics.topic import Topic
from broker.transactions.txn_id import SNAPSHOT_PROPERTY
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.keeping import RESTORING
from quire.service.web.parameters import Parameter

BYTES_MAX = 32 << 10
"""Bytes of the names and values of the properties of a topic, a subscription or a namespace."""
ELSEWHERE = frozenset(("PULSAR.SHADOW_SOURCE", "migrated"))
"""Names of properties that bind a topic to another topic or cluster."""
RESERVED = ELSEWHERE | {EPOCH_PROPERTY, INDEX_PROPERTY, SNAPSHOT_PROPERTY, RESTORING}
"""Names that brokers use for themselves."""

_KEY = Parameter("key", "Name of the property.")

Change = Callable[[dict[str, str]], dict[str, str]]


def check_size(properties: Mapping[str, str]) -> None:
    """Raise PreconditionError if the properties are too large."""
    if sum(len(key.encode()) + len(value.encode()) for key, value in properties.items()) > BYTES_MAX:
        raise PreconditionError(f"the properties of a topic, subscription or namespace have at most {BYTES_MAX} bytes")


def checked(body: object) -> dict[str, str]:
    """Return the properties of a topic in a body. Raises MalformedRequestError, PreconditionError."""
    found = string_map(body, "properties")
    if taken := sorted(RESERVED & found.keys()):
        raise PreconditionError(f"the property {taken[0]!a} is for brokers")
    check_size(found)
    return found


async def get(call: AdminCall) -> Response:
    name = call.topic()
    if await call.administration.partitions(name):
        found = await call.administration.partitioned.find(name)
        stored = () if found is None else found.properties
        return answer({key: value for key, value in stored if key not in RESERVED})

    async def work(topic: Topic) -> dict[str, str]:
        return {key: value for key, value in topic.ledger.properties if key not in RESERVED}

    return answer(await on_topic(call, work))


async def put(call: AdminCall) -> None:
    given = checked(await call.json())

    def added(before: dict[str, str]) -> dict[str, str]:
        after = {**before, **given}
        check_size({key: value for key, value in after.items() if key not in RESERVED})
        return after

    await _change(call, added)


async def delete(call: AdminCall) -> None:
    key = call.given(_KEY) or ""
    if not key or key in RESERVED:
        raise PreconditionError("key must be the name of a property of the topic")
    await _change(call, lambda before: {name: value for name, value in before.items() if name != key})


async def _change(call: AdminCall, change: Change) -> None:
    name = call.topic()
    if await call.administration.partitions(name):
        await call.administration.partitioned.update_properties(name, change)
        return

    async def work(topic: Topic) -> None:
        topic.check_open()
        try:
            await topic.ledger.update_properties(change)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error

    await on_topic(call, work)


# Namespaces


async def get_all(call: AdminCall) -> Response:
    return answer(_of((await call.cluster.namespaces.policies(call.namespace())).get("properties")))


async def put_all(call: AdminCall) -> None:
    given = string_map(await call.json(), "properties")
    await _change_namespace(call, lambda before: {**before, **given})


async def clear(call: AdminCall) -> None:
    await _change_namespace(call, lambda before: {})


async def get_one(call: AdminCall) -> Response | None:
    found = _of((await call.cluster.namespaces.policies(call.namespace())).get("properties")).get(call.part("key"))
    return None if found is None else text(found)


async def put_one(call: AdminCall) -> None:
    key, value = call.part("key"), call.part("value")
    await _change_namespace(call, lambda before: {**before, key: value})


async def delete_one(call: AdminCall) -> Response | None:
    """Delete a property, and answer its value."""
    key, found = call.part("key"), await get_one(call)
    await _change_namespace(call, lambda before: {name: value for name, value in before.items() if name != key})
    return found


def _of(stored: object) -> dict[str, str]:
    return stored if isinstance(stored, dict) else {}


async def _change_namespace(call: AdminCall, change: Change) -> None:
    def changed(fields: Json) -> Json:
        after = change(_of(fields.get("properties")))
        check_size(after)
        return {**fields, "properties": after}

    await call.cluster.namespaces.update_policies(call.namespace(), changed)


# Partitions


async def create_missed_partitions(call: AdminCall) -> None:
    name = call.topic()
    count = await call.administration.partitions(name)
    if not count:
        raise NotPartitionedError(f"Topic {name.full} does not exist, or is not partitioned")
    await call.administration.grow_partitioned_topic(name, count)
