"""Backlogs and subscriptions of all topics of a namespace, or of one bundle of it.

POST     {namespace}/clearBacklog                           204: every subscription of every topic is at its end; 404
POST     {namespace}/clearBacklog/{subscription}            204: this one, on the topics that have it
POST     {namespace}/unsubscribe/{subscription}             204: it is deleted; 404, 412 it has consumers
POST     {namespace}/{bundle}/clearBacklog[/{subscription}], {namespace}/{bundle}/unsubscribe/{subscription}
                                                            the same for the topics of one bundle

Any broker answers, and asks the owners of the topics. Source: Pulsar's NamespacesBase.
"""

from __future__ import annotations

from urllib.parse import quote

from broker.admin.positions.every import ERRORS, subscription_of
from broker.admin.requests import AdminCall
from broker.background import for_all
from broker.dispatch import moving
from broker.errors import SubscriptionNotFoundError, TopicNotFoundError
from quire.wire.pulsar.names import TopicName


async def clear(call: AdminCall) -> None:
    only = call.subscription() if "subscription" in call.parts else None
    names = await _topics(call)

    async def clear_topic(name: TopicName) -> None:
        try:
            for subscription in await call.administration.subscriptions(name):
                if only in (None, subscription):
                    await _clear(call, name, subscription)
        except TopicNotFoundError:
            pass  # deleted meanwhile

    await call.administration.complete(lambda: for_all(names, clear_topic, name=call.line), call.line)


async def _clear(call: AdminCall, name: TopicName, subscription: str) -> None:
    remote = await call.administration.elsewhere(name)
    try:
        if remote is None:
            await moving.skip_all(subscription_of(await call.administration.partition(name), subscription))
        else:
            resource = f"/subscription/{quote(subscription, safe='')}/skip_all"
            await remote.ask("POST", resource, errors=ERRORS)
    except SubscriptionNotFoundError:
        pass  # deleted meanwhile


async def unsubscribe(call: AdminCall) -> None:
    subscription, names = call.subscription(), await _topics(call)

    async def delete(name: TopicName) -> None:
        try:
            await call.administration.delete_subscription(name, subscription)
        except (SubscriptionNotFoundError, TopicNotFoundError):
            pass  # the topic never had it, or was deleted

    await call.administration.complete(lambda: for_all(names, delete, name=call.line), call.line)


async def _topics(call: AdminCall) -> list[TopicName]:
    """Return the topics, partitions one by one, of the namespace or the bundle of the path."""
    namespace = call.namespace()
    names = [TopicName.parse(full) for full in await call.administration.topics_of_namespace(namespace)]
    if "bundle" not in call.parts:
        return names
    bundle = (await call.cluster.namespaces.bundles(namespace)).bundle(call.part("bundle"))
    return [name for name in names if bundle.has(name)]
