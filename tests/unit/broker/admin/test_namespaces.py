"""Namespaces and bundles over REST"""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest
import trio

from broker.ownership.bundles import even
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.unit.broker.admin.cluster_fakes import ME, OTHER, ClusterRest, on_cluster

DEFAULT = "/admin/v2/namespaces/public/default"
ADMIN_NAMESPACES = "/admin/v2/namespaces"
FIRST = "0x00000000_0x40000000"


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


async def test_a_bundle_is_given_up_by_its_owner_if_it_has_no_topics_or_by_force() -> None:
    async with on_cluster() as rest:
        name = TopicName.parse(rest.administration.names[0])
        bundles = even(NamespaceName.parse("public/default"), 4)
        full, empty = bundles.find(name), next(each for each in bundles.all() if not each.has(name))
        asked = rest.ownership.asked
        assert await rest.status("DELETE", f"{DEFAULT}/{empty.range}") == 204
        assert asked == [], "it has no owner"
        await rest.own(str(empty), ME)
        await rest.own(str(full), ME)
        assert await rest.status("DELETE", f"{DEFAULT}/{empty.range}") == 204
        assert asked == [("unload", str(empty), None)]
        assert "non empty bundle" in await rest.refused("DELETE", f"{DEFAULT}/{full.range}", 409)
        assert len(asked) == 1
        assert await rest.status("DELETE", f"{DEFAULT}/{full.range}?force=true") == 204
        assert asked[1:] == [("unload", str(full), None)]
        assert (await rest.get(f"{DEFAULT}/bundles"))["numBundles"] == 4
        await rest.refused("DELETE", f"{DEFAULT}/0x00000000_0x10000000", 412)
        await rest.refused("DELETE", f"{ADMIN_NAMESPACES}/public/nowhere/{FIRST}", 404)
        assert await rest.status("GET", f"{DEFAULT}/{FIRST}") == 501, "other methods are not served"
    async with on_cluster() as rest:
        await rest.own(f"public/default/{FIRST}", OTHER)
        place = await rest.sent_to("DELETE", f"{DEFAULT}/{FIRST}?force=true")
        assert place == f"http://other:8080{DEFAULT}/{FIRST}?force=true"
    async with on_cluster(broker_id="") as rest:
        name = TopicName.parse(rest.administration.names[0])
        where = even(NamespaceName.parse("public/default"), 4).find(name)
        assert await rest.status("DELETE", f"{DEFAULT}/{where.range}?force=true") == 204
        assert ("unload_topic", name.full) in rest.administration.asked


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


async def test_the_name_of_an_anti_affinity_group_is_taken_and_answered_bare_as_clients_of_the_original_have_it() -> (
    None
):
    place = f"{DEFAULT}/antiAffinity"
    async with on_cluster() as rest:
        declared = {"content-type": "application/json"}
        for body, stored in ((b"pair", "pair"), (b'"other one"', "other one"), (b"007", "007")):
            assert await rest.status("POST", place, content=body, headers=declared) == 204
            assert (await rest.ask("GET", place)).text == stored
        await rest.refused("POST", place, 400, content=b"two words", headers=declared)
        await rest.refused("POST", place, 412, content=b"{}", headers=declared)
