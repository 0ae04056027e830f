"""Limits of producers, consumers and subscriptions, of a namespace and of a topic.

GET, POST, DELETE   {namespace}/maxProducersPerTopic, maxConsumersPerTopic, maxSubscriptionsPerTopic,
                    maxConsumersPerSubscription         a number; 0: no limit; 204 if none is set
GET, POST, DELETE   {topic}/maxProducers, maxConsumers, maxSubscriptionsPerTopic, maxConsumersPerSubscription
                                                        the same of a topic; ?applied=true: the effective limit

Source: Pulsar's Namespaces, PersistentTopics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.admin.life_policies.handlers import of_namespace, of_topic
from broker.admin.policies import Handlers
from broker.admin.requests import AdminCall
from broker.topics.limits import CONSUMERS, CONSUMERS_OF_SUBSCRIPTION, PRODUCERS, SUBSCRIPTIONS, Limit
from broker.topics.policies import Held


def _of_topic(limit: Limit) -> Handlers:
    def shown(call: AdminCall, held: Held) -> int:
        return limit.effective(call.administration.options, held.of_namespace, held.of_topic)

    return of_topic(limit.of_topic, limit.checked, shown)


_LIMITS: Final = (PRODUCERS, CONSUMERS, SUBSCRIPTIONS, CONSUMERS_OF_SUBSCRIPTION)
OF_NAMESPACE: Final[Mapping[str, Handlers]] = {
    limit.key: of_namespace(limit.of_namespace, limit.checked) for limit in _LIMITS
}
OF_TOPIC: Final[Mapping[str, Handlers]] = {
    "maxProducers": _of_topic(PRODUCERS),
    "maxConsumers": _of_topic(CONSUMERS),
    "maxSubscriptionsPerTopic": _of_topic(SUBSCRIPTIONS),
    "maxConsumersPerSubscription": _of_topic(CONSUMERS_OF_SUBSCRIPTION),
}
