"""Values of policies: the topic's, else its namespace's, else broker.conf's."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import BrokerOptions
from broker.topics.topic_policies import catalog, kinds
from broker.topics.topic_policies.catalog import Policy

OPTIONS = BrokerOptions(producers_per_topic_max=7, message_size_max=5 << 20, cluster_name="c")
RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 2}


def value(policy: Policy[Any], topic: dict[str, Any] | None, namespace: dict[str, Any] | None) -> Any:
    return policy.effective(topic, namespace, "c", OPTIONS)


@pytest.mark.parametrize(
    ("topic", "namespace", "expected"),
    [
        (None, None, 7),
        ({}, {"max_producers_per_topic": 3}, 3),
        ({"maxProducerPerTopic": 0}, {"max_producers_per_topic": 3}, 0),
        ({"maxProducerPerTopic": -1}, {"max_producers_per_topic": 3}, 3),
        ({"maxProducerPerTopic": "x"}, {"max_producers_per_topic": True}, 7),
        ({"maxProducerPerTopic": None}, {"max_producers_per_topic": None}, 7),
    ],
)
def test_a_limit_is_the_topics_else_the_namespaces_else_the_brokers(
    topic: dict[str, Any] | None, namespace: dict[str, Any] | None, expected: int
) -> None:
    assert value(catalog.MAX_PRODUCERS, topic, namespace) == expected


def test_rates_of_a_namespace_are_by_cluster_and_one_that_limits_nothing_says_nothing() -> None:
    rate = kinds.DispatchRate(10, -1, 2)
    assert value(catalog.DISPATCH_RATE, None, {"topicDispatchRate": {"c": RATE}}) == rate
    assert value(catalog.DISPATCH_RATE, None, {"clusterDispatchRate": {"c": RATE}}) == rate
    assert value(catalog.DISPATCH_RATE, None, {"topicDispatchRate": {"other": RATE}}) == kinds.DispatchRate()
    off = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 0}
    assert value(catalog.DISPATCH_RATE, {"dispatchRate": off}, {"topicDispatchRate": {"c": RATE}}) == rate
    assert value(catalog.DISPATCH_RATE, {"dispatchRate": RATE}, None) == rate
    assert value(catalog.PUBLISH_RATE, {"publishRate": {"publishThrottlingRateInMsg": 5}}, None).messages == 5
    limited = {"clusterSubscribeRate": {"c": {"subscribeThrottlingRatePerConsumer": 4, "ratePeriodInSecond": 9}}}
    assert value(catalog.SUBSCRIBE_RATE, None, limited) == (4, 9)


def test_the_quotas_of_size_and_of_age_stand_each_for_itself() -> None:
    topic = {"backLogQuotaMap": {"message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"}}}
    namespace = {"backlog_quota_map": {"destination_storage": {"limit": 9, "policy": "producer_exception"}}}
    assert value(catalog.BACKLOG_TIME_QUOTA, topic, namespace) == (-1, 60, "consumer_backlog_eviction")
    assert value(catalog.BACKLOG_SIZE_QUOTA, topic, namespace) == (9, -1, "producer_exception")


def test_other_kinds() -> None:
    assert value(catalog.SUBSCRIPTION_TYPES, {"subscriptionTypesEnabled": []}, None) == set(kinds.SUBSCRIPTION_TYPES)
    assert value(catalog.SUBSCRIPTION_TYPES, {"subscriptionTypesEnabled": ["Shared"]}, None) == {"Shared"}
    inactive = {"deleteWhileInactive": True, "inactiveTopicDeleteMode": kinds.DELETE_MODES[1]}
    assert value(catalog.INACTIVE_TOPICS, None, {"inactive_topic_policies": inactive}).delete is False  # no time
    inactive["maxInactiveDurationSeconds"] = 5
    assert value(catalog.INACTIVE_TOPICS, None, {"inactive_topic_policies": inactive}) == (
        True,
        kinds.DELETE_MODES[1],
        5,
    )
    override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    assert value(catalog.AUTO_TOPIC_CREATION, None, {"autoTopicCreationOverride": override}) == (True, True, 3)
    assert value(catalog.ENTRY_FILTERS, {"entryFilters": {"entryFilterNames": "a, b"}}, None) == ("a", "b")
    of_one = {"subscriptionPolicies": {"s": {"dispatchRate": RATE}}}
    assert catalog.subscription_dispatch_rate(of_one, "s") == kinds.DispatchRate(10, -1, 2)
    assert catalog.subscription_dispatch_rate(of_one, "other") is None


@pytest.mark.parametrize(
    ("policy", "stored"),
    [
        (catalog.DISPATCH_RATE, RATE | {"relativeToPublishRate": True}),
        (catalog.PUBLISH_RATE, {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
        (catalog.SUBSCRIBE_RATE, {"subscribeThrottlingRatePerConsumer": 4, "ratePeriodInSecond": 9}),
        (
            catalog.BACKLOG_SIZE_QUOTA,
            {"limit": 5, "limitSize": 5, "limitTime": -1, "policy": "consumer_backlog_eviction"},
        ),
        (catalog.AUTO_SUBSCRIPTION_CREATION, {"allowAutoSubscriptionCreation": False}),
        (catalog.SUBSCRIPTION_TYPES, ["Exclusive", "Key_Shared"]),
        (catalog.ENTRY_FILTERS, {"entryFilterNames": "a,b"}),
        (catalog.AUTO_TOPIC_CREATION, {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}),
        (
            catalog.INACTIVE_TOPICS,
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 5,
                "deleteWhileInactive": True,
            },
        ),
        (catalog.MAX_CONSUMERS, 5),
    ],
)
def test_what_is_read_is_stored_as_it_was(policy: Policy[Any], stored: Any) -> None:
    assert policy.json(policy.read(stored)) == stored
