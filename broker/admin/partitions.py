"""{topic}/partitions: create, count, grow and delete partitioned topics.

PUT      4, or {"partitions":4,"properties":{}}     204; 406 an invalid number, 409 the topic exists, 412 the namespace
                                                    has no room for so many
POST     6                                          204; 409 it is not partitioned, 422 fewer, or too many
GET      ?checkAllowAutoCreation=true               {"partitions":4,"properties":{}}, 0 if it is not partitioned;
                                                    without properties if it has none
DELETE   ?force=true                                204; 404, 412 it is in use
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, Statuses
from broker.admin.openapi.parameters import FORCE
from broker.admin.permissions.handlers import forget_topic
from broker.admin.requests import INT32_MAX, PROPERTIES, AdminCall
from broker.admin.resource import answer
from broker.errors import (
    BeingDeletedError,
    NotAllowedError,
    NotPartitionedError,
    PartitionCountError,
    TopicNotFoundError,
)
from quire.service.web.parameters import Flag
from quire.service.web.shapes import Either, Record, Whole
from quire.wire.pulsar.names import PERSISTENT

_LOOKED_UP = Flag("checkAllowAutoCreation", "Create the topic if the configuration says so. Sent by clients.")
_COUNT = Whole(-INT32_MAX - 1, INT32_MAX)
"""Number of partitions. The broker checks the bounds, also that there is at least one."""
_BODY = Either((_COUNT, Record({"partitions": _COUNT, "properties": PROPERTIES}, needed=("partitions",))))

CREATING: Statuses = {BeingDeletedError: 409, NotAllowedError: 412, PartitionCountError: 406}
"""Statuses of PUT that differ from those of other resources."""
GROWING: Statuses = {NotPartitionedError: 409, PartitionCountError: 422}
"""Statuses of POST that differ. Source: Pulsar's internalUpdatePartitionedTopicAsync."""


async def create(call: AdminCall) -> None:
    name = call.topic()
    count, properties = _count(await call.json())
    await call.administration.create_partitioned_topic(name, count, properties)


async def grow(call: AdminCall) -> None:
    name = call.topic()
    count, properties = _count(await call.json())
    if properties:
        raise MalformedRequestError("properties can be given only when a topic is created")
    await call.administration.grow_partitioned_topic(name, count)


async def count(call: AdminCall) -> Response:
    """Answer the number of partitions.

    With `checkAllowAutoCreation`, which a client's HTTP lookup sends, a missing topic is created if the configuration
    makes topics partitioned, and refused if the configuration forbids automatic creation. Without it nothing is
    created."""
    name, looked_up = call.topic(), call.flag(_LOOKED_UP)
    count = await (call.service.client_partitions(name) if looked_up else call.administration.partitions(name))
    if name.domain == PERSISTENT and not (looked_up or count or await call.administration.exists(name)):
        raise TopicNotFoundError(f"topic {name.full} does not exist")
    stored = await call.administration.partitioned.find(name) if count else None
    properties = {} if stored is None or not stored.properties else {"properties": dict(stored.properties)}
    return answer({"partitions": count, "deleted": False, **properties})


async def delete(call: AdminCall) -> None:
    name, force = call.topic(), call.flag(FORCE)
    await call.administration.delete_partitioned_topic(name, force)
    await forget_topic(call, name)


def _count(body: object) -> tuple[int, dict[str, str]]:
    """Return the number of partitions, and the properties, of a body."""
    found = _BODY.check(body, "the number of partitions", MalformedRequestError)
    return (found, {}) if isinstance(found, int) else (found["partitions"], found.get("properties", {}))
