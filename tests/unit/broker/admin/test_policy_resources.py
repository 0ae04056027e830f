"""Limits, rates, quotas and rules over REST, for a namespace and for a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.admin import policy_resources
from broker.topics.topic_policies.catalog import Policy
from broker.topics.topic_policies.known import Defaults
from quire.service.unsupported import policies as refusals
from quire.wire.pulsar.names import TopicName
from tests.unit.broker.admin.cluster_fakes import ClusterRest

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/a"
RATE = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 5,
    "deleteWhileInactive": True,
}
VALUES: dict[str, Any] = {
    "compactionThreshold": 1 << 40,
    "dispatchRate": RATE,
    "subscriptionDispatchRate": RATE,
    "replicatorDispatchRate": RATE,
    "publishRate": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": 1 << 40},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 4, "ratePeriodInSecond": 9},
    "inactiveTopicPolicies": INACTIVE,
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "subscriptionTypesEnabled": ["Shared", "Failover"],
    "entryFilters": {"entryFilterNames": "a,b"},
    "dispatcherPauseOnAckStatePersistent": True,
}
"""Values by resource; the others are numbers."""
WRONG: dict[str, Any] = {
    "dispatchRate": {"dispatchThrottlingRateInMsg": "x"},
    "publishRate": 5,
    "subscribeRate": {"ratePeriodInSecond": 0},
    "inactiveTopicPolicies": {**INACTIVE, "inactiveTopicDeleteMode": "x"},
    "autoTopicCreation": {"allowAutoTopicCreation": True, "topicType": "x"},
    "autoSubscriptionCreation": {},
    "subscriptionTypesEnabled": ["Sharde"],
    "entryFilters": "a",
    "dispatcherPauseOnAckStatePersistent": 1,
}
EVERY = [
    (whose, resource, policy)
    for whose, resources in ((TOPIC, policy_resources.OF_TOPIC), (NAMESPACE, policy_resources.OF_NAMESPACE))
    for resource, policy in resources.items()
]


@pytest.fixture
def all_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every policy were obeyed."""
    keys = {key for _, _, policy in EVERY for key in (policy.topic, *policy.namespace)} | {"subscriptionPolicies"}
    quotas = {"backLogQuotaMap", "backlog_quota_map"}
    monkeypatch.setattr(refusals, "OBEYED", refusals.OBEYED | keys | quotas)


@pytest.mark.parametrize(("whose", "resource", "policy"), EVERY)
async def test_what_is_set_is_read_back_and_holds_until_it_is_deleted(
    whose: str, resource: str, policy: Policy[Any], rest: ClusterRest, all_obeyed: None
) -> None:
    url, value = f"{whose}/{resource}", VALUES.get(resource, 7)
    setting = "PUT" if whose == NAMESPACE and resource == "compactionThreshold" else "POST"
    assert await rest.status("GET", url) == 204
    assert await rest.status(setting, url, json=value) == 204
    assert await rest.get(url) == value
    if policy.topic:
        assert await rest.get(f"{TOPIC}/{_of_topic(policy)}?applied=true") == value
    await rest.refused(setting, url, 412, json=WRONG.get(resource, -1))
    assert await rest.get(url) == value
    assert await rest.status("DELETE", url) == 204
    if whose == TOPIC and resource == "subscriptionTypesEnabled":
        assert await rest.get(url) == []  # as the original has it, of a topic with policies
    else:
        assert await rest.status("GET", url) == 204
    assert await rest.status("DELETE", url) == 204
    if policy.topic:
        held = await rest.policies.load(TopicName.parse("persistent://public/default/a"))
        assert held.value(policy) == policy.of_broker(rest.policies.defaults.options)


def _of_topic(policy: Policy[Any]) -> str:
    return next(resource for resource, each in policy_resources.OF_TOPIC.items() if each is policy)


@pytest.mark.parametrize(("whose", "resource", "policy"), EVERY)
async def test_what_would_not_be_obeyed_is_refused_by_its_name(
    whose: str, resource: str, policy: Policy[Any], rest: ClusterRest
) -> None:
    url, value = f"{whose}/{resource}", VALUES.get(resource, 7)
    setting = "PUT" if whose == NAMESPACE and resource == "compactionThreshold" else "POST"
    key = policy.topic if whose == TOPIC else policy.namespace[0]
    if key in refusals.OBEYED:
        assert await rest.status(setting, url, json=value) == 204
    else:
        assert key in await rest.refused(setting, url, 412, json=value)
        assert await rest.status("GET", url) == 204


