"""Persistence and retention over REST, for a namespace and for a topic."""

from __future__ import annotations

from typing import Any

import pytest

from quire.wire.pulsar.names import TopicName
from tests.support.nodes import node_at
from tests.unit.broker.admin.cluster_fakes import HERE, THERE, ClusterRest, on_cluster

A = TopicName.parse("persistent://public/default/a")

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/a"
COPIES = {
    "bookkeeperEnsemble": 3,
    "bookkeeperWriteQuorum": 3,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 0.0,
}
KEPT = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}
DELAYED = {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 60_000}


@pytest.mark.parametrize(
    ("what", "value"), [("persistence", COPIES), ("retention", KEPT), ("delayedDelivery", DELAYED)]
)
@pytest.mark.parametrize("whose", [NAMESPACE, TOPIC])
async def test_what_is_set_is_read_back_until_it_is_deleted(
    whose: str, what: str, value: dict[str, Any], rest: ClusterRest
) -> None:
    assert await rest.status("GET", f"{whose}/{what}") == 204
    assert await rest.status("POST", f"{whose}/{what}", json=value) == 204
    assert await rest.get(f"{whose}/{what}") == value
    assert await rest.status("DELETE", f"{whose}/{what}") == 204
    assert await rest.status("GET", f"{whose}/{what}") == 204
    assert await rest.status("DELETE", f"{whose}/{what}") == 204


async def test_the_nodes_hold_the_names_of_the_original_and_keep_what_is_not_ours(rest: ClusterRest) -> None:
    await rest.store.put("/admin/policies/public/default", b'{"unheard_of":{"a":1}}', -1)
    topic = "/admin/topic-policies/local/public/default/persistent/a"
    await rest.store.create(topic, b'{"isGlobal":false,"maxMessageSize":7}', make_parents=True)
    for whose in (NAMESPACE, TOPIC):
        assert await rest.status("POST", f"{whose}/retention", json=KEPT) == 204
    node = await node_at(rest.store, "/admin/policies/public/default")
    assert node.value == (
        b'{"unheard_of":{"a":1},"retention_policies":{"retentionTimeInMinutes":10,"retentionSizeInMB":100}}'
    )
    assert await rest.store.get(topic) is None, "moved to the log"
    assert await rest.policies.get(A) == {
        "isGlobal": False,
        "maxMessageSize": 7,
        "retentionPolicies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100},
    }


async def test_what_holds_is_the_topics_then_the_namespaces_then_the_brokers(rest: ClusterRest) -> None:
    async def holds() -> tuple[Any, Any]:
        found = await rest.get(f"{TOPIC}/persistence?applied=true")
        kept = await rest.get(f"{TOPIC}/retention?applied=true")
        return found["bookkeeperEnsemble"], kept["retentionSizeInMB"]

    assert await holds() == (2, 0)
    await rest.ask("POST", f"{NAMESPACE}/persistence", json=COPIES)
    await rest.ask("POST", f"{NAMESPACE}/retention", json=KEPT)
    assert await holds() == (3, 100)
    await rest.ask("POST", f"{TOPIC}/persistence", json={**COPIES, "bookkeeperEnsemble": 4})
    await rest.ask("POST", f"{TOPIC}/retention", json={**KEPT, "retentionSizeInMB": -1})
    assert await holds() == (4, -1)
    await rest.ask("DELETE", f"{TOPIC}/persistence")
    await rest.ask("DELETE", f"{NAMESPACE}/retention")
    assert await holds() == (3, -1)


async def test_delayed_delivery_of_a_topic_is_stored_in_the_originals_fields_each_of_which_wins(
    rest: ClusterRest,
) -> None:
    async def holds() -> Any:
        return await rest.get(f"{TOPIC}/delayedDelivery?applied=true")

    topic = "/admin/topic-policies/local/public/default/persistent/a"
    await rest.store.create(topic, b'{"isGlobal":false,"maxMessageSize":7}', make_parents=True)
    assert await holds() == {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0}
    await rest.ask("POST", f"{NAMESPACE}/delayedDelivery", json={**DELAYED, "active": False})
    assert await holds() == {**DELAYED, "active": False}
    await rest.ask("POST", f"{TOPIC}/delayedDelivery", json={**DELAYED, "tickTime": 7})
    assert await holds() == {**DELAYED, "tickTime": 7}
    assert await rest.policies.get(A) == {
        "isGlobal": False,
        "maxMessageSize": 7,
        "delayedDeliveryEnabled": True,
        "delayedDeliveryTickTimeMillis": 7,
        "delayedDeliveryMaxDelayInMillis": 60000,
    }
    await rest.ask("DELETE", f"{TOPIC}/delayedDelivery")
    assert await rest.policies.get(A) == {"isGlobal": False, "maxMessageSize": 7}
    assert await holds() == {**DELAYED, "active": False}
    node = await node_at(rest.store, "/admin/policies/public/default")
    assert b'"delayed_delivery_policies":{"tickTime":500,"active":false,"maxDeliveryDelayInMillis":60000}' in node.value


