"""Brokers and bundles for a picture: brokers with their load, bundles with their slice of the ring (pure), and the
reads that feed it.

    /loadbalance/brokers/<id>            a broker's report: its bundles with their rates
    /namespace/<tenant>/<namespace>/...  the owner of a bundle
    boundaries of a namespace            all its bundles, those without an owner too
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from broker.admin.requests import AdminCall
from broker.admin.stats.broker_stats import loaded_topics, of_this_broker, with_topic
from broker.errors import BrokerError, TopicNotFoundError, translated
from broker.ownership.brokers import BROKERS, LEADER
from broker.ownership.bundles import Bundles, hash_of
from broker.ownership.values import (
    BrokerReport,
    BundleLoad,
    Owner,
    decode_leader,
    decode_owner,
    decode_report,
)
from broker.slices import sliced
from broker.topics.non_persistent.topic import NonPersistentTopic
from broker.topics.topic import Topic
from quire.metadata.errors import NoNodeError
from quire.metadata.store import MetadataStore
from quire.wire.pulsar.names import NamespaceName, TopicName

BROKERS_MAX: Final = 500
BUNDLES_SHOWN: Final = 2000
TOPICS_SHOWN: Final = 500
"""Topics whose place on the ring is answered; with rates those that this broker serves."""
NAMES_IN_STEP: Final = 200


def load_json(load: BundleLoad) -> dict[str, Any]:
    """Return the load of a bundle as JSON; rates per second."""
    return {
        "topics": load.topics,
        "producers": load.producers,
        "consumers": load.consumers,
        "messagesIn": round(load.messages_in, 2),
        "messagesOut": round(load.messages_out, 2),
        "bytesIn": round(load.bytes_in, 1),
        "bytesOut": round(load.bytes_out, 1),
    }


def total_load(loads: Iterable[BundleLoad]) -> BundleLoad:
    """Return the sum of loads.

    >>> total_load([BundleLoad(topics=1, messages_in=2.0), BundleLoad(topics=2)]).topics
    3
    """
    return BundleLoad(*(sum(column) for column in zip(BundleLoad(), *loads, strict=True)))


def brokers_json(
    reports: Mapping[str, BrokerReport], leader: str | None, mine: str, unread: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the picture of brokers: each with its load, and the bundles of all.

    Args:
        reports: by broker id.
        leader: id of the leader; None: there is none now.
        mine: id of the broker that answers.
        unread: registered brokers whose report cannot be read.
    """
    brokers: list[dict[str, Any]] = []
    bundles: list[dict[str, Any]] = []
    total = 0
    for broker_id, report in sorted(reports.items()):
        brokers.append(
            {
                "id": broker_id,
                "serviceUrl": report.broker.broker_url,
                "webUrl": report.broker.web_url,
                "isLeader": broker_id == leader,
                "isMine": broker_id == mine,
                "bundles": len(report.bundles),
                **load_json(total_load(report.bundles.values())),
            }
        )
        total += len(report.bundles)
        for bundle, load in sorted(report.bundles.items()):
            if len(bundles) < BUNDLES_SHOWN:
                namespace, _, span = bundle.rpartition("/")
                bundles.append({"namespace": namespace, "range": span, "broker": broker_id, **load_json(load)})
    return {"brokers": brokers, "bundles": bundles, "bundlesTotal": total, "unread": sorted(unread), "leader": leader}


def ring_json(
    bundles: Bundles,
    owners: Mapping[str, Owner],
    reports: Mapping[str, BrokerReport],
    only: str | None = None,
) -> list[dict[str, Any]]:
    """Return the bundles of a namespace, in order.

    Args:
        bundles: the boundaries.
        owners: by the range of the bundle; a bundle without an owner is absent.
        reports: by broker id.
        only: id of the one broker, where bundles have no owners; None: they have.
    """
    by_url = {report.broker.broker_url: broker_id for broker_id, report in reports.items()}
    found: list[dict[str, Any]] = []
    for bundle in bundles.all():
        owner = owners.get(bundle.range)
        broker_id = only if only is not None else None if owner is None else by_url.get(owner.broker_url)
        report = reports.get(broker_id or "")
        load = None if report is None else report.bundles.get(str(bundle))
        found.append(
            {
                "range": bundle.range,
                "low": bundle.low,
                "high": bundle.high,
                "broker": broker_id,
                "ownerUrl": None if owner is None else owner.broker_url,
                "unloading": owner is not None and owner.disabled,
                **load_json(BundleLoad() if load is None else load),
                "reported": load is not None,
            }
        )
    return found


