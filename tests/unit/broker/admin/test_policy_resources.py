"""Limits, rates, quotas and rules over REST, for a namespace and for a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.admin import policy_resources
from broker.topics.topic_policies.catalog import Policy
from broker.topics.topic_policies.known import Defaults
from quire.metadata.store import ANY_VERSION
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
    assert await rest.status("GET", url) == 200
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
        assert await rest.status("GET", url) == 200
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
        assert await rest.status("GET", url) == 200


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
        assert await rest.status("GET", place) == 200
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
        assert await rest.status("GET", place) == 200
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
        assert await rest.status("GET", place) == 200


@pytest.mark.parametrize("whose", [TOPIC, NAMESPACE])
async def test_entry_filters_are_refused_where_policies_may_not_name_any(whose: str, rest: ClusterRest) -> None:
    defaults = rest.policies.defaults
    rest.policies.defaults = Defaults(defaults.logs, replace(defaults.options, allow_override_entry_filters=False))
    why = await rest.refused("POST", f"{whose}/entryFilters", 412, json={"entryFilterNames": "a"})
    assert "allowOverrideEntryFilters" in why
    assert await rest.status("GET", f"{whose}/entryFilters") == 200


async def test_filters_of_a_namespace_that_was_taken_over_hold_only_where_they_may_override(rest: ClusterRest) -> None:
    stored = b'{"entryFilters":{"entryFilterNames":"theirs"}}'
    await rest.store.put("/admin/policies/public/default", stored, ANY_VERSION)
    applied = f"{TOPIC}/entryFilters?applied=true"
    assert await rest.get(applied) == {"entryFilterNames": "theirs"}
    defaults = rest.policies.defaults
    options = replace(defaults.options, allow_override_entry_filters=False, entry_filter_names=("ours",))
    rest.policies.defaults = Defaults(defaults.logs, options)
    assert await rest.get(applied) == {"entryFilterNames": "ours"}
    assert await rest.get(f"{NAMESPACE}/entryFilters") == {"entryFilterNames": "theirs"}, "it is shown as it is stored"
