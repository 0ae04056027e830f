"""A call about a topic, carried out where it is served.

A topic that is not partitioned, or a partition, is its owner's, to which the call is redirected. For a partitioned
topic any broker carries the call out on all partitions: on its own ones directly, on others by the same call to their
owners.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any, Final, TypeVar

from broker.admin.other_brokers import Errors
from broker.admin.raw_paths import raw_path
from broker.admin.redirects import at_owner
from broker.admin.requests import AdminCall
from broker.background import AT_ONCE_MAX, for_all
from broker.dispatch.subscription import Subscription
from broker.errors import (
    NotAllowedError,
    NothingExpiredError,
    SubscriptionBusyError,
    SubscriptionNotFoundError,
)
from broker.topics.topic import Topic
from quire.wire.pulsar.names import TopicName
from quire.world.tasks import for_each

T = TypeVar("T")
Work = Callable[[Topic], Awaitable[T]]

_PARTS_BEFORE = 7
"""Parts of /admin/v2/persistent/{tenant}/{namespace}/{topic}, the empty one in front included."""
ERRORS: Final[Errors] = MappingProxyType(
    {
        404: SubscriptionNotFoundError,
        405: NotAllowedError,
        409: NothingExpiredError,
        412: SubscriptionBusyError,
    }
)
"""Errors of the calls of this folder, by the status that another broker answers."""


async def on_topic(call: AdminCall, work: Work[T]) -> T:
    """Carry out a change or a look on one topic or partition, to its end even if the caller goes away.

    Raises RedirectError, IsPartitionedError and other BrokerErrors."""
    name = call.topic()
    await at_owner(call, name)
    topic = await call.administration.plain_topic(name)
    return await call.administration.complete(lambda: work(topic), call.line)


async def on_every(call: AdminCall, work: Work[T], *, body: object = None) -> dict[TopicName, Any]:
    """Carry out a change on a topic or on every partition of it; return the result of each, by name, which for the
    partitions of other brokers is the JSON they answered. All are tried before the first error is raised.

    Raises RedirectError and BrokerErrors. `body`: that of the call, decoded."""
    name = call.topic()
    count = await call.administration.partitions(name)
    if not count:
        return {name: await on_topic(call, work)}
    found: dict[TopicName, Any] = {}

    async def on_partition(each: TopicName) -> None:
        remote = await call.administration.elsewhere(each)
        if remote is None:
            found[each] = await work(await call.administration.partition(each))
        else:
            resource = resource_of(call)
            found[each] = await remote.ask(call.request.method, resource, body=body, errors=ERRORS)

    partitions = [name.with_partition(index) for index in range(count)]
    await call.administration.complete(lambda: for_all(partitions, on_partition, name=call.line), call.line)
    return found


async def of_partitions(call: AdminCall, count: int, job: Callable[[TopicName], Awaitable[T]]) -> dict[TopicName, T]:
    """Return what a question about each partition answers, in order. `AT_ONCE_MAX` are asked at a time, since each may
    have to be loaded. Raises the first error."""
    name = call.topic()
    found: dict[TopicName, T] = {}

    async def ask(each: TopicName) -> None:
        found[each] = await job(each)

    partitions = [name.with_partition(index) for index in range(count)]
    await for_each(partitions, ask, at_once=AT_ONCE_MAX, name=call.line)
    return {each: found[each] for each in partitions}


def resource_of(call: AdminCall) -> str:
    """Return what comes behind the topic in the path of a call, with its query."""
    tail = raw_path(call.request.scope).split("/", _PARTS_BEFORE - 1)[-1].partition("/")[2]
    query = call.request.url.query
    return f"/{tail}{'?' if query else ''}{query}"


def subscription_of(topic: Topic, name: str) -> Subscription:
    """Return a subscription of a topic. Raises SubscriptionNotFoundError, ServiceNotReadyError."""
    topic.check_open()
    found = topic.subscriptions.get(name)
    if found is None:
        raise SubscriptionNotFoundError(f"Subscription {name} not found for topic {topic.name.full}")
    return found