@pytest.mark.parametrize("whose", [TOPIC, NAMESPACE])
async def test_quotas_of_size_and_of_age_are_set_each_by_itself(
    whose: str, rest: ClusterRest, all_obeyed: None
) -> None:
    url = f"{whose}/backlogQuota"
    size = {"limitSize": 9, "policy": "producer_exception"}
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    stored = {
        "destination_storage": {"limit": 9, "limitSize": 9, "limitTime": -1, "policy": "producer_exception"},
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"},
    }
    assert await rest.get(f"{whose}/backlogQuotaMap") == {}
    assert await rest.status("POST", url, json=size) == 204
    assert await rest.status("POST", f"{url}?backlogQuotaType=message_age", json=age) == 204
    assert await rest.get(f"{whose}/backlogQuotaMap") == stored
    assert await rest.get(f"{TOPIC}/backlogQuotaMap?applied=true") == stored
    await rest.refused("POST", f"{url}?backlogQuotaType=x", 400, json=size)
    await rest.refused("POST", url, 412, json={"limitSize": 9, "policy": "x"})
    assert await rest.status("DELETE", url) == 204
    assert await rest.get(f"{whose}/backlogQuotaMap") == {"message_age": stored["message_age"]}
    assert await rest.status("DELETE", f"{url}?backlogQuotaType=message_age") == 204
    assert await rest.get(f"{whose}/backlogQuotaMap") == {}


async def test_a_subscription_may_have_a_rate_of_its_own(rest: ClusterRest, all_obeyed: None) -> None:
    url, other = f"{TOPIC}/s/dispatchRate", f"{TOPIC}/t/dispatchRate"
    assert await rest.status("GET", url) == 204
    assert await rest.status("POST", url, json=RATE) == 204
    assert await rest.get(url) == await rest.get(f"{url}?applied=true") == RATE
    assert await rest.status("GET", other) == 204
    assert (await rest.get(f"{other}?applied=true"))["dispatchThrottlingRateInMsg"] == 0, "as broker.conf says"
    assert await rest.status("DELETE", url) == 204
    assert await rest.status("GET", url) == 204


@pytest.mark.parametrize(
    ("resource", "value"),
    [("offloadPolicies", {"offloadersDirectory": "x"}), ("replication", ["c", "d"]), ("shadowTopics", ["a"])],
)
async def test_what_needs_a_part_that_is_not_there_is_refused(resource: str, value: Any, rest: ClusterRest) -> None:
    url = f"{TOPIC}/{resource}"
    assert await rest.refused("POST", url, 412, json=value)
    assert await rest.status("GET", url) == await rest.status("DELETE", url) == 204


async def test_a_namespace_is_not_made_with_a_value_that_cannot_be(rest: ClusterRest, all_obeyed: None) -> None:
    path = "/admin/v2/namespaces/public/new"
    for policies in ({"max_producers_per_topic": -5}, {"topicDispatchRate": {"c": 5}}, {"backlog_quota_map": {"x": 1}}):
        assert await rest.refused("PUT", path, 412, json=policies)
    good = {"max_producers_per_topic": 5, "topicDispatchRate": {"c": RATE}}
    assert await rest.status("PUT", path, json=good) == 204
    assert await rest.get(f"{path}/maxProducersPerTopic") == 5


# Quotas

QUOTA = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
AGE = {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}


async def test_the_applied_quotas_of_a_topic_are_its_own_its_namespaces_and_the_brokers_by_type(
    rest: ClusterRest,
) -> None:
    await rest.ask("POST", f"{NAMESPACE}/backlogQuota", json=QUOTA)
    await rest.ask("POST", f"{TOPIC}/backlogQuota?backlogQuotaType=message_age", json=AGE)
    found = await rest.get(f"{TOPIC}/backlogQuotaMap?applied=true")
    assert found == {"destination_storage": {**QUOTA, "limit": 1000}, "message_age": {**AGE, "limit": -1}}
    await rest.ask("DELETE", f"{NAMESPACE}/backlogQuota")
    found = await rest.get(f"{TOPIC}/backlogQuotaMap?applied=true")
    none = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
    assert found["destination_storage"] == none


