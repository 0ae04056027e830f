"""Namespaces and bundles over REST"""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest
import trio

from broker.ownership.bundles import even
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.unit.broker.admin.cluster_fakes import ME, OTHER, THERE, ClusterRest, on_cluster

ROOT = "/admin/v2/namespaces"
DEFAULT = f"{ROOT}/public/default"
FIRST = "0x00000000_0x40000000"
BOUNDARIES = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]


async def test_a_namespace_is_made_listed_and_deleted(rest: ClusterRest) -> None:
    rest.administration.names = []
    assert await rest.status("PUT", f"{ROOT}/public/other") == 204
    assert await rest.get(f"{ROOT}/public") == ["public/default", "public/other"]
    policies = await rest.get(f"{ROOT}/public/other")
    assert policies["replication_clusters"] == ["c"]
    assert policies["bundles"] == {"boundaries": BOUNDARIES, "numBundles": 4}
    assert "exists" in await rest.refused("PUT", f"{ROOT}/public/other", 409)
    assert await rest.status("DELETE", f"{ROOT}/public/other") == 204
    assert await rest.get(f"{ROOT}/public") == ["public/default"]
    assert await rest.status("GET", f"{ROOT}/public/other") == 404


async def test_a_namespace_is_made_with_as_many_bundles_and_the_policies_that_are_asked_for(rest: ClusterRest) -> None:
    body = {
        "bundles": {"numBundles": 2},
        "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        "message_ttl_in_seconds": 0,
        "encryption_required": False,
        "persistence": None,
    }
    assert await rest.status("PUT", f"{ROOT}/public/other", json=body) == 204
    found = await rest.get(f"{ROOT}/public/other")
    assert found["bundles"] == {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
    assert found["retention_policies"] == body["retention_policies"]
    assert found["message_ttl_in_seconds"] == 0
    assert "persistence" not in found


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ({"bundles": {"numBundles": -1}}, 412),
        ({"bundles": {"numBundles": 1 << 30}}, 412),
        ({"bundles": {"numBundles": True}}, 412),
        ({"bundles": 4}, 412),
        ({"bundles": {"boundaries": ["0x00000000", "0x1"], "numBundles": 1}}, 412),
        ({"replication_clusters": ["mars"]}, 403),
        ({"encryption_required": True}, 412),
        ({"message_ttl_in_seconds": -5}, 412),
        ({"message_ttl_in_seconds": "5"}, 412),
        ({"subscription_expiration_time_minutes": -1}, 412),
        ({"deduplicationEnabled": "yes"}, 412),
        ({"deduplicationSnapshotIntervalSeconds": -1}, 412),
        ({"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}}, 412),
        ({"persistence": {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}}, 412),
    ],
)
async def test_a_namespace_that_cannot_be_is_refused(body: Any, status: int, rest: ClusterRest) -> None:
    await rest.refused("PUT", f"{ROOT}/public/other", status, json=body)
    assert await rest.get(f"{ROOT}/public") == ["public/default"]


async def test_a_policy_that_would_not_be_obeyed_is_named_when_a_namespace_is_made_with_it(rest: ClusterRest) -> None:
    body = {
        "encryption_required": True,
        "offload_policies": {"managedLedgerOffloadDriver": "aws-s3"},
        "backlog_quota_map": {"destination_storage": {"limit": 1, "policy": "producer_exception"}},
        "properties": {"a": "b"},
    }
    why = await rest.refused("PUT", f"{ROOT}/public/other", 412, json=body)
    assert "encryption_required" in why
    assert "offload_policies (there is no tiered storage)" in why
    assert "backlog_quota_map" not in why
    assert "properties" not in why


async def test_what_is_of_no_tenant_or_namespace_is_not_found(rest: ClusterRest) -> None:
    assert "tenant nobody" in await rest.refused("GET", f"{ROOT}/nobody", 404)
    assert "tenant nobody" in await rest.refused("PUT", f"{ROOT}/nobody/x", 404)
    for path in ("", "/bundles", "/retention", "/persistence"):
        assert await rest.status("GET", f"{ROOT}/public/nowhere{path}") == 404
    assert "no bundle" in await rest.refused("PUT", f"{DEFAULT}/0x00000000_0x40000001/unload", 404)
    assert await rest.status("PUT", f"{DEFAULT}/x/split") == 404


async def test_a_namespace_with_topics_goes_only_by_force_and_with_them() -> None:
    async def kept(rest: ClusterRest) -> None:
        assert "non empty" in await rest.refused("DELETE", DEFAULT, 409)
        assert "forced" in await rest.refused("DELETE", f"{DEFAULT}?force=true", 405)
        assert await rest.get(f"{ROOT}/public") == ["public/default"]

    async with on_cluster() as rest:
        await kept(rest)

    async def gone(rest: ClusterRest) -> None:
        rest.administration.partitioned_names = ["persistent://public/default/p"]
        await rest.store.create("/admin/topic-policies/local/public/default/persistent/a", b"{}", make_parents=True)
        # What the last partitioned topic leaves.
        await rest.store.create("/admin/partitioned-topics/public/default/non-persistent", b"", make_parents=True)
        assert await rest.status("DELETE", f"{DEFAULT}?force=true") == 204
        assert ("delete_partitioned_topic", "persistent://public/default/p", True) in rest.administration.asked
        assert ("delete_wherever", "persistent://public/default/a") in rest.administration.asked
        assert await rest.get(f"{ROOT}/public") == []
        assert await rest.store.get("/admin/topic-policies/local/public/default/persistent") is None

    async with on_cluster(force_delete_namespace=True) as rest:
        await gone(rest)


async def test_non_persistent_topics_keep_a_namespace_and_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = "non-persistent://public/default/n"
    async with on_cluster(force_delete_namespace=True) as rest:
        rest.administration.names = []

        async def names(namespace: NamespaceName) -> list[TopicName]:
            return [TopicName.parse(direct)]

        monkeypatch.setattr(rest.administration.direct, "names_everywhere", names)
        rest.administration.partitioned_names = ["non-persistent://public/default/p"]
        assert "non empty" in await rest.refused("DELETE", DEFAULT, 409)
        assert await rest.status("DELETE", f"{DEFAULT}?force=true") == 204
        assert ("delete_partitioned_topic", "non-persistent://public/default/p", True) in rest.administration.asked
        assert ("delete_wherever", direct) in rest.administration.asked


async def test_what_a_broker_made_as_the_namespace_went_is_deleted_when_nobody_has_its_bundles() -> None:
    async def given_up(rest: ClusterRest, bundle: str) -> None:
        watch = rest.store.watch("/admin/policies/public/default")
        await watch.next()
        watch.close()
        await trio.sleep(0.2)
        await rest.store.delete(f"/namespace/{bundle}")

    async with on_cluster(force_delete_namespace=True) as rest:
        bundle = f"public/default/{FIRST}"
        await rest.own(bundle, OTHER)
        deleted = rest.administration.delete_left_over

        async def left_over(namespace: NamespaceName) -> None:
            assert await rest.store.get(f"/namespace/{bundle}") is None, "its owner may be making a topic yet"
            await deleted(namespace)

        with patch.object(rest.administration, "delete_left_over", left_over):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(given_up, rest, bundle)
                assert await rest.status("DELETE", f"{DEFAULT}?force=true") == 204
        assert rest.administration.asked[-1] == ("delete_left_over", "public/default")


async def test_clients_that_make_their_topics_anew_again_and_again_do_not_keep_a_namespace_from_being_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_cluster(force_delete_namespace=True) as rest:
        administration, log = rest.administration, "/managed-ledgers/public/default/persistent/a"
        delete = administration.delete_wherever
        under_way = True

        async def made_anew(name: TopicName) -> None:
            """Delete the topic; its clients make it anew, also once after the mark, when that was under way."""
            nonlocal under_way
            await delete(name)
            node = await rest.store.get("/admin/policies/public/default")
            assert node is not None, "the namespace goes last"
            refused = json.loads(node.value).get("deleted")
            if await rest.store.get(log) is not None:
                await rest.store.delete(log)
            if under_way or not refused:
                await rest.store.create(log, make_parents=True)
            under_way = not refused

        monkeypatch.setattr(administration, "delete_wherever", made_anew)
        assert await rest.status("DELETE", f"{DEFAULT}?force=true") == 204
        assert await rest.store.get("/managed-ledgers/public/default") is None


async def test_bundles_are_those_that_count_now(rest: ClusterRest) -> None:
    assert await rest.get(f"{DEFAULT}/bundles") == {"boundaries": BOUNDARIES, "numBundles": 4}
    path = "/lookup/v2/topic/persistent/public/default/orders/bundle"
    response = await rest.ask("GET", path)
    assert (response.status_code, response.text) == (200, "0x80000000_0xc0000000")


async def test_a_bundle_is_unloaded_by_its_owner(rest: ClusterRest) -> None:
    await rest.own(f"public/default/{FIRST}", ME)
    assert await rest.status("PUT", f"{DEFAULT}/{FIRST}/unload") == 204
    assert rest.ownership.asked == [("unload", f"public/default/{FIRST}", None)]


async def test_a_bundle_of_another_broker_is_asked_for_there_with_the_same_path_and_query(rest: ClusterRest) -> None:
    await rest.own(f"public/default/{FIRST}", OTHER)
    await rest.store.create("/loadbalance/brokers/b:8080", b"{}", make_parents=True)
    where = f"{DEFAULT}/{FIRST}/unload?destinationBroker=b%3A8080"
    assert await rest.sent_to("PUT", where) == f"http://other:8080{where}"
    assert rest.ownership.asked == []


async def test_a_bundle_that_nobody_has_is_unloaded_already(rest: ClusterRest) -> None:
    assert await rest.status("PUT", f"{DEFAULT}/{FIRST}/unload") == 204
    assert await rest.status("PUT", f"{DEFAULT}/unload") == 204
    assert rest.ownership.asked == []


async def test_a_bundle_goes_to_the_broker_that_is_named_if_there_is_one(rest: ClusterRest) -> None:
    await rest.own(f"public/default/{FIRST}", ME)
    await rest.store.create("/loadbalance/brokers/b:8080", b"{}", make_parents=True)
    assert await rest.status("PUT", f"{DEFAULT}/{FIRST}/unload?destinationBroker=b:8080") == 204
    assert "no broker" in await rest.refused("PUT", f"{DEFAULT}/{FIRST}/unload?destinationBroker=x:1", 412)
    assert rest.ownership.asked == [("unload", f"public/default/{FIRST}", "b:8080")]


async def test_a_bundle_that_nobody_has_is_taken_and_goes_to_the_broker_that_is_named(rest: ClusterRest) -> None:
    await rest.store.create("/loadbalance/brokers/b:8080", b"{}", make_parents=True)
    where = f"{DEFAULT}/{FIRST}/unload?destinationBroker=b:8080"
    assert await rest.status("PUT", where) == 204
    [(_, looked_up, _), unloaded] = rest.ownership.asked
    assert unloaded == ("unload", f"public/default/{FIRST}", "b:8080")
    assert looked_up.startswith("persistent://public/default/")
    rest.ownership.found = THERE
    assert (await rest.sent_to("PUT", where)).startswith(f"{THERE.web_url}{DEFAULT}/{FIRST}/unload?")


async def test_a_namespace_is_unloaded_bundle_by_bundle(rest: ClusterRest) -> None:
    await rest.own(f"public/default/{FIRST}", ME)
    await rest.own("public/default/0x80000000_0xc0000000", ME)
    assert await rest.status("PUT", f"{DEFAULT}/unload") == 204
    bundles = [f"public/default/{FIRST}", "public/default/0x80000000_0xc0000000"]
    assert rest.ownership.asked == [("unload", bundle, None) for bundle in bundles]


async def test_where_there_is_one_broker_unloading_closes_the_topics_of_the_bundle_or_of_all() -> None:
    async with on_cluster(broker_id="") as rest:
        name = TopicName.parse("persistent://public/default/a")
        [bundle] = [each for each in even(name.namespace_name, 4).all() if each.has(name)]
        for each in even(name.namespace_name, 4).all():
            assert await rest.status("PUT", f"{DEFAULT}/{each.range}/unload") == 204
            unloaded = [asked for asked in rest.administration.asked if asked[0] == "unload_topic"]
            assert unloaded == ([("unload_topic", name.full)] if each.low >= bundle.low else [])
        assert await rest.status("PUT", f"{DEFAULT}/unload") == 204
        assert rest.administration.asked[-1] == ("unload_topic", name.full)
        assert rest.ownership.asked == []


async def test_a_bundle_is_split_by_who_has_it_or_should(rest: ClusterRest) -> None:
    where = f"{DEFAULT}/{FIRST}/split"
    assert await rest.status("PUT", f"{where}?unload=true") == 204
    positions = [1, 2]
    query = "?splitAlgorithmName=specified_positions_divide"
    assert await rest.status("PUT", f"{where}{query}", json=positions) == 204
    assert [each for each in rest.ownership.asked if each[0] == "split"] == [
        ("split", f"public/default/{FIRST}", "range_equally_divide", True, ()),
        ("split", f"public/default/{FIRST}", "specified_positions_divide", False, (1, 2)),
    ]
    rest.ownership.found = THERE
    assert await rest.sent_to("PUT", where) == f"http://other:8080{where}"
    assert "algorithm" in await rest.refused("PUT", f"{where}?splitAlgorithmName=halves", 412)
    assert await rest.status("PUT", where, json=["a"]) == 400


async def test_a_namespace_that_asks_for_more_bookies_than_there_can_be_is_refused() -> None:
    body = {"persistence": {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}}
    async with on_cluster(ensemble_max=1) as rest:
        await rest.refused("PUT", f"{ROOT}/public/other", 412, json=body)
        assert await rest.get(f"{ROOT}/public") == ["public/default"]


async def test_where_there_is_one_broker_a_bundle_is_split_as_the_list_of_bundles_shows() -> None:
    async with on_cluster(broker_id="") as rest:
        namespace = "/admin/v2/namespaces/public/default"
        before = await rest.get(f"{namespace}/bundles")
        assert await rest.status("PUT", f"{namespace}/0x40000000_0x80000000/split") == 204
        after = await rest.get(f"{namespace}/bundles")
        assert sorted(set(after["boundaries"]) - set(before["boundaries"])) == ["0x60000000"]
        assert after["numBundles"] == before["numBundles"] + 1
        await rest.refused("PUT", f"{namespace}/0x40000000_0x80000000/split", 404)
        flow = "splitAlgorithmName=flow_or_qps_equally_divide"
        assert "measures no rates" in await rest.refused("PUT", f"{namespace}/0x40000000_0x60000000/split?{flow}", 412)
