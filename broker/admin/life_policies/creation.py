"""Rules for topics and subscriptions that are made at their first use.

POST, GET, DELETE   {namespace}/autoTopicCreation           {"allowAutoTopicCreation":true,"topicType":"partitioned",
                                                             "defaultNumPartitions":3}
POST, GET, DELETE   {namespace}/autoSubscriptionCreation    {"allowAutoSubscriptionCreation":false}
POST, GET, DELETE   {topic}/autoSubscriptionCreation        the same; ?applied=true: what holds
POST, GET, DELETE   {namespace}/maxTopicsPerNamespace       a number; 0: no limit

204: none is set, or done; 412: an invalid value, or more partitions than maxNumPartitionsPerPartitionedTopic.
Source: Pulsar's NamespacesBase (internalSetAutoTopicCreationAsync, internalSetAutoSubscriptionCreationAsync).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.admin.errors import PreconditionError
from broker.admin.life_policies.handlers import change_namespace, of_namespace, of_topic
from broker.admin.policies import Handlers, check_policy, with_policy
from broker.admin.requests import AdminCall
from broker.topics.life.creation import (
    SUBSCRIPTIONS,
    TOPICS,
    TOPICS_MAX,
    auto_subscription_creation,
    auto_topic_creation,
    subscriptions_allowed,
)
from broker.topics.policies import Held
from broker.topics.policy_values import whole


async def _post_topics(call: AdminCall) -> None:
    value = check_policy(call, auto_topic_creation, await call.json())
    most = call.administration.options.partitions_per_topic_max
    if 0 < most < value.get("defaultNumPartitions", 0):
        raise PreconditionError(f"defaultNumPartitions is above maxNumPartitionsPerPartitionedTopic={most}")
    await change_namespace(call, lambda policies: with_policy(policies, TOPICS, value))


def _applied(call: AdminCall, held: Held) -> Mapping[str, Any]:
    allowed = subscriptions_allowed(call.administration.options, held.of_namespace, held.of_topic, call.topic())
    return {"allowAutoSubscriptionCreation": allowed}


_TOPICS: Final = of_namespace(TOPICS, auto_topic_creation)
OF_NAMESPACE: Final[Mapping[str, Handlers]] = {
    "autoTopicCreation": Handlers(_TOPICS.get, _post_topics, _TOPICS.delete),
    "autoSubscriptionCreation": of_namespace(SUBSCRIPTIONS, auto_subscription_creation),
    "maxTopicsPerNamespace": of_namespace(TOPICS_MAX, partial(whole, what="maxTopicsPerNamespace")),
}
OF_TOPIC: Final[Mapping[str, Handlers]] = {
    "autoSubscriptionCreation": of_topic(SUBSCRIPTIONS, auto_subscription_creation, _applied)
}
