"""broker.security.authorization.grants: what is read of Policies, and changes of them."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from broker.ownership.bundles import even
from broker.ownership.values import default_policies
from broker.security.authorization import grants
from broker.security.authorization.grants import Grants, GrantsError, read_admins, read_grants
from quire.wire.pulsar.names import NamespaceName

TOPIC = "persistent://public/default/a"
GOLDEN = Path(__file__).resolve().parents[3] / "golden/pulsar/zk-running.json"
DEFAULTS = default_policies(even(NamespaceName("public", "default"), 4), ["c"])
STORED = {
    "auth_policies": {
        "namespace_auth": {"app": ["produce", "unheard-of"]},
        "destination_auth": {TOPIC: {"app": ["consume"]}},
        "subscription_auth_roles": {"s": ["app"]},
    },
    "subscription_auth_mode": "Prefix",
}


def auth(policies: dict[str, Any]) -> Any:
    return policies["auth_policies"]


def test_what_pulsar_stores_is_read() -> None:
    found = read_grants(STORED)
    assert "produce" in found.namespace["app"]
    assert found.topics == {TOPIC: {"app": frozenset(["consume"])}}
    assert found.subscriptions == {"s": frozenset(["app"])}
    assert found.is_prefix_mode


def test_what_a_running_pulsar_has_stored_can_be_read() -> None:
    nodes = {
        path: json.loads(b64decode(node["data"]))
        for path, node in json.loads(GOLDEN.read_text()).items()
        if path.startswith("/pulsar/admin/policies/") and path.count("/") == 5
    }
    assert nodes
    for policies in nodes.values():
        assert "auth_policies" in policies
        assert read_grants(policies) == Grants()


def test_a_new_namespace_and_a_missing_one_grant_nothing() -> None:
    assert read_grants(DEFAULTS) == read_grants({}) == read_grants(None) == Grants()
    assert read_admins(None) == read_admins({}) == frozenset()
    assert read_admins({"adminRoles": ["boss"]}) == frozenset(["boss"])


@pytest.mark.parametrize(
    "policies",
    [
        {"auth_policies": []},
        {"auth_policies": {"namespace_auth": ["app"]}},
        {"auth_policies": {"namespace_auth": {"app": "produce"}}},
        {"auth_policies": {"namespace_auth": {"app": [1]}}},
        {"auth_policies": {"destination_auth": {TOPIC: ["app"]}}},
        {"auth_policies": {"subscription_auth_roles": {"s": "app"}}},
        {"subscription_auth_mode": "Suffix"},
        {"subscription_auth_mode": 1},
    ],
)
def test_grants_of_another_shape_are_an_error_and_no_missing_restriction(policies: dict[str, Any]) -> None:
    with pytest.raises(GrantsError):
        read_grants(policies)


def test_admins_of_another_shape_are_an_error() -> None:
    with pytest.raises(GrantsError):
        read_admins({"adminRoles": "boss"})


def test_a_grant_replaces_the_actions_of_its_role_and_a_revocation_takes_them() -> None:
    granted = grants.grant_on_namespace("app", ["consume"])(STORED)
    granted = grants.grant_on_namespace("other", ["produce"])(granted)
    assert auth(granted)["namespace_auth"] == {"app": ["consume"], "other": ["produce"]}
    assert auth(granted)["destination_auth"] == auth(STORED)["destination_auth"]
    revoked = grants.revoke_on_namespace("app")(granted)
    assert auth(revoked)["namespace_auth"] == {"other": ["produce"]}
    assert grants.revoke_on_namespace("app")(revoked) == revoked
    assert auth(STORED)["namespace_auth"] == {"app": ["produce", "unheard-of"]}, "policies are not changed in place"


def test_the_last_grant_on_a_topic_takes_the_topic_with_it() -> None:
    granted = grants.grant_on_topics([(TOPIC, "app", ["produce"]), (TOPIC, "b", ["consume"]), ("u", "b", [])])(STORED)
    assert auth(granted)["destination_auth"] == {TOPIC: {"app": ["produce"], "b": ["consume"]}, "u": {"b": []}}
    revoked = grants.revoke_on_topics([(TOPIC, "app"), ("u", "b"), ("missing", "b")])(granted)
    assert auth(revoked)["destination_auth"] == {TOPIC: {"b": ["consume"]}}


def test_a_deleted_topic_takes_its_grants_and_those_of_its_partitions() -> None:
    full = {name: {"app": ["produce"]} for name in (TOPIC, f"{TOPIC}-partition-0", f"{TOPIC}-partition-x", f"{TOPIC}b")}
    policies = {"auth_policies": {"destination_auth": full}}
    kept = auth(grants.forget_topic(TOPIC)(policies))["destination_auth"]
    assert sorted(kept) == [f"{TOPIC}-partition-x", f"{TOPIC}b"]
    assert grants.forget_topic(TOPIC)({}) == {}


def test_a_list_of_a_subscription_is_set_and_loses_single_roles() -> None:
    granted = grants.grant_on_subscription("s", ["a", "b"])(STORED)
    assert auth(grants.revoke_on_subscription("s", "a")(granted))["subscription_auth_roles"] == {"s": ["b"]}
    with pytest.raises(GrantsError):
        grants.revoke_on_subscription("other", "a")(granted)


@pytest.mark.parametrize("actions", [None, "produce", ["produce", "fly"], [1], {"produce": 1}])
def test_actions_that_are_none_are_refused(actions: object) -> None:
    with pytest.raises(GrantsError):
        grants.checked_actions(actions)


def test_a_mode_is_one_of_two() -> None:
    assert [grants.checked_mode(each) for each in (None, "None", "Prefix")] == ["None", "None", "Prefix"]
    for wrong in ("prefix", 1, ["Prefix"]):
        with pytest.raises(GrantsError):
            grants.checked_mode(wrong)
