"""Values of policies: the topic's, else its namespace's, else broker.conf's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerOptions
from broker.life_config import SUBSCRIPTION_TYPES
from broker.topics.policy_values import PolicyError
from broker.topics.topic_policies import catalog, kinds
from broker.topics.topic_policies.catalog import Policy
from quire.service.unsupported.policies import OBEYED

OPTIONS = BrokerOptions(
    cluster_name="c",
    producers_per_topic_max=7,
    message_size_max=5 << 20,
    topic_dispatch_messages=3,
    topic_dispatch_bytes=4,
    subscription_dispatch_messages=5,
    subscription_dispatch_bytes=6,
    topic_publish_messages=7,
    topic_publish_bytes=8,
    subscribe_attempts=9,
    subscribe_period_s=10,
    quota_bytes=11,
    quota_seconds=12,
    quota_policy="producer_exception",
    delete_inactive=True,
    inactive_mode="delete_when_subscriptions_caught_up",
    allow_auto_topic_creation=False,
    auto_topic_type="partitioned",
    partitions_default=13,
    allow_auto_subscription_creation=False,
    topics_per_namespace_max=14,
    entry_filter_names=("f",),
    pause_on_ack_state=True,
)
RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 2}


def value(policy: Policy[Any], topic: dict[str, Any] | None, namespace: dict[str, Any] | None) -> Any:
    said = policy.said(topic, namespace, "c")
    return policy.of_broker(OPTIONS) if said is None else said


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
    assert value(catalog.DISPATCH_RATE, None, {"topicDispatchRate": {"other": RATE}}) == kinds.DispatchRate(3, 4)
    off = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 0}
    assert value(catalog.DISPATCH_RATE, {"dispatchRate": off}, {"topicDispatchRate": {"c": RATE}}) == rate
    assert value(catalog.DISPATCH_RATE, {"dispatchRate": RATE}, None) == rate
    relative = {"dispatchRate": RATE | {"relativeToPublishRate": True}}
    assert value(catalog.DISPATCH_RATE, relative, {"topicDispatchRate": {"c": RATE}}) == rate._replace(relative=True)
    assert value(catalog.PUBLISH_RATE, {"publishRate": {"publishThrottlingRateInMsg": 5}}, None).messages == 5
    limited = {"clusterSubscribeRate": {"c": {"subscribeThrottlingRatePerConsumer": 4, "ratePeriodInSecond": 9}}}
    assert value(catalog.SUBSCRIBE_RATE, None, limited) == (4, 9)


def test_the_quotas_of_size_and_of_age_stand_each_for_itself() -> None:
    topic = {"backLogQuotaMap": {"message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"}}}
    namespace = {"backlog_quota_map": {"destination_storage": {"limit": 9, "policy": "producer_exception"}}}
    assert value(catalog.BACKLOG_TIME_QUOTA, topic, namespace) == (-1, 60, "consumer_backlog_eviction")
    assert value(catalog.BACKLOG_SIZE_QUOTA, topic, namespace) == (9, -1, "producer_exception")


def test_other_kinds() -> None:
    assert value(catalog.SUBSCRIPTION_TYPES, {"subscriptionTypesEnabled": []}, None) == set(SUBSCRIPTION_TYPES)
    assert value(catalog.SUBSCRIPTION_TYPES, {"subscriptionTypesEnabled": ["Shared"]}, None) == {"Shared"}
    inactive = {"deleteWhileInactive": True, "inactiveTopicDeleteMode": kinds.DELETE_MODES[1]}
    assert value(catalog.INACTIVE_TOPICS, None, {"inactive_topic_policies": inactive}).after_s == 60, "no time"
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
    assert policy.to_json(policy.read(stored)) == stored


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (catalog.DISPATCH_RATE, kinds.DispatchRate(3, 4)),
        (catalog.SUBSCRIPTION_DISPATCH_RATE, kinds.DispatchRate(5, 6)),
        (catalog.PUBLISH_RATE, kinds.PublishRate(7, 8)),
        (catalog.SUBSCRIBE_RATE, kinds.SubscribeRate(9, 10)),
        (catalog.BACKLOG_SIZE_QUOTA, kinds.BacklogQuota(11, 12, "producer_exception")),
        (catalog.BACKLOG_TIME_QUOTA, kinds.BacklogQuota(11, 12, "producer_exception")),
        (catalog.INACTIVE_TOPICS, kinds.InactiveTopics(True, "delete_when_subscriptions_caught_up", 60)),
        (catalog.AUTO_TOPIC_CREATION, kinds.AutoTopicCreation(False, True, 13)),
        (catalog.AUTO_SUBSCRIPTION_CREATION, False),
        (catalog.MAX_TOPICS, 14),
        (catalog.ENTRY_FILTERS, ("f",)),
        (catalog.PAUSE_ON_ACK_STATE, True),
    ],
)
def test_where_no_policy_says_otherwise_broker_conf_holds(policy: Policy[Any], expected: Any) -> None:
    assert value(policy, None, None) == expected
    wrong = {"c": 5} if policy.by_cluster else {policy.entry: 5} if policy.entry else "x"
    unreadable = dict.fromkeys(policy.namespace, wrong)
    assert value(policy, {policy.topic: "x"}, unreadable) == expected, "what cannot be read says nothing"


def test_the_time_after_which_a_topic_is_inactive_is_that_between_checks_unless_it_is_set() -> None:
    options = BrokerOptions(inactive_check_interval_s=30)
    assert catalog.INACTIVE_TOPICS.of_broker(options).after_s == 30
    assert catalog.INACTIVE_TOPICS.of_broker(BrokerOptions(inactive_s=5)).after_s == 5


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        (catalog.MAX_PRODUCERS, -1),
        (catalog.DISPATCH_RATE, {"dispatchThrottlingRateInByte": -2}),
        (catalog.PUBLISH_RATE, {"publishThrottlingRateInMsg": -2}),
        (catalog.SUBSCRIBE_RATE, {"subscribeThrottlingRatePerConsumer": -2}),
        (
            catalog.AUTO_TOPIC_CREATION,
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 5000},
        ),
    ],
)
def test_some_values_are_read_and_not_to_be_set(policy: Policy[Any], wrong: Any) -> None:
    policy.read(wrong)
    with pytest.raises(PolicyError):
        policy.checked(wrong, OPTIONS)


BROKER = Path(catalog.__file__).parents[2]
USED = "\n".join(
    path.read_text()
    for path in sorted(BROKER.rglob("*.py"))
    if "admin" not in path.parts and path.parent != Path(catalog.__file__).parent
)
"""Source of the broker without the REST, and without the catalog and those that store what it has."""


@pytest.mark.parametrize("name", [name for name, each in vars(catalog).items() if isinstance(each, Policy)])
def test_a_policy_may_be_set_if_some_part_of_the_broker_uses_it(name: str) -> None:
    policy: Policy[Any] = getattr(catalog, name)
    keys = {*policy.namespace, policy.topic} - {""}
    used = re.search(rf"\b{name}\b", USED) is not None
    assert keys & OBEYED == (keys if used else set())


@pytest.mark.parametrize("period", [-1, 0, 1])
def test_a_dispatch_rate_that_pulsar_stored_without_a_period_is_one_of_a_second(period: int) -> None:
    stored = {"dispatchThrottlingRateInMsg": 7, "ratePeriodInSecond": period}
    assert kinds.dispatch_rate(stored) == kinds.DispatchRate(7, -1, 1, False)
