"""Properties of a topic: texts that applications and operators keep with it.

GET      {topic}/properties          {"key":"value"}; 404
PUT      {topic}/properties          {"key":"value"}, which are added to what is there; 204; 404, 412
DELETE   {topic}/properties?key=     204, also if there is none of that key; 404, 412

Of a partitioned topic they are in its node, of others in the list of its ledgers, as the original has them. Source:
Pulsar's PersistentTopicsBase (internalGetProperties, internalUpdateProperties, internalRemoveProperties).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import Response

from broker.admin.errors import PreconditionError
from broker.admin.positions.every import on_topic
from broker.admin.requests import AdminCall, string_map
from broker.admin.resource import answer
from broker.errors import ServiceNotReadyError
from broker.topics.producer_access import EPOCH_PROPERTY
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from quire.wire.pulsar.names import TopicName

PROPERTIES_BYTES_MAX: Final = 32 << 10

Properties = dict[str, str]
Change = Callable[[Properties], Properties]


async def get(call: AdminCall) -> Response:
    name = call.topic()
    if await _is_partitioned(call, name):
        found = await call.administration.partitioned.find(name)
        return answer({} if found is None else dict(found.properties))
    return answer(_shown(dict(await on_topic(call, _properties))))


async def update(call: AdminCall) -> None:
    given = checked(await call.json())
    if not given:
        raise PreconditionError("no properties are given")
    await change(call, lambda properties: properties | given)


async def remove(call: AdminCall) -> None:
    key = call.request.query_params.get("key", "")
    if not key or key == EPOCH_PROPERTY:
        raise PreconditionError("key must name a property")
    await change(call, lambda properties: {each: value for each, value in properties.items() if each != key})


async def change(call: AdminCall, changed: Change) -> None:
    """Change the properties of the topic of a call. Raises PreconditionError if there are too many."""

    def bounded(before: Properties) -> Properties:
        after = changed(before)
        if sum(len(key.encode()) + len(value.encode()) for key, value in after.items()) > PROPERTIES_BYTES_MAX:
            raise PreconditionError(f"the properties of a topic have at most {PROPERTIES_BYTES_MAX} bytes")
        return after

    async def work(topic: Topic) -> PreconditionError | None:
        topic.check_open()
        try:
            await topic.ledger.update_properties(bounded)
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"topic {topic.name.full}: {error}") from error
        except PreconditionError as error:
            return error  # of the caller, not of the task that carries it out
        return None

    name = call.topic()
    if await _is_partitioned(call, name):
        partitioned = call.administration.partitioned
        async with partitioned.changing(name):
            await partitioned.change_properties(name, bounded)
    elif (refused := await on_topic(call, work)) is not None:
        raise refused


def checked(body: object) -> Properties:
    """Return the properties of a body. Raises MalformedRequestError, PreconditionError."""
    given = dict(string_map(body, "properties"))
    if EPOCH_PROPERTY in given:
        raise PreconditionError(f"{EPOCH_PROPERTY} is the broker's own")
    return given


async def _properties(topic: Topic) -> tuple[tuple[str, str], ...]:
    return topic.ledger.properties


def _shown(properties: Mapping[str, str]) -> Properties:
    return {key: value for key, value in properties.items() if key != EPOCH_PROPERTY}


async def _is_partitioned(call: AdminCall, name: TopicName) -> bool:
    return name.partition < 0 and bool(await call.administration.partitions(name))