@pytest.mark.parametrize("whose", [NAMESPACE, TOPIC])
@pytest.mark.parametrize(
    "value", [None, {**QUOTA, "policy": "drop"}, {**QUOTA, "limitSize": "1"}, {**QUOTA, "limitTime": 1 << 40}]
)
async def test_an_invalid_quota_is_refused(whose: str, value: Any, rest: ClusterRest) -> None:
    await rest.refused("POST", f"{whose}/backlogQuota", 412, json=value)
    await rest.refused("POST", f"{whose}/backlogQuota?backlogQuotaType=weight", 400, json=QUOTA)


@pytest.mark.parametrize("whose", [NAMESPACE, TOPIC])
async def test_a_quota_that_the_retention_would_exceed_is_refused(whose: str, rest: ClusterRest) -> None:
    kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 1}
    assert await rest.status("POST", f"{whose}/retention", json=kept) == 204
    why = await rest.refused("POST", f"{whose}/backlogQuota", 412, json={**QUOTA, "limitSize": 1 << 20})
    assert "exceeds configured retention quota" in why
    assert await rest.status("POST", f"{whose}/backlogQuota", json=QUOTA) == 204


# Limits, rates and rules


@pytest.mark.parametrize(
    ("of_namespace", "of_topic"),
    [
        ("maxProducersPerTopic", "maxProducers"),
        ("maxConsumersPerTopic", "maxConsumers"),
        ("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic"),
        ("maxConsumersPerSubscription", "maxConsumersPerSubscription"),
    ],
)
async def test_a_limit_of_a_topic_goes_before_that_of_its_namespace(
    of_namespace: str, of_topic: str, rest: ClusterRest
) -> None:
    one, other = f"{NAMESPACE}/{of_namespace}", f"{TOPIC}/{of_topic}"
    for place in (one, other):
        assert await rest.status("GET", place) == 204
        await rest.refused("POST", place, 412, json=-1)
        await rest.refused("POST", place, 412, json="7")
    assert await rest.get(f"{other}?applied=true") == 0
    assert await rest.status("POST", one, json=7) == 204
    assert await rest.get(one) == 7
    assert await rest.get(f"{other}?applied=true") == 7
    assert await rest.status("POST", other, json=3) == 204
    assert await rest.get(f"{other}?applied=true") == 3
    assert await rest.status("DELETE", other) == 204
    assert await rest.status("DELETE", one) == 204
    assert await rest.get(f"{other}?applied=true") == 0


RATES = {
    "publishRate": {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": -1},
    "dispatchRate": {**RATE, "dispatchThrottlingRateInMsg": 100},
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
}
RATES["subscriptionDispatchRate"] = RATES["dispatchRate"]


@pytest.mark.parametrize("what", RATES)
async def test_a_rate_of_a_topic_goes_before_that_of_its_namespace(what: str, rest: ClusterRest) -> None:
    one, other, value = f"{NAMESPACE}/{what}", f"{TOPIC}/{what}", RATES[what]
    field = next(iter(value))
    for place in (one, other):
        assert await rest.status("GET", place) == 204
        refused: list[Any] = [None, [], {field: "1"}, {field: -2}, {field: 1 << 40}]
        for wrong in refused:
            await rest.refused("POST", place, 412, json=wrong)
    assert await rest.status("POST", one, json=value) == 204
    assert await rest.get(one) == value
    assert await rest.get(f"{other}?applied=true") == value
    assert await rest.status("POST", other, json={**value, field: 7}) == 204
    assert await rest.get(f"{other}?applied=true") == {**value, field: 7}
    for place in (one, other):
        assert await rest.status("DELETE", place) == 204
        assert await rest.status("GET", place) == 204


async def test_a_rate_of_a_namespace_is_stored_as_the_original_stores_it(rest: ClusterRest) -> None:
    for what, value in RATES.items():
        assert await rest.status("POST", f"{NAMESPACE}/{what}", json=value) == 204
    policies = await rest.get(NAMESPACE)
    assert policies["publishMaxMessageRate"] == {"c": RATES["publishRate"]}
    for key in ("topicDispatchRate", "clusterDispatchRate", "subscriptionDispatchRate"):
        assert policies[key] == {"c": RATES["dispatchRate"]}
    assert policies["clusterSubscribeRate"] == {"c": RATES["subscribeRate"]}


async def test_a_subscription_has_a_rate_of_its_own(rest: ClusterRest) -> None:
    place, value = f"{TOPIC}/a%2Fb/dispatchRate", {**RATES["dispatchRate"], "ratePeriodInSecond": 7}
    await rest.ask("POST", f"{TOPIC}/subscriptionDispatchRate", json=RATES["dispatchRate"])
    assert await rest.status("GET", place) == 204
    assert await rest.get(f"{place}?applied=true") == RATES["dispatchRate"]
    assert await rest.status("POST", place, json=value) == 204
    assert await rest.get(place) == value
    assert await rest.get(f"{place}?applied=true") == value
    assert await rest.get(f"{TOPIC}/other/dispatchRate?applied=true") == RATES["dispatchRate"]
    assert await rest.status("DELETE", place) == 204
    assert await rest.status("GET", place) == 204


async def test_a_rate_relative_to_that_of_publishing_is_refused(rest: ClusterRest) -> None:
    value = {**RATES["dispatchRate"], "relativeToPublishRate": True}
    for place in (NAMESPACE, TOPIC):
        assert "relativeToPublishRate" in await rest.refused("POST", f"{place}/dispatchRate", 412, json=value)


AUTO = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}


