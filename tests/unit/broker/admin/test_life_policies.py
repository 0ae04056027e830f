"""Policies about the life of topics over REST."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker.admin.cluster_fakes import ClusterRest

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/a"
QUOTA = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
AGE = {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}


@pytest.mark.parametrize("whose", [NAMESPACE, TOPIC])
async def test_a_quota_of_each_type_is_set_and_taken_away_alone(whose: str, rest: ClusterRest) -> None:
    assert await rest.get(f"{whose}/backlogQuotaMap") == {}
    assert await rest.status("POST", f"{whose}/backlogQuota", json=QUOTA) == 204
    assert await rest.status("POST", f"{whose}/backlogQuota?backlogQuotaType=message_age", json=AGE) == 204
    assert await rest.get(f"{whose}/backlogQuotaMap") == {"destination_storage": QUOTA, "message_age": AGE}
    assert await rest.status("DELETE", f"{whose}/backlogQuota") == 204
    assert await rest.get(f"{whose}/backlogQuotaMap") == {"message_age": AGE}


async def test_the_applied_quotas_of_a_topic_are_its_own_its_namespaces_and_the_brokers_by_type(
    rest: ClusterRest,
) -> None:
    await rest.ask("POST", f"{NAMESPACE}/backlogQuota", json=QUOTA)
    await rest.ask("POST", f"{TOPIC}/backlogQuota?backlogQuotaType=message_age", json=AGE)
    found = await rest.get(f"{TOPIC}/backlogQuotaMap?applied=true")
    assert found == {"destination_storage": QUOTA, "message_age": AGE}
    await rest.ask("DELETE", f"{NAMESPACE}/backlogQuota")
    found = await rest.get(f"{TOPIC}/backlogQuotaMap?applied=true")
    assert found["destination_storage"] == {"limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}


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
    "dispatchRate": {
        "dispatchThrottlingRateInMsg": 100,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    },
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


INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": True,
}


async def test_a_rule_about_inactive_topics_is_set_and_taken_away(rest: ClusterRest) -> None:
    one, other = f"{NAMESPACE}/inactiveTopicPolicies", f"{TOPIC}/inactiveTopicPolicies"
    assert (await rest.get(f"{other}?applied=true"))["deleteWhileInactive"] is False
    for place in (one, other):
        assert await rest.status("GET", place) == 204
        for change in ({"inactiveTopicDeleteMode": "x"}, {"maxInactiveDurationSeconds": 0}, {"deleteWhileInactive": 1}):
            await rest.refused("POST", place, 412, json={**INACTIVE, **change})
    assert await rest.status("POST", one, json=INACTIVE) == 204
    assert await rest.get(f"{other}?applied=true") == INACTIVE
    assert await rest.status("POST", other, json={**INACTIVE, "deleteWhileInactive": False}) == 204
    assert await rest.get(f"{other}?applied=true") == {**INACTIVE, "deleteWhileInactive": False}
    for place in (one, other):
        assert await rest.status("DELETE", place) == 204
        assert await rest.status("GET", place) == 204
