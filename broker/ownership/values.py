"""Values of the nodes that brokers share, as Pulsar writes them (pure). Unknown fields are kept in nodes that are
written back, and skipped in others.

    /admin/policies/<tenant>                        TenantInfo
    /admin/policies/<tenant>/<namespace>            Policies
    /admin/local-policies/<tenant>/<namespace>      LocalPolicies: the boundaries that count
    /namespace/<tenant>/<namespace>/<range>         NamespaceEphemeralData: the owner of the bundle
    /loadbalance/brokers/<host:webport>             LocalBrokerData: a living broker and its load
    /loadbalance/leader                             LeaderBroker

Source: nodes of a running Pulsar 4.2, tests/golden/pulsar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.errors import MetadataRefusedError
from broker.ownership.bundles import Bundles, even, parse_boundary
from broker.ownership.urls import plain
from quire.wire.pulsar.names import NamespaceName

Json = dict[str, Any]


def encode_json(value: object) -> bytes:
    """Encode compact JSON, as the original writes it.

    >>> encode_json({"a": [1, None]})
    b'{"a":[1,null]}'
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_json(value: bytes, what: str) -> Json:
    """Decode a JSON object; {} for no bytes. Raises MetadataRefusedError."""
    if not value:
        return {}
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise MetadataRefusedError(f"{what} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise MetadataRefusedError(f"{what} is not a JSON object")
    return found


def is_being_deleted(policies: Json) -> bool:
    """Return whether Policies have the mark that the deletion of a namespace sets first: no topic may be made."""
    return bool(policies.get("deleted"))


# Bundles


def encode_bundles(bundles: Bundles) -> Json:
    """Return the BundlesData."""
    return {"boundaries": [f"0x{each:08x}" for each in bundles.boundaries], "numBundles": len(bundles)}


def decode_bundles(namespace: NamespaceName, fields: Mapping[str, Any], default: int) -> Bundles:
    """Return the boundaries in policies or local policies; `default` even bundles where there are none.

    Raises MetadataRefusedError."""
    data = fields.get("bundles")
    try:
        if not data:
            return even(namespace, default)
        boundaries = data.get("boundaries")
        if not boundaries:
            return even(namespace, int(data.get("numBundles") or default))
        return Bundles(namespace, sorted({parse_boundary(each) for each in boundaries}))
    except (ValueError, TypeError, AttributeError) as error:
        raise MetadataRefusedError(f"the bundles of {namespace} cannot be read: {error}") from error


def local_policies(bundles: Bundles) -> Json:
    """Return LocalPolicies as they are first created."""
    return {"bundles": encode_bundles(bundles), "migrated": False}


def default_policies(bundles: Bundles, clusters: Sequence[str]) -> Json:
    """Return the Policies of a new namespace, with the original's fields in its order."""
    return {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": list(clusters),
        "allowed_clusters": [],
        "bundles": encode_bundles(bundles),
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


# Owners


class Owner(NamedTuple):
    """Owner of a bundle, as recorded in its node. For its URLs see `broker.ownership.urls`."""

    broker_url: str
    web_url: str
    disabled: bool = False
    """True while the bundle is being unloaded."""
    broker_url_tls: str = ""
    web_url_tls: str = ""

    def is_at(self, broker_url: str) -> bool:
        return self.broker_url == broker_url


def encode_owner(owner: Owner) -> bytes:
    """
    >>> encode_owner(Owner(broker_url="pulsar://a:6650", web_url="http://a:8080"))
    b'{"nativeUrl":"pulsar://a:6650","httpUrl":"http://a:8080","disabled":false,"advertisedListeners":{}}'
    """
    urls = {
        "nativeUrl": plain(owner.broker_url),
        "nativeUrlTls": owner.broker_url_tls,
        "httpUrl": plain(owner.web_url),
        "httpUrlTls": owner.web_url_tls,
    }
    there = {key: url for key, url in urls.items() if url}
    return encode_json({**there, "disabled": owner.disabled, "advertisedListeners": {}})


def decode_owner(value: bytes) -> Owner:
    """Decode the owner in a node. Raises MetadataRefusedError."""
    fields = decode_json(value, "the owner of a bundle")
    return Owner(
        broker_url=_text(fields, "nativeUrl", "nativeUrlTls"),
        web_url=_text(fields, "httpUrl", "httpUrlTls"),
        disabled=bool(fields.get("disabled")),
        broker_url_tls=_url(fields, "nativeUrlTls"),
        web_url_tls=_url(fields, "httpUrlTls"),
    )


# Brokers


class LocalBroker(NamedTuple):
    """Public data of a broker. For its URLs see `broker.ownership.urls`."""

    id: str
    """advertised host:webport"""
    broker_url: str
    web_url: str
    broker_url_tls: str = ""
    web_url_tls: str = ""

    @property
    def owner(self) -> Owner:
        """Return what this broker writes into the nodes of its bundles."""
        return Owner(
            broker_url=self.broker_url,
            web_url=self.web_url,
            broker_url_tls=self.broker_url_tls,
            web_url_tls=self.web_url_tls,
        )


class BundleLoad(NamedTuple):
    """Load of one bundle; rates per second."""

    topics: int = 0
    producers: int = 0
    consumers: int = 0
    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0

    @property
    def message_rate(self) -> float:
        return self.messages_in + self.messages_out

    @property
    def byte_rate(self) -> float:
        return self.bytes_in + self.bytes_out


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """Report of a registered broker and the load of each of its bundles."""

    broker: LocalBroker
    bundles: Mapping[str, BundleLoad]
    """Loads by `str(bundle)`."""

    @property
    def message_rate(self) -> float:
        return sum(load.message_rate for load in self.bundles.values())


def encode_report(
    report: BrokerReport,
    *,
    version: str,
    started_ms: int,
    now_ms: int,
    persistent: bool = True,
    non_persistent: bool = True,
) -> bytes:
    """Encode LocalBrokerData. Resources other than rates are not measured, which their limits of -1000 express."""
    loads = report.bundles
    unknown = {"usage": 0.0, "limit": -1000.0}
    urls = {
        "webServiceUrl": plain(report.broker.web_url),
        "webServiceUrlTls": report.broker.web_url_tls,
        "pulsarServiceUrl": plain(report.broker.broker_url),
        "pulsarServiceUrlTls": report.broker.broker_url_tls,
    }
    return encode_json(
        {
            **{key: url for key, url in urls.items() if url},
            "persistentTopicsEnabled": persistent,
            "nonPersistentTopicsEnabled": non_persistent,
            "cpu": unknown,
            "memory": unknown,
            "directMemory": unknown,
            "bandwidthIn": {"usage": sum(load.bytes_in for load in loads.values()) * 8 / 1000, "limit": -1000.0},
            "bandwidthOut": {"usage": sum(load.bytes_out for load in loads.values()) * 8 / 1000, "limit": -1000.0},
            "msgThroughputIn": sum(load.bytes_in for load in loads.values()),
            "msgThroughputOut": sum(load.bytes_out for load in loads.values()),
            "msgRateIn": sum(load.messages_in for load in loads.values()),
            "msgRateOut": sum(load.messages_out for load in loads.values()),
            "lastUpdate": now_ms,
            "lastStats": {bundle: _bundle_stats(load) for bundle, load in loads.items()},
            "numTopics": sum(load.topics for load in loads.values()),
            "numBundles": len(loads),
            "numConsumers": sum(load.consumers for load in loads.values()),
            "numProducers": sum(load.producers for load in loads.values()),
            "bundles": sorted(loads),
            "lastBundleGains": [],
            "lastBundleLosses": [],
            "brokerVersionString": version,
            "protocols": {},
            "advertisedListeners": {},
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            "startTimestamp": started_ms,
            "maxResourceUsage": 0.0,
            "loadReportType": "LocalBrokerData",
        }
    )


def decode_report(broker_id: str, value: bytes) -> BrokerReport:
    """Decode a report. Raises MetadataRefusedError if it lacks the broker's addresses."""
    fields = decode_json(value, f"the report of broker {broker_id}")
    broker = LocalBroker(
        id=broker_id,
        broker_url=_text(fields, "pulsarServiceUrl", "pulsarServiceUrlTls"),
        web_url=_text(fields, "webServiceUrl", "webServiceUrlTls"),
        broker_url_tls=_url(fields, "pulsarServiceUrlTls"),
        web_url_tls=_url(fields, "webServiceUrlTls"),
    )
    stats = fields.get("lastStats")
    loads: dict[str, BundleLoad] = {}
    for bundle in fields.get("bundles") or ():
        loads[str(bundle)] = BundleLoad()
    if isinstance(stats, dict):
        loads |= {bundle: _bundle_load(found) for bundle, found in stats.items() if isinstance(found, dict)}
    return BrokerReport(broker=broker, bundles=loads)


def _bundle_stats(load: BundleLoad) -> Json:
    """Return the NamespaceBundleStats."""
    return {
        "msgRateIn": load.messages_in,
        "msgThroughputIn": load.bytes_in,
        "msgRateOut": load.messages_out,
        "msgThroughputOut": load.bytes_out,
        "consumerCount": load.consumers,
        "producerCount": load.producers,
        "topics": load.topics,
        "cacheSize": 0,
    }


def _bundle_load(stats: Mapping[str, Any]) -> BundleLoad:
    def number(key: str) -> float:
        found = stats.get(key, 0)
        return float(found) if isinstance(found, int | float) else 0.0

    return BundleLoad(
        topics=int(number("topics")),
        producers=int(number("producerCount")),
        consumers=int(number("consumerCount")),
        messages_in=number("msgRateIn"),
        messages_out=number("msgRateOut"),
        bytes_in=number("msgThroughputIn"),
        bytes_out=number("msgThroughputOut"),
    )


# The leader


def encode_leader(broker: LocalBroker) -> bytes:
    """
    >>> encode_leader(LocalBroker(id="a:8080", broker_url="pulsar://a:6650", web_url="http://a:8080"))
    b'{"brokerId":"a:8080","serviceUrl":"http://a:8080"}'
    """
    return encode_json({"brokerId": broker.id, "serviceUrl": broker.web_url})


def decode_leader(value: bytes) -> str:
    """Return the leader's broker id. Raises MetadataRefusedError."""
    return _text(decode_json(value, "the leader"), "brokerId")


def _text(fields: Mapping[str, Any], *keys: str) -> str:
    """Return the first of these fields that is there."""
    for key in keys:
        if found := _url(fields, key):
            return found
    raise MetadataRefusedError(f"the required field {keys[0]} is missing")


def _url(fields: Mapping[str, Any], key: str) -> str:
    found = fields.get(key)
    return found if isinstance(found, str) else ""
