"""quire.service.unsupported.policies: policies with settings that are not obeyed."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from broker.ownership.bundles import even
from broker.ownership.values import default_policies
from quire.service.unsupported.policies import WHY, create_problem, unsupported
from quire.wire.pulsar.names import NamespaceName

GOLDEN = Path(__file__).resolve().parents[2] / "golden/pulsar/zk-running.json"
DEFAULTS = default_policies(even(NamespaceName("public", "default"), 4), ["c"])


def test_what_a_new_namespace_says_asks_for_nothing() -> None:
    assert unsupported(DEFAULTS) == []
    assert create_problem(DEFAULTS) is None
    assert unsupported(None) == []


def test_what_the_admin_clients_send_with_a_new_namespace_asks_for_nothing() -> None:
    assert create_problem({"bundles": {"numBundles": 8}}) is None
    older = {
        **DEFAULTS,
        "message_ttl_in_seconds": 0,
        "max_producers_per_topic": 0,
        "max_unacked_messages_per_consumer": -1,
        "compaction_threshold": 60,
        "schema_auto_update_compatibility_strategy": "Full",
        "is_allow_auto_update_schema": True,
        "persistence": {"bookkeeperEnsemble": 2},
        "retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
        "publishMaxMessageRate": {"c": {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1}},
        "topicDispatchRate": {"c": {"dispatchThrottlingRateInMsg": 100, "ratePeriodInSecond": 1}},
        "clusterDispatchRate": {"c": {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}},
        "subscriptionPolicies": {
            "s": {"dispatchRate": {"dispatchThrottlingRateInMsg": 1, "relativeToPublishRate": True}}
        },
        "dispatcherPauseOnAckStatePersistentEnabled": True,
        "backlog_quota_map": {"destination_storage": {"limit": -1, "policy": "producer_request_hold"}},
        "inactive_topic_policies": {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "deleteWhileInactive": False,
        },
        "delayed_delivery_policies": {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 5},
        "properties": {"team": "a"},
    }
    assert create_problem(older) is None


def test_policies_that_a_running_pulsar_had_stored_ask_for_nothing_that_is_not_obeyed() -> None:
    nodes: dict[str, Any] = json.loads(GOLDEN.read_text())
    found = {
        path: json.loads(b64decode(node["data"]))
        for path, node in nodes.items()
        if path.startswith("/pulsar/admin/policies/") and path.count("/") == 5
    }
    assert found
    assert {path: unsupported(policies) for path, policies in found.items() if unsupported(policies)} == {}
    assert found["/pulsar/admin/policies/public/dedup"]["deduplicationEnabled"] is True
    assert create_problem(found["/pulsar/admin/policies/public/dedup"]) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("replication_clusters", ["a", "b"]),
        ("replicatorDispatchRate", {"c": {"dispatchThrottlingRateInMsg": 100, "relativeToPublishRate": True}}),
        ("offload_policies", {"managedLedgerOffloadDriver": "aws-s3"}),
        ("deleted", True),
        ("migrated", True),
        ("somethingNew", {"of": "Pulsar 9"}),
    ],
)
def test_a_field_that_asks_for_what_is_not_obeyed_is_named_with_the_reason(field: str, value: object) -> None:
    assert unsupported({**DEFAULTS, field: value}) == [field]
    problem = str(create_problem({field: value}))
    assert field in problem
    assert WHY.get(field, "") in problem


def test_the_page_about_what_is_not_obeyed_has_every_policy_with_its_reason() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/unsupported.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    told = {field.strip("`"): why for fields, why in rows for field in fields.split(", ")}
    assert told == dict(WHY)
