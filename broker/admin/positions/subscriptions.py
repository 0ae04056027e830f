"""Moves of a subscription's position, durable when they are answered.

POST     {subscription}/resetcursor/{timestamp}      204; 404; 412 a reset is under way
POST     {subscription}/resetcursor                  body: message id; 204; 404, 405 the topic is partitioned, 412
POST     {subscription}/skip/{count}                 204; 404, 405 the topic is partitioned
POST     {subscription}/skip_all                     204; 404
POST     {subscription}/expireMessages/{seconds}     204; 404, 409 nothing is expired, or an expiry is under way
POST     {subscription}/expireMessages               body: message id, the last to expire; 204; 404, 405, 409
POST     {topic}/all_subscription/expireMessages/{seconds}     204, also if nothing is expired
GET, PUT {subscription}/properties                   the properties given with the subscription; 200, 204; 404

`{subscription}` stands for {topic}/subscription/{subscription}. Of a partitioned topic all partitions are meant. What
names an entry is for one partition. With `isExcluded` the message that an expiry names does not expire.
Source: Pulsar's PersistentTopicsBase; there an expiry with `isExcluded` takes one message more than without.
"""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from broker.admin.errors import PreconditionError
from broker.admin.message_ids import parse
from broker.admin.openapi.parameters import TIMESTAMP
from broker.admin.positions.every import on_every, on_topic, subscription_of
from broker.admin.properties import check_size
from broker.admin.requests import INT32_MAX, AdminCall, string_map
from broker.admin.resource import answer
from broker.dispatch import moving
from broker.errors import NothingExpiredError, ServiceNotReadyError
from broker.topics.topic import Topic
from cursors.errors import CursorError
from quire.service.web.parameters import PathNumber

_COUNT = PathNumber("count", "Messages to skip, 0 or more.", -INT32_MAX, INT32_MAX)
_SECONDS = PathNumber("seconds", "Age from which on messages expire, in seconds, 0 or more.", -INT32_MAX, INT32_MAX)


async def reset_to_time(call: AdminCall) -> None:
    name, at = call.subscription(), call.number(TIMESTAMP)

    async def work(topic: Topic) -> None:
        await moving.reset_to_time(subscription_of(topic, name), at)

    await on_every(call, work)


async def reset(call: AdminCall) -> None:
    name, target = call.subscription(), parse(await call.json())

    async def work(topic: Topic) -> None:
        subscription = subscription_of(topic, name)
        await moving.reset(subscription, target.position, batch_index=target.batch_index, excluded=target.excluded)

    await on_topic(call, work)


async def skip(call: AdminCall) -> None:
    name, count = call.subscription(), call.number(_COUNT)
    if count < 0:
        raise PreconditionError("the number of messages to skip must not be negative")

    async def work(topic: Topic) -> None:
        await moving.skip(subscription_of(topic, name), count)

    await on_topic(call, work)


async def skip_all(call: AdminCall) -> None:
    name = call.subscription()

    async def work(topic: Topic) -> None:
        await moving.skip_all(subscription_of(topic, name))

    await on_every(call, work)


async def expire_older(call: AdminCall) -> None:
    name, seconds = call.subscription(), _seconds(call)

    async def work(topic: Topic) -> None:
        await moving.expire_older(subscription_of(topic, name), seconds)

    await on_every(call, work)


async def expire_to(call: AdminCall) -> None:
    name, target = call.subscription(), parse(await call.json())

    async def work(topic: Topic) -> None:
        await moving.expire_to(subscription_of(topic, name), target.position, excluded=target.excluded)

    await on_topic(call, work)


async def expire_older_of_all(call: AdminCall) -> None:
    await on_every(call, partial(_expire_older_of_all, _seconds(call)))


async def _expire_older_of_all(seconds: int, topic: Topic) -> None:
    topic.check_open()
    for subscription in list(topic.subscriptions.values()):
        try:
            await moving.expire_older(subscription, seconds)
        except NothingExpiredError:
            pass  # the others may have expired messages


async def properties(call: AdminCall) -> Response:
    name = call.subscription()

    async def work(topic: Topic) -> dict[str, str]:
        return dict(subscription_of(topic, name).cursor.cursor_properties)

    merged: dict[str, str] = {}
    for found in (await on_every(call, work)).values():
        merged.update(found)
    return answer(merged)


async def set_properties(call: AdminCall) -> None:
    name, body = call.subscription(), await call.json()
    given = string_map(body, "properties")
    check_size(given)

    async def work(topic: Topic) -> None:
        cursor = subscription_of(topic, name).cursor
        try:
            await cursor.set_cursor_properties(tuple(given.items()))
        except CursorError as error:
            raise ServiceNotReadyError(f"subscription {name!r}: {error}") from error

    await on_every(call, work, body=given)


def _seconds(call: AdminCall) -> int:
    seconds = call.number(_SECONDS)
    if seconds < 0:
        raise PreconditionError("the age of messages must not be negative")
    return seconds
