"""Subscriptions by name, created and deleted without a consumer.

GET      {topic}/subscriptions                          names; of a partitioned topic those on any partition
PUT      {topic}/subscription/{subscription}            body: message id of the next entry, none is the latest;
                                                        its field `properties` has the subscription's
                                                        204; 404, 409, 412 reserved for brokers
DELETE   {topic}/subscription/{subscription}?force=true 204; 404, 412 it has consumers; __compaction: the topic is as
                                                        if it had never been compacted
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.errors import NotServedError, PreconditionError
from broker.admin.message_ids import next_entry, parse
from broker.admin.openapi.parameters import FORCE
from broker.admin.positions import compaction
from broker.admin.properties import check_size
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.topics.compaction.leftovers import COMPACTION_CURSOR
from broker.topics.system_names import is_system_cursor
from quire.service.web.parameters import Flag

_REPLICATED = Flag("replicated", "Replicate it to other clusters; refused.")


async def names(call: AdminCall) -> Response:
    name = call.topic()
    await at_owner(call, name)
    return answer(await call.administration.subscriptions(name))


async def create(call: AdminCall) -> None:
    name, subscription = call.topic(), call.subscription()
    if is_system_cursor(subscription):
        raise PreconditionError(f"{subscription} is reserved for brokers")
    if call.flag(_REPLICATED):
        raise NotServedError("replicated subscriptions are not served")
    body = await call.json()
    given = parse(body)
    check_size(given.properties)
    await at_owner(call, name)
    await call.administration.create_subscription(
        name, subscription, next_entry(given), tuple(given.properties.items())
    )


async def delete(call: AdminCall) -> None:
    name, subscription, force = call.topic(), call.subscription(), call.flag(FORCE)
    if subscription == COMPACTION_CURSOR:
        await compaction.drop(call)
        return
    await at_owner(call, name)
    await call.administration.delete_subscription(name, subscription, force)
