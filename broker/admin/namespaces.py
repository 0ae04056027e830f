"""/admin/v2/namespaces: namespaces and their bundles.

GET      namespaces/{tenant}                              "tenant/namespace" names; 404
GET      {namespace}                                      Policies; 404
PUT      {namespace}                                      204; body: Policies, {"bundles":{"numBundles":8}}, or none
                                                          403 a cluster that is not there, 404 no such tenant, 409, 412
DELETE   {namespace}?force=                               204; 404, 409 it has topics, 405 force is not allowed
GET      {namespace}/bundles                              {"boundaries":["0x00000000",...],"numBundles":4}
PUT      {namespace}/unload                               204: all its bundles
PUT      {namespace}/{bundle}/unload?destinationBroker=   204; 307, 404, 412 no such broker
DELETE   {namespace}/{bundle}?force=                      204: it has no owner until it is used; 307, 404, 409 it has
                                                          topics, 412 no such bundle
PUT      {namespace}/{bundle}/split?unload=&splitAlgorithmName=
                                                          204; body: positions of specified_positions_divide; 307, 404,
                                                          412
GET      {namespace}/{bundle}/topicHashPositions?topics=  {"namespace","bundle",
                                                       "topicHashPositions":{name:hash}}

`{namespace}` stands for namespaces/{tenant}/{namespace}. Source: Pulsar's NamespacesBase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio
from starlette.responses import Response

from broker.admin import schema_policies
from broker.admin.cluster import clusters
from broker.admin.cluster.brokers import living
from broker.admin.errors import (
    ForbiddenError,
    MalformedRequestError,
    NotEmptyError,
    NotPermittedError,
    PreconditionError,
    Statuses,
)
from broker.admin.openapi.parameters import AUTHORITATIVE, FORCE
from broker.admin.permissions.handlers import used
from broker.admin.policies import Checked, check_policy
from broker.admin.redirects import redirect, redirect_to
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import translated
from broker.ownership.bundles import (
    FLOW_EQUALLY,
    RANGE_EQUALLY,
    RING_END,
    SPLIT_ALGORITHMS,
    Bundle,
    hash_of,
    split_points,
)
from broker.ownership.errors import NamespaceBusyError, NoSuchBundleError
from broker.ownership.lookup import Connect
from broker.ownership.peers import topic_in
from broker.ownership.values import Owner, decode_owner, encode_bundles
from broker.security.authorization.grants import GrantsError, read_grants
from broker.topics import policy_values
from broker.topics.delayed_delivery import DELAYED_SHAPE, NAMESPACE_DELAYED, delayed_delivery
from broker.topics.policy_values import (
    DEDUPLICATION,
    NAMESPACE_RETENTION,
    NAMESPACE_TTL,
    PERSISTENCE,
    SNAPSHOT_INTERVAL,
    SUBSCRIPTION_EXPIRATION,
    interval,
    message_ttl,
    persistence,
    retention,
    subscription_expiration,
    switch,
)
from broker.topics.system_names import is_system_topic
from broker.topics.topic_policies.catalog import checked_namespace
from quire.service.unsupported.policies import create_problem
from quire.service.web.parameters import Flag, OneOf, Parameter, Texts
from quire.service.web.shapes import Anything, Body, ByName, Listing, Record, Text, Truth, Whole
from quire.wire.pulsar.names import DOMAINS, NamespaceName, TopicName

CHECKED: Final[Mapping[str, Checked]] = {
    PERSISTENCE: persistence,
    NAMESPACE_RETENTION: retention,
    DEDUPLICATION: switch,
    SNAPSHOT_INTERVAL: interval,
    NAMESPACE_DELAYED: delayed_delivery,
    NAMESPACE_TTL: message_ttl,
    SUBSCRIPTION_EXPIRATION: subscription_expiration,
}
"""Policies that a namespace may be made with."""
_UNLOAD = Flag("unload", "Unload the new bundles, too.")
_DESTINATION = Parameter("destinationBroker", "Broker that gets the bundle, such as host:8080.")
_ALGORITHM = OneOf("splitAlgorithmName", "Way in which a bundle is split.", SPLIT_ALGORITHMS, RANGE_EQUALLY)
_TOPICS = Texts("topics", "Full names of the topics that are wanted.")
_POSITIONS = Listing(Whole(0, RING_END))
BUNDLES_MAX = 1 << 16
"""Maximum number of bundles of a new namespace: each is a node, a lease and a line in memory."""
_OBJECT = ByName(Anything())
_POLICIES = Body(
    Record(
        {
            "bundles": Record({"numBundles": Whole(0, BUNDLES_MAX)}),
            "replication_clusters": Listing(Text()),
            PERSISTENCE: policy_values.PERSISTENCE_SHAPE,
            NAMESPACE_RETENTION: policy_values.RETENTION_SHAPE,
            DEDUPLICATION: Truth(),
            SNAPSHOT_INTERVAL: policy_values.NOT_NEGATIVE,
            NAMESPACE_DELAYED: DELAYED_SHAPE,
            NAMESPACE_TTL: policy_values.NOT_NEGATIVE,
            SUBSCRIPTION_EXPIRATION: policy_values.NOT_NEGATIVE,
            **schema_policies.NAMESPACE_CHOICES,
        }
    )
)
DELETIONS_MAX = 10
"""Rounds in which topics are deleted that were being made when their namespace was marked as deleted."""
GIVEN_UP_S = 10.0
"""Deadline for all brokers to give up the bundles of a deleted namespace."""


async def names(call: AdminCall) -> Response:
    return answer([str(name) for name in await call.cluster.namespaces.names(call.tenant())])


async def get(call: AdminCall) -> Response:
    namespace, namespaces = call.namespace(), call.cluster.namespaces
    policies = await namespaces.policies(namespace)
    return answer({**policies, "bundles": encode_bundles(await namespaces.bundles(namespace))})


async def create(call: AdminCall) -> None:
    namespace, body = call.namespace(), await call.json()
    body = _OBJECT.check({} if body is None else body, "namespace policies", MalformedRequestError)
    given = {key: value for key, value in body.items() if value is not None}
    _check_bundles(given.get("bundles"))
    _POLICIES.check(given, "namespace policies", PreconditionError)
    problem = create_problem(given)
    if problem is not None:
        raise PreconditionError(problem)
    replication = given.get("replication_clusters", given.get("replicationClusters"))
    if isinstance(replication, list) and (
        missing := sorted(set(map(str, replication)) - set(await clusters.known(call)))
    ):
        raise ForbiddenError(f"Invalid cluster id: {', '.join(missing)}")
    if not replication:
        given.pop("replication_clusters", None)
    for key, checked in CHECKED.items():
        if key in given:
            given[key] = check_policy(call, checked, given[key])
    options = call.cluster.policies.defaults.options
    given |= check_policy(call, lambda value: checked_namespace(given, options), given)
    try:
        read_grants(given)
    except GrantsError as error:
        raise PreconditionError(str(error)) from error
    await call.cluster.namespaces.create(namespace, given)
    await used(call, str(namespace))


def _check_bundles(data: object) -> None:
    if data is None:
        return
    count = data.get("numBundles", 0) if isinstance(data, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= BUNDLES_MAX:
        raise PreconditionError(
            f"Invalid number of bundles. Number of bundles has to be in the range of (0, {BUNDLES_MAX}]"
        )


async def delete(call: AdminCall) -> None:
    namespace, force = call.namespace(), call.flag(FORCE)
    if force and not call.cluster.force_delete_namespace():
        raise NotPermittedError("Broker doesn't allow forced deletion of namespaces")
    if force:
        await delete_with_topics(call, namespace)
    else:
        topics = await call.administration.topics_of_namespace(namespace)
        direct = await call.administration.direct.names_everywhere(namespace)
        if direct or not all(is_system_topic(TopicName.parse(each)) for each in topics):
            raise NotEmptyError("Cannot delete non empty namespace")
        await (delete_with_topics(call, namespace) if topics else _delete(call, namespace))


async def delete_with_topics(call: AdminCall, namespace: NamespaceName) -> None:
    """Delete the namespace with its topics, even those in use.

    First it is marked, so that connected clients cannot make their topics again. What was under way before the mark
    takes a second round. An interrupted deletion leaves the mark; another call completes it. Raises NamespaceBusyError
    if there are still topics after DELETIONS_MAX rounds."""
    bundles = await call.cluster.namespaces.bundles(namespace)
    await call.cluster.namespaces.mark_deleted(namespace)
    for attempt in range(1, DELETIONS_MAX + 1):
        for domain in DOMAINS:
            for full in await call.administration.partitioned_topics_of_namespace(namespace, domain):
                await call.administration.delete_partitioned_topic(TopicName.parse(full), True)
        for full in await call.administration.topics_of_namespace(namespace):
            await call.administration.delete_wherever(TopicName.parse(full))
        for name in await call.administration.direct.names_everywhere(namespace):
            await call.administration.delete_wherever(name)
        try:
            await _delete(call, namespace)
            break
        except NamespaceBusyError:
            if attempt == DELETIONS_MAX:
                raise
    # A broker may have been making a topic while the namespace was deleted. None is once all bundles are given up.
    with trio.move_on_after(GIVEN_UP_S):
        for bundle in bundles.all():
            await _given_up(call, bundle)
    await call.administration.delete_left_over(namespace)


async def _given_up(call: AdminCall, bundle: Bundle) -> None:
    """Wait until the bundle has no owner."""
    watch = call.cluster.metadata.watch(bundle.path)
    try:
        while await _owner(call, bundle) is not None:
            await watch.next()
    finally:
        watch.close()


async def _delete(call: AdminCall, namespace: NamespaceName) -> None:
    await call.cluster.namespaces.delete(namespace)
    await call.cluster.policies.delete_namespace(namespace)


# Bundles


async def bundles(call: AdminCall) -> Response:
    return answer(encode_bundles(await call.cluster.namespaces.bundles(call.namespace())))


async def unload_all(call: AdminCall) -> None:
    """Unload each bundle at its owner. A bundle without an owner needs nothing."""
    cluster, namespace = call.cluster, call.namespace()
    found = await cluster.namespaces.bundles(namespace)
    if not cluster.broker_id:
        await _unload_topics(call, found.all())
        return
    for bundle in found.all():
        owner = await _owner(call, bundle)
        if owner is None:
            continue
        if owner.is_at(call.service.broker_url()):
            await cluster.ownership.unload(bundle)
        elif cluster.others is not None:
            path = f"/admin/v2/namespaces/{namespace}/{bundle.range}/unload"
            await cluster.others.call(cluster.others.url_of(owner), "PUT", path)


UNLOADING: Statuses = {NoSuchBundleError: 412}


async def unload(call: AdminCall) -> None:
    cluster, bundle = call.cluster, await _bundle(call)
    destination = call.given(_DESTINATION)
    if destination and destination not in await living(call):
        raise PreconditionError(f"destinationBroker: there is no broker {destination[:100]!a}")
    if not cluster.broker_id:
        await _unload_topics(call, [bundle])
        return
    owner = await _owner(call, bundle)
    if owner is None and not destination:
        return
    if owner is None:
        # It is first taken by the broker that should have it, which offers it to the destination.
        found = await cluster.ownership.lookup(topic_in(bundle), authoritative=call.flag(AUTHORITATIVE))
        if not (isinstance(found, Connect) and found.mine):
            raise redirect(call, found)
    elif not owner.is_at(call.service.broker_url()):
        raise redirect_to(call, owner)
    await cluster.ownership.unload(bundle, destination=destination or None)


async def delete_bundle(call: AdminCall) -> None:
    """Make the owner of a bundle give it up. Without force there must be no topic in it; topics stay in any case, and
    the next client makes a broker take the bundle again. The boundaries do not change."""
    bundle, force = await _bundle(call), call.flag(FORCE)
    if not force:
        for full in await call.administration.topics_of_namespace(call.namespace()):
            if bundle.has(TopicName.parse(full)):
                raise NotEmptyError("Cannot delete non empty bundle")
    if not call.cluster.broker_id:
        await _unload_topics(call, [bundle])
        return
    owner = await _owner(call, bundle)
    if owner is None:
        return
    if not owner.is_at(call.service.broker_url()):
        raise redirect_to(call, owner)
    await call.cluster.ownership.unload(bundle)


async def _unload_topics(call: AdminCall, bundles: Sequence[Bundle]) -> None:
    """Unload topics where there is one broker: no bundle has an owner that could give it up."""
    for full in await call.administration.topics_of_namespace(call.namespace()):
        name = TopicName.parse(full)
        if any(bundle.has(name) for bundle in bundles):
            await call.administration.unload_topic(name)
    for bundle in bundles:
        await call.administration.direct.unload(bundle)


async def split(call: AdminCall) -> None:
    bundle, then_unload = await _bundle_to_split(call), call.flag(_UNLOAD)
    algorithm = call.given(_ALGORITHM) or _ALGORITHM.default
    if algorithm not in _ALGORITHM.choices:
        raise PreconditionError(
            f"Unsupported namespace bundle split algorithm, supported algorithms are {SPLIT_ALGORITHMS}"
        )
    positions = _positions(await call.json())
    if not call.cluster.broker_id:
        await _split_here(call, bundle, algorithm, positions)
        return
    # A bundle without an owner is first taken by the broker that should have it.
    found = await call.cluster.ownership.lookup(topic_in(bundle), authoritative=call.flag(AUTHORITATIVE))
    if not (isinstance(found, Connect) and found.mine):
        raise redirect(call, found)
    await call.cluster.ownership.split(bundle, algorithm=algorithm, unload=then_unload, positions=positions)


async def hash_positions(call: AdminCall) -> Response:
    """Answer the places of topics in a bundle, of those that `?topics=` names or all."""
    bundle = await _bundle(call)
    names = map(TopicName.parse, await call.administration.topics_of_namespace(call.namespace()))
    found = {name.full: hash_of(name) for name in names if bundle.has(name)}
    wanted = call.texts(_TOPICS)
    shown = {full: place for full, place in found.items() if not wanted or full in wanted}
    return answer({"namespace": str(call.namespace()), "bundle": bundle.range, "topicHashPositions": shown})


async def _split_here(call: AdminCall, bundle: Bundle, algorithm: str, positions: Sequence[int]) -> None:
    """Split where there is one broker. It has all bundles without any lease, so only the boundaries change."""
    if algorithm == FLOW_EQUALLY:
        raise PreconditionError(
            f"a standalone server measures no rates of bundles, which {algorithm} needs; use {RANGE_EQUALLY}"
        )
    names = map(TopicName.parse, await call.administration.topics_of_namespace(call.namespace()))
    weights = [(hash_of(name), 1.0) for name in names if bundle.has(name)]
    cuts = split_points(bundle, algorithm, positions=positions, weights=weights)
    before = await call.cluster.namespaces.bundles(bundle.namespace)
    await call.cluster.namespaces.update_bundles(before, lambda bundles: bundles.split(bundle, cuts))


def _positions(body: Any) -> tuple[int, ...]:
    if body is None:
        return ()
    return tuple(_POSITIONS.check(body, "positions", MalformedRequestError))


async def _bundle(call: AdminCall) -> Bundle:
    return (await call.cluster.namespaces.bundles(call.namespace())).bundle(call.part("bundle"))


async def _bundle_to_split(call: AdminCall) -> Bundle:
    """Return the bundle of the path, or for `LARGEST` the one with the most topics; `HOT` needs rates of bundles."""
    wanted = call.part("bundle")
    bundles = await call.cluster.namespaces.bundles(call.namespace())
    if wanted == "HOT":
        raise PreconditionError("the bundle with the highest rates is not known: name one, or LARGEST for most topics")
    if wanted != "LARGEST":
        return bundles.bundle(wanted)
    names = await call.administration.topics_of_namespace(call.namespace())
    counts = Counter(bundles.find(TopicName.parse(each)).range for each in names)
    if not counts:
        raise PreconditionError(f"namespace {call.namespace()} has no topics, so no bundle is the largest")
    return bundles.bundle(max(sorted(counts), key=counts.__getitem__))


async def _owner(call: AdminCall, bundle: Bundle) -> Owner | None:
    with translated(bundle):
        node = await call.cluster.metadata.get(bundle.path)
    return None if node is None else decode_owner(node.value)
