"""The begin of a restoration obeys the rules of a new topic (`broker.admin.backup.topics`)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.admin.properties import BYTES_MAX
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import entry, metadata
from tests.support.waiting import until
from tests.unit.broker.peers import in_broker
from tests.unit.broker.rest import rest_of

BASE = "/admin/v2/persistent/public/default"


def begin(**properties: str) -> dict[str, Any]:
    return {"json": {"backup": "b", "properties": properties}}


async def test_a_restore_makes_no_more_topics_than_the_namespace_may_have() -> None:
    async with in_broker(topics_per_namespace_max=1) as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        reason = await rest.refused("PUT", f"{BASE}/b/quireBackup", 412, **begin())
        assert "maxTopicsPerNamespace" in reason
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200, "begun before: it goes on"


async def test_a_restore_binds_no_topic_to_another_and_has_no_larger_properties_than_others() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        for given in (
            {"PULSAR.SHADOW_SOURCE": "persistent://other/ns/secrets"},
            {"migrated": "true"},
            {"a": "x" * BYTES_MAX},
        ):
            await rest.refused("PUT", f"{BASE}/a/quireBackup", 412, **begin(**given))
        assert await rest.status("GET", f"{BASE}/a/quireBackup") == 404, "nothing was made"


async def test_entries_and_places_are_taken_by_a_topic_that_is_being_restored_only() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/a", json={}) == 204
        await rest.refused("PUT", f"{BASE}/a/quireBackup", 409, **begin())
        await rest.refused("POST", f"{BASE}/a/quireEntries?expected=0", 409, content=b"\0\0\0\1c")
        await rest.refused("PUT", f"{BASE}/a/subscription/s/quireState", 409, json={"acknowledged": 0})
        await rest.refused("POST", f"{BASE}/a/quireBackup", 409, json={"entries": 0})
        assert await rest.status("PUT", f"{BASE}/b/quireBackup", **begin()) == 200
        await rest.refused("POST", f"{BASE}/b/quireEntries?expected=1", 503, content=body(entry()))
        another = await rest.refused("PUT", f"{BASE}/b/quireBackup", 409, json={"backup": "c", "properties": {}})
        assert "another backup" in another


def parts(count: int, backup: str = "b") -> dict[str, Any]:
    return {"json": {"backup": backup, "partitions": count}}


async def test_partitions_count_once_against_the_topics_of_a_namespace() -> None:
    async with in_broker(topics_per_namespace_max=3) as room, rest_of(room, cluster=True) as rest:
        reason = await rest.refused("PUT", f"{BASE}/large/quireBackup", 412, **parts(4))
        assert "maxTopicsPerNamespace" in reason
        assert await rest.get("/admin/v2/persistent/public/default") == [], "nothing was made"
        for _ in range(2):  # the second time it goes on
            assert await rest.status("PUT", f"{BASE}/z/quireBackup", **parts(3)) == 200
            for index in range(3):
                path = f"{BASE}/z-partition-{index}/quireBackup"
                assert await rest.status("PUT", path, **begin(made=str(index))) == 200
        assert (await rest.get(f"{BASE}/z-partition-1/quireBackup"))["properties"] == {"made": "1"}
        await rest.refused("PUT", f"{BASE}/z/quireBackup", 409, **parts(2))
        await rest.refused("PUT", f"{BASE}/z/quireBackup", 409, **parts(3, "another"))


async def test_a_name_of_a_partition_is_for_a_partition_of_the_topic_that_is_restored() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        assert "cannot be one of them" in await rest.refused("PUT", f"{BASE}/z-partition-0/quireBackup", 412, **begin())
        await rest.refused("PUT", f"{BASE}/z-partition-0/quireBackup", 412, **parts(2))
        assert await rest.get("/admin/v2/persistent/public/default") == [], "nothing was made"
        assert await rest.status("PUT", f"{BASE}/z/partitions", json=2) == 204
        await rest.refused("PUT", f"{BASE}/z-partition-0/quireBackup", 409, **begin())
        await rest.refused("PUT", f"{BASE}/z-partition-2/quireBackup", 412, **begin())
        await rest.refused("PUT", f"{BASE}/z/quireBackup", 409, **parts(2))


async def test_a_restoration_that_is_given_up_is_deleted_as_any_topic_with_all_its_ledgers() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        stored = room.cluster.ledgers.stored
        assert not stored
        assert await rest.status("PUT", f"{BASE}/z/quireBackup", **parts(2)) == 200
        for name in ("z-partition-0", "a"):
            assert await rest.status("PUT", f"{BASE}/{name}/quireBackup", **begin()) == 200
            assert await rest.status("POST", f"{BASE}/{name}/quireEntries?expected=0", content=body(entry())) == 200
        assert len(stored) >= 2
        assert await rest.status("DELETE", f"{BASE}/z/partitions") == 204
        assert await rest.status("DELETE", f"{BASE}/a") == 204
        assert await rest.get("/admin/v2/persistent/public/default") == []
        await until(lambda: not stored)


RESTORES = "/admin/v2/quireRestores"


async def test_restorations_that_are_not_complete_are_listed_until_they_are() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        assert await rest.get(RESTORES) == []
        assert await rest.status("PUT", f"{BASE}/z/quireBackup", **parts(2)) == 200
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        begun = {each["topic"][-1]: each for each in await rest.get(RESTORES)}
        assert {name: (each["backup"], each["unfinished"]) for name, each in begun.items()} == {
            "a": ("b", ["persistent://public/default/a"]),
            "z": ("b", [f"persistent://public/default/z-partition-{index}" for index in range(2)]),
        }
        await trio.sleep(60)
        assert await rest.status("PUT", f"{BASE}/z-partition-1/quireBackup", **begin()) == 200
        assert await rest.status("POST", f"{BASE}/a/quireBackup", json={"entries": 0}) == 204
        assert await rest.status("POST", f"{BASE}/z-partition-1/quireBackup", json={"entries": 0}) == 204
        [left] = await rest.get(RESTORES)
        assert left["unfinished"] == ["persistent://public/default/z-partition-0"]
        assert left["begunMs"] == begun["z"]["begunMs"] == left["touchedMs"] - 60_000
        assert await rest.status("POST", f"{BASE}/z-partition-0/quireBackup", json={"entries": 0}) == 204
        assert [each["unfinished"] for each in await rest.get(RESTORES)] == [[]], "its node is not opened yet"
        assert await rest.status("POST", f"{BASE}/z/quireBackup", json={}) == 204
        assert await rest.get(RESTORES) == []
        assert await room.cluster.stores[0].children("/quire-restores") == []


async def test_what_is_refused_or_deleted_is_not_listed_and_damage_is_named() -> None:
    async with in_broker(topics_per_namespace_max=2) as room, rest_of(room, cluster=True) as rest:
        store = room.cluster.stores[0]
        assert await rest.status("PUT", f"{BASE}/there", json={}) == 204
        for path in ("there", "z-partition-0"):
            assert await rest.status("PUT", f"{BASE}/{path}/quireBackup", **begin()) in (409, 412)
        assert await rest.status("PUT", f"{BASE}/large/quireBackup", **parts(4)) == 412
        assert await store.get("/quire-restores") is None or not await store.children("/quire-restores")
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        assert await rest.status("DELETE", f"{BASE}/a") == 204
        assert await rest.get(RESTORES) == []
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        await store.create("/quire-restores/unreadable", b"?")
        await store.put("/managed-ledgers/public/default/persistent/a", b"\xff", -1)
        [found] = await rest.get(RESTORES)
        assert "not a ledger list" in found["problem"]


def body(*entries: bytes) -> bytes:
    return b"".join(part for each in entries for part in (len(each).to_bytes(4), each))


UNREADABLE = "its metadata cannot be read"


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"garbage", UNREADABLE),
        (metadata(producer_name="p"), UNREADABLE),
        (entry()[:-1] + b"?", UNREADABLE),
        (entry(bytes(2000)), "more than maxMessageSize, 1000"),
        (entry(b"", producer_name="x" * 2000), "more than maxMessageSize, 1000"),
    ],
)
async def test_an_entry_that_could_not_be_published_is_not_restored(stored: bytes, reason: str) -> None:
    async with in_broker(message_size_max=1000) as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        path = f"{BASE}/a/quireEntries?expected=0"
        found = await rest.refused("POST", path, 412, content=body(entry(), stored))
        assert (found.startswith("entry 1"), reason in found) == (True, True), found
        assert (await rest.get(f"{BASE}/a/quireBackup"))["entries"] == 0, "nothing of the request was stored"
        assert await rest.status("POST", path, content=body(entry())) == 200


async def test_entries_obey_the_policies_of_the_namespace() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        namespace = "/admin/v2/namespaces/public/default"
        assert await rest.status("PUT", namespace, json={}) in (204, 409)
        assert await rest.status("POST", f"{namespace}/encryptionRequired", json=True) == 204
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        path = f"{BASE}/a/quireEntries?expected=0"
        encrypted = entry(encryption_keys=[{"key": "k", "value": b"v"}])
        reason = await rest.refused("POST", path, 412, content=body(encrypted, entry()))
        assert reason == "entry 1 of persistent://public/default/a: Messages must be encrypted"
        assert await rest.status("POST", path, content=body(encrypted)) == 200


async def test_a_backlog_above_its_quota_is_not_opened_to_clients() -> None:
    async with in_broker() as room, rest_of(room, cluster=True) as rest:
        namespace = "/admin/v2/namespaces/public/default"
        assert await rest.status("PUT", namespace, json={}) in (204, 409)
        quota = {"limitSize": 100, "policy": "consumer_backlog_eviction"}
        assert await rest.status("POST", f"{namespace}/backlogQuota", json=quota) == 204
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        assert await rest.status("POST", f"{BASE}/a/quireEntries?expected=0", content=body(entry(bytes(200)))) == 200
        assert await rest.status("PUT", f"{BASE}/a/subscription/s/quireState", json={"acknowledged": 0}) == 204
        for check in (True, False):
            reason = await rest.refused("POST", f"{BASE}/a/quireBackup", 412, json={"entries": 1, "check": check})
            assert "its quota is 100: raise the quota" in reason
        assert await rest.status("PUT", f"{BASE}/a/subscription/s/quireState", json={"acknowledged": 1}) == 204
        assert await rest.status("POST", f"{BASE}/a/quireBackup", json={"entries": 1, "check": True}) == 204
        assert (await rest.get(f"{BASE}/a/quireBackup"))["restoring"] == "b", "only checked"
        assert await rest.status("POST", f"{BASE}/a/quireBackup", json={"entries": 1}) == 204
        assert (await rest.get(f"{BASE}/a/quireBackup"))["restoring"] == ""


@pytest.mark.parametrize("policy", ["messageTTL", "backlogQuota"])
async def test_messages_that_would_be_given_up_for_their_age_are_opened_to_clients_only_if_asked_for(
    policy: str,
) -> None:
    async with in_broker(quota_precise_age=True, **KEPT) as room, rest_of(room, cluster=True) as rest:
        namespace = "/admin/v2/namespaces/public/default"
        assert await rest.status("PUT", namespace, json={}) in (204, 409)
        limit: Any = 900 if policy == "messageTTL" else {"limitTime": 900, "policy": "consumer_backlog_eviction"}
        query = "" if policy == "messageTTL" else "?backlogQuotaType=message_age"
        assert await rest.status("POST", f"{namespace}/{policy}{query}", json=limit) == 204
        now_ms = room.broker.context.world.clock.wall_ms()
        published = [entry(publish_time=now_ms - ago_s * 1000) for ago_s in (2000, 1000, 100)]
        for name, place in (("old", 1), ("new", 2)):
            assert await rest.status("PUT", f"{BASE}/{name}/quireBackup", **begin()) == 200
            path = f"{BASE}/{name}/quireEntries?expected=0"
            assert await rest.status("POST", path, content=body(*published)) == 200
            path = f"{BASE}/{name}/subscription/s/quireState"
            assert await rest.status("PUT", path, json={"acknowledged": place}) == 204
        assert await rest.status("POST", f"{BASE}/new/quireBackup", json={"entries": 3}) == 204
        for check in (True, False):
            reason = await rest.refused("POST", f"{BASE}/old/quireBackup", 412, json={"entries": 3, "check": check})
            assert "of 900 seconds: raise it, or" in reason
        await trio.sleep(400)  # rounds of both checks let go nothing before it is whole
        kept = room.broker.topics.find(NAME)
        assert kept is not None
        assert kept.subscriptions["s"].cursor.backlog() == 2
        assert await rest.status("POST", f"{BASE}/old/quireBackup", json={"entries": 3, "expire": True}) == 204
        assert (await rest.get(f"{BASE}/old/quireBackup"))["restoring"] == ""


KEPT: dict[str, Any] = {"keep_alive_interval_s": 100, "idle_unload_s": 0}
NAME = TopicName.parse("persistent://public/default/old")
LIMITS: dict[str, Any] = {"keep_alive_interval_s": 10**6, "inactive_check_interval_s": 60, "idle_unload_s": 100}


async def test_a_topic_that_is_being_restored_is_not_deleted_for_having_no_clients() -> None:
    async with in_broker(**LIMITS, abandoned_restore_s=1000) as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        assert await rest.status("POST", f"{BASE}/a/quireEntries?expected=0", content=body(entry())) == 200
        for expected in (1, 2):
            await trio.sleep(900)  # restarts the deadline, and is far above that of a topic without use
            assert await rest.status("POST", f"{BASE}/a/quireEntries?expected={expected}", content=body(entry())) == 200
        await trio.sleep(900)
        assert await rest.status("POST", f"{BASE}/a/quireBackup", json={"entries": 3}) == 204
        found = await rest.get(f"{BASE}/a/quireBackup")
        assert (found["entries"], found["restoring"]) == (3, "")


@pytest.mark.parametrize("with_subscription", [False, True])
async def test_a_restoration_without_requests_is_deleted_after_its_time(*, with_subscription: bool) -> None:
    async with in_broker(**LIMITS, abandoned_restore_s=1000) as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/z/quireBackup", **parts(2)) == 200
        for name in ("z-partition-0", "z-partition-1", "a"):
            assert await rest.status("PUT", f"{BASE}/{name}/quireBackup", **begin()) == 200
            assert await rest.status("POST", f"{BASE}/{name}/quireEntries?expected=0", content=body(entry())) == 200
            if with_subscription:
                path = f"{BASE}/{name}/subscription/s/quireState"
                assert await rest.status("PUT", path, json={"acknowledged": 0}) == 204
        await trio.sleep(990)
        assert len(await rest.get("/admin/v2/persistent/public/default")) == 3
        await trio.sleep(130)
        assert await rest.get("/admin/v2/persistent/public/default") == []
        assert await rest.get("/admin/v2/persistent/public/default/partitioned") == []
        await until(lambda: not room.cluster.ledgers.stored)


async def test_a_restoration_of_topics_that_are_not_loaded_is_deleted_too() -> None:
    """A start later: nothing of it is in memory."""
    async with in_broker(**LIMITS, abandoned_restore_s=3000) as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/z/quireBackup", **parts(2)) == 200
        for name in ("z-partition-0", "z-partition-1", "a", "whole"):
            assert await rest.status("PUT", f"{BASE}/{name}/quireBackup", **begin()) == 200
            assert await rest.status("POST", f"{BASE}/{name}/quireEntries?expected=0", content=body(entry())) == 200
        assert await rest.status("POST", f"{BASE}/whole/quireBackup", json={"entries": 1}) == 204
        stale = "/quire-restores/persistent%3A%2F%2Fpublic%2Fdefault%2F"
        noted = await room.cluster.stores[0].get(f"{stale}a")
        assert noted is not None
        await room.cluster.stores[0].create(f"{stale}whole", noted.value.replace(b"default/a", b"default/whole"))
        for topic in room.broker.topics.loaded():
            room.broker.topics.close_soon(topic)
        await until(lambda: not room.broker.topics.count)
        await trio.sleep(2900)
        assert room.broker.topics.count == 0, "it was not touched"
        assert len(await rest.get(RESTORES)) == 2
        await trio.sleep(900)
        assert await rest.get("/admin/v2/persistent/public/default") == ["persistent://public/default/whole"]
        assert await rest.get("/admin/v2/persistent/public/default/partitioned") == []
        assert await room.cluster.stores[0].children("/quire-restores") == []


async def test_a_restoration_that_continues_a_topic_that_is_not_loaded_is_left_alone() -> None:
    async with in_broker(**LIMITS, abandoned_restore_s=3000) as room, rest_of(room, cluster=True) as rest:
        assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
        for _ in range(4):
            await trio.sleep(2000)
            assert await rest.status("PUT", f"{BASE}/a/quireBackup", **begin()) == 200
            for topic in room.broker.topics.loaded():
                room.broker.topics.close_soon(topic)
        assert len(await rest.get(RESTORES)) == 1
