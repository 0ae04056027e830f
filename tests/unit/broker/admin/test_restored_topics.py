"""The begin of a restoration obeys the rules of a new topic (`broker.admin.backup.topics`)."""

from __future__ import annotations

from typing import Any

from broker.admin.properties import BYTES_MAX
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
        another = await rest.refused("PUT", f"{BASE}/b/quireBackup", 409, json={"backup": "c", "properties": {}})
        assert "another backup" in another
