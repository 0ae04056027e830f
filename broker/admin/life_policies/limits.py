"""Limits of producers, consumers and subscriptions, of a namespace and of a topic.

GET, POST, DELETE   {namespace}/maxProducersPerTopic, maxConsumersPerTopic, maxSubscriptionsPerTopic,
                    maxConsumersPerSubscription         a number; 0: no limit; 204 if none is set
GET, POST, DELETE   {topic}/maxProducers, maxConsumers, maxSubscriptionsPerTopic, maxConsumersPerSubscription
                                                        the same of a topic; ?applied=true: the effective limit

Source: Pulsar's Namespaces, PersistentTopics.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.admin.life_policies.handlers import of_namespace, of_topic
from broker.admin.policies import Handlers
from broker.admin.requests import AdminCall
from broker.topics.policies import Held
from broker.topics.policy_values import whole
from broker.topics.topic_policies.catalog import (
    MAX_CONSUMERS,
    MAX_CONSUMERS_OF_SUBSCRIPTION,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    Policy,
)


def _of_topic(policy: Policy[int]) -> Handlers:
    def shown(call: AdminCall, held: Held) -> int:
        return held.value(policy)

    return of_topic(policy.topic, partial(whole, what=policy.topic), shown)


def _of_namespace(policy: Policy[int]) -> Handlers:
    [key] = policy.namespace
    return of_namespace(key, partial(whole, what=policy.topic))


OF_NAMESPACE: Final[Mapping[str, Handlers]] = {
    "maxProducersPerTopic": _of_namespace(MAX_PRODUCERS),
    "maxConsumersPerTopic": _of_namespace(MAX_CONSUMERS),
    "maxSubscriptionsPerTopic": _of_namespace(MAX_SUBSCRIPTIONS),
    "maxConsumersPerSubscription": _of_namespace(MAX_CONSUMERS_OF_SUBSCRIPTION),
}
OF_TOPIC: Final[Mapping[str, Handlers]] = {
    "maxProducers": _of_topic(MAX_PRODUCERS),
    "maxConsumers": _of_topic(MAX_CONSUMERS),
    "maxSubscriptionsPerTopic": _of_topic(MAX_SUBSCRIPTIONS),
    "maxConsumersPerSubscription": _of_topic(MAX_CONSUMERS_OF_SUBSCRIPTION),
}
