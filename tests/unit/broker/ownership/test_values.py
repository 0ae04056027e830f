"""Values that brokers share, compared with the nodes of a running Pulsar."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from broker.errors import MetadataRefusedError
from broker.ownership.balance import Reporter
from broker.ownership.bundles import even
from broker.ownership.config import OwnershipOptions
from broker.ownership.values import (
    BrokerReport,
    BundleLoad,
    LocalBroker,
    Owner,
    decode_bundles,
    decode_json,
    decode_leader,
    decode_owner,
    decode_report,
    default_policies,
    encode_bundles,
    encode_json,
    encode_leader,
    encode_owner,
    encode_report,
    local_policies,
)
from quire.wire.pulsar.names import NamespaceName
from tests.support.refusals import refuses
from tests.unit.managed_ledger.fake_ledgers import fake_world

GOLDEN = Path(__file__).parents[3] / "golden" / "pulsar"
ME = LocalBroker(id="127.0.0.1:8280", broker_url="pulsar://127.0.0.1:6850", web_url="http://127.0.0.1:8280")


def golden(file: str, path: str) -> bytes:
    nodes = json.loads((GOLDEN / file).read_text())
    return base64.b64decode(nodes[f"/pulsar{path}"]["data"])


def test_an_owner_is_written_byte_for_byte_as_the_original_does() -> None:
    value = golden("zk-running.json", "/namespace/public/default/0xb0000000_0xc0000000")
    assert encode_owner(Owner(broker_url=ME.broker_url, web_url=ME.web_url)) == value
    assert decode_owner(value) == Owner(broker_url=ME.broker_url, web_url=ME.web_url)


def test_the_leader_is_written_byte_for_byte_as_the_original_does() -> None:
    value = golden("zk-running.json", "/loadbalance/leader")
    assert encode_leader(ME) == value
    assert decode_leader(value) == ME.id


def test_local_policies_are_written_byte_for_byte_as_the_original_does() -> None:
    value = golden("zk-running.json", "/admin/local-policies/public/dedup")
    namespace = NamespaceName("public", "dedup")
    assert encode_json(local_policies(even(namespace, 4))) == value
    assert decode_bundles(namespace, decode_json(value, "it"), 1) == even(namespace, 4)


def test_policies_of_a_new_namespace_are_byte_for_byte_the_original_s() -> None:
    value = golden("zk-initialized.json", "/admin/policies/public/default")
    bundles = even(NamespaceName("public", "default"), 16)
    assert encode_json(default_policies(bundles, ["golden"])) == value


def test_a_report_has_every_field_of_the_original_s_and_is_read_back() -> None:
    value = golden("zk-running.json", "/loadbalance/brokers/127.0.0.1:8280")
    report = decode_report(ME.id, value)
    assert report == BrokerReport(broker=ME, bundles={})
    load = BundleLoad(
        topics=2, producers=3, consumers=4, messages_in=5.5, messages_out=6.5, bytes_in=700.0, bytes_out=800.0
    )
    ours = BrokerReport(broker=ME, bundles={"public/default/0x00000000_0xffffffff": load})
    written = encode_report(ours, version="4.2.4", started_ms=1, now_ms=2)
    assert list(json.loads(written)) == list(json.loads(value))
    assert decode_report(ME.id, written) == ours
    assert ours.message_rate == 12.0


def test_bundles_are_read_from_boundaries_or_a_number_or_by_default() -> None:
    namespace = NamespaceName("a", "b")
    assert decode_bundles(namespace, {}, 3) == even(namespace, 3)
    assert decode_bundles(namespace, {"bundles": {"numBundles": 8}}, 3) == even(namespace, 8)
    assert decode_bundles(namespace, {"bundles": encode_bundles(even(namespace, 5))}, 3) == even(namespace, 5)


@pytest.mark.parametrize("bundles", [{"boundaries": ["0x1"]}, {"boundaries": ["x"]}, {"numBundles": 0x1_0000_0000}, 7])
def test_bundles_that_cannot_be_are_refused(bundles: object) -> None:
    refuses(MetadataRefusedError, lambda: decode_bundles(NamespaceName("a", "b"), {"bundles": bundles}, 4))


@pytest.mark.parametrize("value", [b"{", b"[]", b"7", b"\xff", b'{"httpUrl":"http://a"}', b'{"nativeUrl":5}'])
def test_a_damaged_owner_is_refused(value: bytes) -> None:
    refuses(MetadataRefusedError, lambda: decode_owner(value))


async def test_a_report_says_which_kinds_of_topics_are_served() -> None:
    options = OwnershipOptions(persistent_topics=False)
    written = json.loads(Reporter(ME, options, fake_world().clock).value)
    assert (written["persistentTopicsEnabled"], written["nonPersistentTopicsEnabled"]) == (False, True)
    written = json.loads(Reporter(ME, OwnershipOptions(non_persistent_topics=False), fake_world().clock).value)
    assert (written["persistentTopicsEnabled"], written["nonPersistentTopicsEnabled"]) == (True, False)
