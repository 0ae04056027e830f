"""Rules of delivery to the subscriptions of a topic: broker.conf, or what the policies of its namespace or its own say.

    /admin/policies/<t>/<ns>    "max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription"
    of a topic                  "maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription"
    in both                     "entryFilters": {"entryFilterNames": "one,other"}
                                "dispatcherPauseOnAckStatePersistentEnabled"

Order: topic, namespace, broker.conf. Source: Pulsar's HierarchyTopicPolicies, AbstractTopic and EntryFilterSupport.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from broker.config import BrokerOptions
from broker.entry_filters.entry_filter import EntryFilter
from broker.entry_filters.loading import EntryFilters, UnknownFilterError
from broker.topics.topic_policies.catalog import (
    ENTRY_FILTERS,
    MAX_UNACKED_OF_CONSUMER,
    MAX_UNACKED_OF_SUBSCRIPTION,
    PAUSE_ON_ACK_STATE,
)

_KEYS = frozenset(
    key
    for policy in (MAX_UNACKED_OF_CONSUMER, MAX_UNACKED_OF_SUBSCRIPTION, ENTRY_FILTERS, PAUSE_ON_ACK_STATE)
    for key in policy.namespace
)
"""Keys of a namespace's policies that say something about delivery."""


class DeliveryRules(NamedTuple):
    """Rules of one topic."""

    unacked_per_consumer: int
    """Unacknowledged messages of a consumer; 0: no limit."""
    unacked_per_subscription: int
    filters: tuple[EntryFilter, ...] = ()
    problem: str = ""
    """Reason why nothing may be delivered; "" if there is none."""
    pause_on_ack_state: bool = False
    """Shared and Key_Shared: True if too many ranges of acknowledged entries keep new entries back."""


class PoliciesSaid(Protocol):
    """Policies of a topic."""

    @property
    def of_namespace(self) -> Mapping[str, Any] | None: ...

    @property
    def of_topic(self) -> Mapping[str, Any] | None: ...


def rules_of_broker(options: BrokerOptions, filters: EntryFilters) -> DeliveryRules:
    """Return what holds where no policy says otherwise."""
    return DeliveryRules(
        options.unacked_messages_per_consumer_max,
        options.unacked_messages_per_subscription_max,
        filters.standard,
        pause_on_ack_state=options.pause_on_ack_state,
    )


def effective_rules(broker: DeliveryRules, filters: EntryFilters, said: PoliciesSaid | None) -> DeliveryRules:
    """Return the rules of a topic."""
    if said is None:
        return broker
    topic, namespace = said.of_topic or {}, said.of_namespace or {}
    if not topic and _KEYS.isdisjoint(namespace):
        return broker  # the rule
    found = broker
    consumer = MAX_UNACKED_OF_CONSUMER.said(topic, namespace, "")
    subscription = MAX_UNACKED_OF_SUBSCRIPTION.said(topic, namespace, "")
    if consumer is not None:
        found = found._replace(unacked_per_consumer=consumer)
    if subscription is not None:
        found = found._replace(unacked_per_subscription=subscription)
    pause = PAUSE_ON_ACK_STATE.said(topic, namespace, "")
    if pause is not None:
        found = found._replace(pause_on_ack_state=pause)
    names = ENTRY_FILTERS.said(topic, namespace, "")
    if names and filters.may_be_overridden:
        try:
            found = found._replace(filters=filters.named(names))
        except UnknownFilterError as error:
            found = found._replace(problem=str(error))
    return broker if found == broker else found