async def test_rules_of_first_uses_are_set_and_taken_away(rest: ClusterRest) -> None:
    rules = {
        f"{NAMESPACE}/autoTopicCreation": AUTO,
        f"{NAMESPACE}/autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
        f"{NAMESPACE}/maxTopicsPerNamespace": 7,
    }
    for place, value in rules.items():
        assert await rest.status("GET", place) == 204
        await rest.refused("POST", place, 412, json={"allow": True})
        assert await rest.status("POST", place, json=value) == 204
        assert await rest.get(place) == value
    assert await rest.get(f"{TOPIC}/autoSubscriptionCreation?applied=true") == {"allowAutoSubscriptionCreation": False}
    on = {"allowAutoSubscriptionCreation": True}
    assert await rest.status("POST", f"{TOPIC}/autoSubscriptionCreation", json=on) == 204
    assert await rest.get(f"{TOPIC}/autoSubscriptionCreation?applied=true") == on
    for place in rules:
        assert await rest.status("DELETE", place) == 204
        assert await rest.status("GET", place) == 204


@pytest.mark.parametrize(
    "change",
    [
        {"topicType": "round"},
        {"topicType": "non-partitioned"},
        {"defaultNumPartitions": 0},
        {"defaultNumPartitions": None},
        {"defaultNumPartitions": 5000},
        {"allowAutoTopicCreation": "yes"},
    ],
)
async def test_an_invalid_rule_for_topics_is_refused(change: dict[str, Any], rest: ClusterRest) -> None:
    await rest.refused("POST", f"{NAMESPACE}/autoTopicCreation", 412, json={**AUTO, **change})


CAUGHT_UP = {**INACTIVE, "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up"}


async def test_a_rule_about_inactive_topics_is_set_and_taken_away(rest: ClusterRest) -> None:
    one, other = f"{NAMESPACE}/inactiveTopicPolicies", f"{TOPIC}/inactiveTopicPolicies"
    assert (await rest.get(f"{other}?applied=true"))["deleteWhileInactive"] is False
    for place in (one, other):
        assert await rest.status("GET", place) == 204
        for change in ({"inactiveTopicDeleteMode": "x"}, {"maxInactiveDurationSeconds": 0}, {"deleteWhileInactive": 1}):
            await rest.refused("POST", place, 412, json={**CAUGHT_UP, **change})
    assert await rest.status("POST", one, json=CAUGHT_UP) == 204
    assert await rest.get(f"{other}?applied=true") == CAUGHT_UP
    assert await rest.status("POST", other, json={**CAUGHT_UP, "deleteWhileInactive": False}) == 204
    assert await rest.get(f"{other}?applied=true") == {**CAUGHT_UP, "deleteWhileInactive": False}
    for place in (one, other):
        assert await rest.status("DELETE", place) == 204
        assert await rest.status("GET", place) == 204


@pytest.mark.parametrize("whose", [TOPIC, NAMESPACE])
async def test_entry_filters_are_refused_where_policies_may_not_name_any(whose: str, rest: ClusterRest) -> None:
    defaults = rest.policies.defaults
    rest.policies.defaults = Defaults(defaults.logs, replace(defaults.options, allow_override_entry_filters=False))
    why = await rest.refused("POST", f"{whose}/entryFilters", 412, json={"entryFilterNames": "a"})
    assert "allowOverrideEntryFilters" in why
    assert await rest.status("GET", f"{whose}/entryFilters") == 204
