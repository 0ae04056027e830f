"""Explanations over the admin REST; Quire's own, the original has nothing like it.

GET      {topic}/subscription/{subscription}/explain     why nothing is delivered; 404
GET      {topic}/explain                                 why producers wait, what keeps ledgers, and every subscription

`{topic}` is redirected to its owner. Any broker answers for a partitioned topic, with an answer per partition that
exists, and asks the owners of its partitions.
"""

from __future__ import annotations

from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin.positions.every import ERRORS, Work, resource_of, subscription_of
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import SubscriptionNotFoundError, TopicNotFoundError
from broker.explain.explain import Explain
from broker.topics.topic import Topic
from quire.wire.pulsar.names import TopicName

LOAD_WAIT_S: Final = 2.0
"""Time for which an explanation waits until the topic is loaded."""
SUBSCRIPTIONS_IN_STEP: Final = 20
"""Subscriptions explained before other tasks run."""


async def of_subscription(call: AdminCall) -> Response:
    name, explain = call.subscription(), call.administration.explain

    async def told(topic: Topic) -> dict[str, Any]:
        return explain.told.delivery(topic, subscription_of(topic, name)).as_json()

    return answer(await _told(call, told))


async def of_topic(call: AdminCall) -> Response:
    explain = call.administration.explain

    async def told(topic: Topic) -> dict[str, Any]:
        topic.check_open()
        return {
            "topic": topic.name.full,
            "producers": explain.told.producers(topic).as_json(),
            "ledgers": [each.as_json() for each in explain.told.ledgers(topic)],
            "subscriptions": await _subscriptions(explain, topic),
        }

    return answer(await _told(call, told))


async def _subscriptions(explain: Explain, topic: Topic) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for count, (name, subscription) in enumerate(list(topic.subscriptions.items()), 1):
        found[name] = explain.told.delivery(topic, subscription).as_json()
        if not count % SUBSCRIPTIONS_IN_STEP:
            await trio.lowlevel.checkpoint()
    return found


async def _told(call: AdminCall, told: Work[dict[str, Any]]) -> dict[str, Any]:
    """Return what is told about a topic, or about each partition of it."""
    name, administration = call.topic(), call.administration
    count = await administration.partitions(name)
    if not count:
        await at_owner(call, name)
        return await _here(call, name, told)
    partitions: dict[str, Any] = {}
    missing: TopicNotFoundError | SubscriptionNotFoundError | None = None
    for index in range(count):
        each = name.with_partition(index)
        remote = await administration.elsewhere(each)
        try:
            if remote is None:
                partitions[each.full] = await _here(call, each, told)
            else:
                partitions[each.full] = await remote.ask("GET", resource_of(call), errors=ERRORS)
        except (TopicNotFoundError, SubscriptionNotFoundError) as error:
            missing = error  # it was never used, or not by this subscription
    if missing is not None and not partitions:
        raise missing
    return {"partitions": partitions}


async def _here(call: AdminCall, name: TopicName, told: Work[dict[str, Any]]) -> dict[str, Any]:
    topic: Topic | None = None
    with trio.move_on_after(LOAD_WAIT_S):
        topic = await call.administration.partition(name)
    if topic is not None:
        return await told(topic)
    from broker.explain.causes import TOPIC_LOADING, Explanation  # see Explain.told

    waits = {"topic": name.full, "waited_s": LOAD_WAIT_S}
    return Explanation(subject=name.full, cause=TOPIC_LOADING, details=waits).as_json()