@pytest.mark.parametrize("whose", [NAMESPACE, TOPIC])
@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("delayedDelivery", None),
        ("delayedDelivery", {**DELAYED, "active": 1}),
        ("delayedDelivery", {**DELAYED, "tickTime": -1}),
        ("delayedDelivery", {**DELAYED, "tickTime": 1 << 40}),
        ("delayedDelivery", {**DELAYED, "maxDeliveryDelayInMillis": "1s"}),
        ("persistence", None),
        ("persistence", []),
        ("persistence", {**COPIES, "bookkeeperEnsemble": 2}),
        ("persistence", {**COPIES, "bookkeeperAckQuorum": 4, "bookkeeperEnsemble": 4}),
        ("persistence", {**COPIES, "bookkeeperAckQuorum": 0}),
        ("persistence", {**COPIES, "bookkeeperEnsemble": 6}),
        ("persistence", {**COPIES, "bookkeeperEnsemble": "3"}),
        ("persistence", {**COPIES, "managedLedgerMaxMarkDeleteRate": "x"}),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}),
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 0}),
        ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": -1}),
        ("retention", {"retentionTimeInMinutes": 1}),
        ("retention", {"retentionTimeInMinutes": True, "retentionSizeInMB": 1}),
    ],
)
async def test_a_value_that_cannot_be_is_refused_and_changes_nothing(
    whose: str, what: str, value: Any, rest: ClusterRest
) -> None:
    options = {} if value is None else {"json": value}
    await rest.refused("POST", f"{whose}/{what}", 412, **options)
    assert await rest.status("GET", f"{whose}/{what}") == 204


async def test_policies_of_a_topic_that_is_not_there_are_not_found(rest: ClusterRest) -> None:
    nowhere = "/admin/v2/persistent/public/default/nowhere"
    assert await rest.status("GET", f"{nowhere}/retention") == 404
    assert await rest.status("POST", f"{nowhere}/retention", json=KEPT) == 404
    rest.administration.partition_count = 2
    assert await rest.status("POST", f"{nowhere}/retention", json=KEPT) == 204
    assert await rest.get(f"{nowhere}/retention") == KEPT


async def test_policies_for_all_clusters_count_behind_those_for_this_one(rest: ClusterRest) -> None:
    for_all = f"{TOPIC}/retention?isGlobal=true"
    assert await rest.status("POST", for_all, json=KEPT) == 204
    assert await rest.status("GET", f"{TOPIC}/retention") == 204
    assert await rest.get(for_all) == KEPT
    assert await rest.get(f"{TOPIC}/retention?applied=true") == KEPT
    less = {**KEPT, "retentionSizeInMB": 1}
    assert await rest.status("POST", f"{TOPIC}/retention", json=less) == 204
    assert (await rest.get(for_all), await rest.get(f"{TOPIC}/retention?applied=true")) == (KEPT, less)
    assert await rest.status("DELETE", f"{TOPIC}/retention") == 204
    assert await rest.get(f"{TOPIC}/retention?applied=true") == KEPT
    assert await rest.status("DELETE", for_all) == 204
    assert await rest.status("GET", for_all) == 204


async def test_another_broker_changes_what_is_in_its_log(rest: ClusterRest) -> None:
    rest.ownership.found = THERE
    there = f"http://other:8080{TOPIC}/retention?x=1"
    assert await rest.sent_to("POST", f"{TOPIC}/retention?x=1", json=KEPT) == there
    assert rest.ownership.asked[-1] == ("lookup", "persistent://public/default/__change_events", False)
    assert await rest.status("DELETE", f"{TOPIC}/retention") == 204, "there is nothing to delete"
    rest.ownership.found = HERE
    assert await rest.status("POST", f"{TOPIC}/retention", json=KEPT) == 204
    rest.ownership.found = THERE
    assert await rest.get(f"{TOPIC}/retention") == KEPT
    assert await rest.sent_to("DELETE", f"{TOPIC}/retention?x=1") == there


async def test_other_brokers_ask_what_the_log_says_and_have_policies_deleted(rest: ClusterRest) -> None:
    log = "/admin/v2/persistent/public/default/__change_events/quireTopicPolicies"
    assert await rest.status("POST", f"{TOPIC}/retention", json=KEPT) == 204
    fields = {"isGlobal": False, "retentionPolicies": KEPT}
    assert await rest.get(log) == {
        "whole": True,
        "upto": "1:0",
        "policies": {"persistent://public/default/a": fields},
        "more": False,
    }
    assert await rest.get(f"{log}?since=1:0") == {"whole": False, "upto": "1:0", "policies": {}, "more": False}
    await rest.refused("GET", f"{log}?since=x", 400)
    assert await rest.status("DELETE", f"{TOPIC}/quireTopicPolicies") == 204
    assert await rest.status("GET", f"{TOPIC}/retention") == 204
    assert (await rest.get(f"{log}?since=1:0"))["policies"] == {"persistent://public/default/a": None}


@pytest.mark.parametrize("whose", [NAMESPACE, TOPIC])
async def test_where_there_is_one_bookie_more_copies_are_refused_at_once_and_not_by_the_next_ledger(whose: str) -> None:
    async with on_cluster(ensemble_max=1) as rest:
        assert ("above the number of bookies here, 1") in await rest.refused(
            "POST", f"{whose}/persistence", 412, json=COPIES
        )
        assert await rest.status("GET", f"{whose}/persistence") == 204
        one = dict.fromkeys(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), 1)
        assert await rest.status("POST", f"{whose}/persistence", json=one) == 204
        assert await rest.status("POST", f"{whose}/retention", json=KEPT) == 204