# --- the reads


async def registered_reports(metadata: MetadataStore) -> tuple[dict[str, BrokerReport], list[str]]:
    """Return the reports of all registered brokers by id, and those that cannot be read. Raises BrokerError."""
    reports: dict[str, BrokerReport] = {}
    unread: list[str] = []
    with translated("brokers"):
        try:
            names = await metadata.children(BROKERS)
        except NoNodeError:
            names = []
        for broker_id in names[:BROKERS_MAX]:
            node = await metadata.get(f"{BROKERS}/{broker_id}")
            if node is None:
                continue
            try:
                reports[broker_id] = decode_report(broker_id, node.value)
            except BrokerError:
                unread.append(broker_id)
    return reports, unread


async def read_reports(call: AdminCall) -> tuple[dict[str, BrokerReport], list[str]]:
    """Return the same; where brokers do not register, the load of this one. Raises BrokerError."""
    if call.cluster.broker_id:
        return await registered_reports(call.cluster.metadata)
    found = await of_this_broker(call)
    # A server that has every bundle reports one for each namespace; the boundaries may say otherwise.
    known: dict[NamespaceName, Bundles] = {}
    loads: dict[str, BundleLoad] = {}
    for place, topic in enumerate(list(loaded_topics(call))):
        if place % NAMES_IN_STEP == 0:
            await trio.lowlevel.checkpoint()
        namespace = topic.name.namespace_name
        if namespace not in known:
            known[namespace] = await call.cluster.namespaces.bundles(namespace)
            loads |= {str(bundle): BundleLoad() for bundle in known[namespace].all()}
        bundle = str(known[namespace].find(topic.name))
        loads[bundle] = with_topic(loads[bundle], topic)
    return {call.broker_id: replace(found, bundles=loads)}, []


async def read_leader(call: AdminCall) -> str | None:
    """Return the id of the leader; None: there is none. Raises BrokerError."""
    if not call.cluster.broker_id:
        return call.broker_id
    with translated("the leader"):
        node = await call.cluster.metadata.get(LEADER)
    return None if node is None else decode_leader(node.value)


async def brokers_of(call: AdminCall) -> dict[str, Any]:
    """Return the brokers and bundles of the cluster."""
    reports, unread = await read_reports(call)
    return brokers_json(reports, await read_leader(call), call.broker_id, unread)


async def ring_of(call: AdminCall, namespace: NamespaceName) -> dict[str, Any]:
    """Return the ring of a namespace, with the places of topics on it. Raises TopicNotFoundError, BrokerError."""
    cluster = call.cluster
    bundles = await cluster.namespaces.bundles(namespace)
    owners: dict[str, Owner] = {}
    only = None if cluster.broker_id else call.broker_id
    if only is None:
        for bundle in bundles.all():
            with translated(bundle):
                node = await cluster.metadata.get(bundle.path)
            if node is not None:
                owners[bundle.range] = decode_owner(node.value)
    reports, _ = await read_reports(call)
    try:
        names = await call.administration.topics_of_namespace(namespace)
    except TopicNotFoundError:
        names = []
    loaded: dict[str, Topic | NonPersistentTopic] = {}
    async for topic in sliced(list(cluster.loaded()), NAMES_IN_STEP):
        if topic.name.namespace_name == namespace:
            loaded[topic.name.full] = topic
    topics: list[dict[str, Any]] = []
    async for full in sliced(names[:TOPICS_SHOWN], NAMES_IN_STEP):
        name = TopicName.parse(full)
        served = loaded.get(full)
        rates = None if served is None else served.context.measures.of(served)
        topics.append(
            {
                "topic": full,
                "place": hash_of(name),
                "range": bundles.find(name).range,
                "messagesIn": None if rates is None else round(rates.messages_in, 2),
                "messagesOut": None if rates is None else round(rates.messages_out, 2),
            }
        )
    return {
        "namespace": str(namespace),
        "bundles": ring_json(bundles, owners, reports, only),
        "topics": topics,
        "topicsTotal": len(names),
        "brokers": sorted(reports),
    }
