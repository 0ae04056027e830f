"""Rules for topics and subscriptions that are made when a client first uses their name (pure). Those of the servers are
made always.

Source: Pulsar's BrokerService (isAllowAutoTopicCreationAsync, isAllowAutoSubscriptionCreation).
"""

from __future__ import annotations

from broker.config import BrokerOptions
from broker.topics.policies import Held
from broker.topics.system_names import is_system_topic
from broker.topics.topic_policies.catalog import AUTO_SUBSCRIPTION_CREATION, AUTO_TOPIC_CREATION
from broker.topics.topic_policies.kinds import AutoTopicCreation
from broker.topics.topic_policies.known import value_of
from quire.wire.pulsar.names import TopicName


def topic_creation(held: Held, name: TopicName) -> AutoTopicCreation:
    """Return the rule for a topic."""
    found = held.value(AUTO_TOPIC_CREATION)
    return found._replace(allow=True) if not found.allow and is_system_topic(name) else found


def subscriptions_allowed(held: Held | None, options: BrokerOptions, name: TopicName) -> bool:
    """Return whether a consumer of a topic that names a subscription makes it. `held`: the topic's policies."""
    return value_of(held, AUTO_SUBSCRIPTION_CREATION, options) or is_system_topic(name)
