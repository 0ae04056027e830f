"""{topic}/partitions: partitioned topics are made, asked for, grown and deleted here.

PUT      4, or {"partitions":4,"properties":{}}     204; 406 a number that cannot be, 409 there is such a topic
POST     6                                          204; 409 it is not partitioned, 422 fewer, or too many
GET      ?checkAllowAutoCreation=true               {"partitions":4}, 0 if it is not partitioned
DELETE   ?force=true                                204; 404, 412 it is in use
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, Statuses
from broker.admin.requests import INT32_MAX, Call, integer, string_map
from broker.admin.resource import answer
from broker.errors import BeingDeletedError, NotPartitionedError, PartitionCountError

CREATING: Statuses = {BeingDeletedError: 409}
"""Where PUT answers otherwise than the rest."""
GROWING: Statuses = {NotPartitionedError: 409, PartitionCountError: 422}
"""The same for POST. Source: Pulsar's internalUpdatePartitionedTopicAsync."""


async def create(call: Call) -> None:
    name = call.topic()
    count, properties = _count(await call.json())
    await call.administration.create_partitioned_topic(name, count, properties)


async def grow(call: Call) -> None:
    name = call.topic()
    count, properties = _count(await call.json())
    if properties:
        raise MalformedRequestError("properties are given when a topic is made")
    await call.administration.grow_partitioned_topic(name, count)


async def count(call: Call) -> Response:
    """With `checkAllowAutoCreation`, which a client's HTTP lookup sends, a topic that is not there is made, if the
    configuration has topics made partitioned, or else refused, if it has none made. Without, nothing is made."""
    name, looked_up = call.topic(), call.flag("checkAllowAutoCreation")
    count = await (call.service.client_partitions(name) if looked_up else call.administration.partitions(name))
    return answer({"partitions": count, "deleted": False})


async def delete(call: Call) -> None:
    name, force = call.topic(), call.flag("force")
    await call.administration.delete_partitioned_topic(name, force)
    if call.service.cluster is not None:
        await call.service.cluster.policies.delete(name)


def _count(body: object) -> tuple[int, dict[str, str]]:
    """Number of partitions, and properties."""
    properties: object = None
    if isinstance(body, dict):
        properties = body.get("properties")
        body = body.get("partitions")
    # How many there may be is for the broker to say, also that none is too few.
    found = integer(body, "the number of partitions", minimum=-INT32_MAX - 1, maximum=INT32_MAX)
    return found, string_map(properties, "properties")
