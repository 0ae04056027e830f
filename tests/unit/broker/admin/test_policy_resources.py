"""Limits, rates, quotas and rules over REST, for a namespace and for a topic."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin import policy_resources
from broker.topics.topic_policies.catalog import Policy
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
    assert (await rest.get(f"{other}?applied=true"))["dispatchThrottlingRateInMsg"] == -1
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
