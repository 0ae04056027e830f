"""Schemas over REST: of topics, and the policies about them of a namespace and of a topic."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from broker.context import Context
from broker.errors import TopicNotFoundError
from broker.topics.schemas.registry import Schemas
from tests.unit.broker.admin.cluster_fakes import ClusterRest, on_cluster
from tests.unit.broker.peers import OPTIONS
from tests.unit.managed_ledger.cluster import CONFIG, Cluster
from tests.unit.managed_ledger.fake_ledgers import fake_world, running

SCHEMAS = "/admin/v2/schemas/public/default/a"
NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/a"
FIRST = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
SECOND = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"z","type":"string"}]}'


@pytest.fixture
async def rest() -> AsyncIterator[ClusterRest]:
    cluster = Cluster()
    async with on_cluster() as rest, running(cluster.ledgers), trio.open_nursery() as nursery:
        cluster.ledgers.store = rest.store
        context = Context(fake_world(), OPTIONS, nursery)
        rest.administration.kept_schemas = Schemas(context, rest.store, cluster.ledgers, CONFIG, rest.policies)
        yield rest
        nursery.cancel_scope.cancel()


def body(text: str, kind: str = "AVRO", **properties: str) -> dict[str, Any]:
    return {"type": kind, "schema": text, "properties": properties}


async def post(rest: ClusterRest, what: str, value: object) -> Any:
    response = await rest.ask("POST", f"{SCHEMAS}/{what}", json=value)
    assert response.status_code in (200, 202), response.text
    return response.json()


async def test_what_is_posted_is_read_back_by_version(rest: ClusterRest) -> None:
    assert await rest.refused("GET", f"{SCHEMAS}/schema", 404)
    assert await rest.status("GET", f"{SCHEMAS}/metadata") == 204
    assert await post(rest, "schema", body(FIRST, by="me")) == {"version": {"version": 0}}
    assert await post(rest, "schema", body(SECOND)) == {"version": {"version": 1}}
    assert await post(rest, "schema", body(FIRST)) == {"version": {"version": 0}}
    newest = await rest.get(f"{SCHEMAS}/schema")
    assert (newest["version"], newest["type"], newest["data"]) == (1, "AVRO", SECOND)
    first = await rest.get(f"{SCHEMAS}/schema/0")
    assert set(first) == {"version", "type", "timestamp", "data", "properties"}
    assert first["properties"] == {"by": "me"}
    assert first["timestamp"] > 0
    assert [each["version"] for each in (await rest.get(f"{SCHEMAS}/schemas"))["getSchemaResponses"]] == [0, 1]
    places = await rest.get(f"{SCHEMAS}/metadata")
    assert places == {
        "info": {"ledgerId": 1, "entryId": 0, "version": 1},
        "index": [{"ledgerId": each, "entryId": 0, "version": each} for each in range(2)],
    }
    await rest.refused("GET", f"{SCHEMAS}/schema/2", 404)
    await rest.refused("GET", f"{SCHEMAS}/schema/x", 400)
    assert await post(rest, "version", body(SECOND)) == {"version": 1}
    assert await post(rest, "version", body(OTHER)) == {"version": -1}


async def test_a_schema_that_does_not_go_with_the_others_is_refused(rest: ClusterRest) -> None:
    await post(rest, "schema", body(FIRST))
    assert "FULL" in await rest.refused("POST", f"{SCHEMAS}/schema", 409, json=body(OTHER))
    await rest.refused("POST", f"{SCHEMAS}/schema", 422, json=body("{}"))
    await rest.refused("POST", f"{SCHEMAS}/schema", 422, json=body("x", "KEY_VALUE"))
    await rest.refused("POST", f"{SCHEMAS}/schema", 422, json=body("", "AUTO_CONSUME"))
    malformed: tuple[Any, ...] = (None, [], {"schema": ""}, body("", "NONSENSE"), {"type": "STRING", "schema": 3})
    for value in malformed:
        await rest.refused("POST", f"{SCHEMAS}/schema", 400, json=value)
    await rest.refused("POST", f"{SCHEMAS}/schema", 413, json=body("x" * 1_100_000))
    assert await post(rest, "compatibility", body(SECOND)) == {
        "compatibility": True,
        "schemaCompatibilityStrategy": "FULL",
    }
    assert not (await post(rest, "compatibility", body(OTHER)))["compatibility"]
    await rest.refused("POST", f"{SCHEMAS}/compatibility", 422, json=body("{}"))


async def test_a_deletion_leaves_a_tombstone_and_a_forced_one_nothing(rest: ClusterRest) -> None:
    await post(rest, "schema", body(FIRST))
    response = await rest.ask("DELETE", f"{SCHEMAS}/schema")
    assert response.json() == {"version": 1}
    await rest.refused("GET", f"{SCHEMAS}/schema", 404)
    assert await post(rest, "schema", body("", "STRING")) == {"version": {"version": 2}}
    assert (await rest.ask("DELETE", f"{SCHEMAS}/schema?force=true")).json() == {"version": -1}
    assert await rest.status("GET", f"{SCHEMAS}/metadata") == 204
    assert await post(rest, "schema", body("", "STRING")) == {"version": {"version": 0}}


async def test_a_schema_of_pairs_is_shown_as_it_was_posted(rest: ClusterRest) -> None:
    text = json.dumps({"key": "", "value": json.loads(FIRST)}, separators=(",", ":"))
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    await post(rest, "schema", body(text, "KEY_VALUE", **properties))
    assert (await rest.get(f"{SCHEMAS}/schema"))["data"] == text


async def test_a_namespace_that_does_not_exist_has_no_schemas(rest: ClusterRest) -> None:
    rest.administration.error = TopicNotFoundError("namespace public/default does not exist")
    await rest.refused("GET", f"{SCHEMAS}/schema", 404)
    await rest.refused("POST", f"{SCHEMAS}/schema", 404, json=body(FIRST))


async def test_the_policies_of_a_namespace_are_set_and_hold_for_the_next_schema(rest: ClusterRest) -> None:
    assert await rest.get(f"{NAMESPACE}/schemaCompatibilityStrategy") == "UNDEFINED"
    assert await rest.get(f"{NAMESPACE}/isAllowAutoUpdateSchema") is True
    assert await rest.get(f"{NAMESPACE}/schemaValidationEnforced") is False
    assert await rest.status("GET", f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy") == 204
    put = f"{NAMESPACE}/schemaCompatibilityStrategy"
    assert await rest.status("PUT", put, json="ALWAYS_COMPATIBLE") == 204
    assert await rest.get(put) == "ALWAYS_COMPATIBLE"
    await post(rest, "schema", body(FIRST))
    assert await post(rest, "schema", body(OTHER)) == {"version": {"version": 1}}
    invalid: tuple[Any, ...] = ("Forward", 3, None, [])
    for value in invalid:
        await rest.refused("PUT", put, 412, json=value)
    for what in ("isAllowAutoUpdateSchema", "schemaValidationEnforced"):
        before = await rest.get(f"{NAMESPACE}/{what}")
        assert await rest.status("POST", f"{NAMESPACE}/{what}", json=not before) == 204
        assert await rest.get(f"{NAMESPACE}/{what}") is not before
        await rest.refused("POST", f"{NAMESPACE}/{what}", 412, json="yes")
    assert await rest.get(f"{NAMESPACE}/schemaValidationEnforced?applied=true") is True
    older = f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"
    assert await rest.status("PUT", older, json="Forward") == 204
    assert await rest.get(older) == "Forward"
    assert await post(rest, "schema", body(SECOND, "JSON")) == {"version": {"version": 2}}, "posted, not by a client"


async def test_the_policies_of_a_topic_count_before_those_of_its_namespace(rest: ClusterRest) -> None:
    strategy, enforced = f"{TOPIC}/schemaCompatibilityStrategy", f"{TOPIC}/schemaValidationEnforced"
    assert await rest.status("GET", strategy) == await rest.status("GET", enforced) == 204
    assert await rest.get(f"{strategy}?applied=true") == "FULL"
    assert await rest.status("PUT", strategy, json="BACKWARD") == 204
    assert await rest.status("POST", enforced, json=True) == 204
    assert (await rest.get(strategy), await rest.get(f"{strategy}?applied=true")) == ("BACKWARD", "BACKWARD")
    assert (await rest.get(enforced), await rest.get(f"{enforced}?applied=true")) == (True, True)
    assert await rest.status("DELETE", strategy) == await rest.status("DELETE", enforced) == 204
    assert await rest.status("GET", strategy) == await rest.status("GET", enforced) == 204
    await rest.refused("PUT", strategy, 412, json="NONE")


async def test_a_namespace_is_not_made_with_a_policy_about_schemas_that_would_be_ignored(rest: ClusterRest) -> None:
    path = "/admin/v2/namespaces/public/new"
    for policy in ({"schema_compatibility_strategy": "NONSENSE"}, {"schema_validation_enforced": "yes"}):
        assert next(iter(policy)) in await rest.refused("PUT", path, 412, json=policy)
    assert await rest.status("PUT", path, json={"schema_compatibility_strategy": "BACKWARD"}) == 204
    assert await rest.get(f"{path}/schemaCompatibilityStrategy") == "BACKWARD"
