"""Permissions of roles on namespaces, topics and subscriptions.

GET      {namespace}/permissions                          {"role":["produce","consume"]}
POST     {namespace}/permissions/{role}                   204; body: ["produce","consume"]; 400, 404
DELETE   {namespace}/permissions/{role}                   204
GET      {namespace}/permissions/subscription             {"subscription":["role"]}: only these roles may use it
POST     {namespace}/permissions/subscription/{subscription}     204; body: ["role"]
DELETE   {namespace}/permissions/{subscription}/{role}    204; 404 the subscription has no list
GET      {topic}/permissions                              those of the namespace and of the topic; 404
POST     {topic}/permissions/{role}                       204; 404 unless allowAclChangesOnNonExistentTopics
DELETE   {topic}/permissions/{role}                       204, also on each partition; 404
POST     namespaces/grantPermissionsOnTopics              204; body: [{"topic","role","actions"}], all of one namespace
POST     namespaces/revokePermissionsOnTopics             204; body: [{"topic","role"}], all of one namespace
GET, POST   {namespace}/subscriptionAuthMode              "None", or "Prefix": subscriptions begin with the role

Any broker answers, and uses the change when it answers; the others a moment later. Clients that lose a permission lose
their producers and consumers. Actions are produce, consume, functions, sources, sinks, packages.

Source: Pulsar's NamespacesBase, PersistentTopicsBase, PulsarAuthorizationProvider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, NotThereError
from broker.admin.permissions.access import check_tenant_admin
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import TopicNotFoundError
from broker.security.authorization import grants
from broker.security.authorization.grants import GrantsError
from quire.service.web.shapes import Anything, Body, Listing, Record, Text
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import PERSISTENT, NamespaceName, TopicName

T = TypeVar("T")

_ROLES = Listing(Text(1))
_GRANTS = Body(
    Listing(Record({"topic": Text(), "role": Text(1), "actions": Anything()}, needed=("topic", "role")), minimum=1)
)
MANY_BYTES_MAX = 1 << 20
"""Maximum bytes of a body about many topics."""
GRANT_MANY = "/admin/v2/namespaces/grantPermissionsOnTopics"
REVOKE_MANY = "/admin/v2/namespaces/revokePermissionsOnTopics"


# A namespace


async def of_namespace(call: AdminCall) -> Response:
    return answer(await _part(call, call.namespace(), grants.OF_NAMESPACE))


async def grant(call: AdminCall) -> None:
    namespace, role = call.namespace(), call.part("role")
    actions = _checked(grants.checked_actions, await call.json())
    await _change(call, namespace, grants.grant_on_namespace(role, actions))


async def revoke(call: AdminCall) -> None:
    await _change(call, call.namespace(), grants.revoke_on_namespace(call.part("role")))


async def of_subscriptions(call: AdminCall) -> Response:
    return answer(await _part(call, call.namespace(), grants.OF_SUBSCRIPTIONS))


async def grant_on_subscription(call: AdminCall) -> None:
    namespace, subscription = call.namespace(), call.subscription()
    roles = _ROLES.check(await call.json(), "roles", MalformedRequestError)
    await _change(call, namespace, grants.grant_on_subscription(subscription, list(dict.fromkeys(roles))))


async def revoke_on_subscription(call: AdminCall) -> None:
    namespace = call.namespace()
    try:
        await _change(call, namespace, grants.revoke_on_subscription(call.subscription(), call.part("role")))
    except GrantsError as error:
        raise NotThereError(str(error)) from error


async def mode(call: AdminCall) -> Response:
    policies = await call.cluster.namespaces.policies(call.namespace())
    return answer(policies.get(grants.MODE) or grants.NO_MODE)


async def set_mode(call: AdminCall) -> None:
    namespace, value = call.namespace(), _checked(grants.checked_mode, await call.json())
    await _change(call, namespace, lambda policies: {**policies, grants.MODE: value})


# Topics


async def of_topic(call: AdminCall) -> Response:
    """Answer the union of the grants of the namespace and of the topic."""
    name = await _topic(call)
    found: dict[str, Sequence[str]] = dict(await _part(call, name.namespace_name, grants.OF_NAMESPACE))
    own = (await _part(call, name.namespace_name, grants.OF_TOPICS)).get(name.full) or {}
    for role, actions in own.items():
        found[role] = list(dict.fromkeys([*found.get(role, ()), *actions]))
    return answer(found)


async def grant_on_topic(call: AdminCall) -> None:
    name, role = await _topic(call), call.part("role")
    actions = _checked(grants.checked_actions, await call.json())
    await _change(call, name.namespace_name, grants.grant_on_topics([(name.full, role, actions)]))


async def revoke_on_topic(call: AdminCall) -> None:
    name, role = await _topic(call), call.part("role")
    count = await _partitions(call, name)
    names = [name, *(name.with_partition(index) for index in range(count))]
    await _change(call, name.namespace_name, grants.revoke_on_topics((each.full, role) for each in names))


async def grant_many(call: AdminCall) -> None:
    found = await _many(call, GRANT_MANY)
    given = [(name.full, role, _checked(grants.checked_actions, each.get("actions"))) for name, role, each in found]
    await _change(call, found[0][0].namespace_name, grants.grant_on_topics(given))


async def revoke_many(call: AdminCall) -> None:
    found = await _many(call, REVOKE_MANY)
    revoked = [(name.full, role) for name, role, _ in found]
    await _change(call, found[0][0].namespace_name, grants.revoke_on_topics(revoked))


async def forget_topic(call: AdminCall, name: TopicName) -> None:
    """Take away the grants on a topic that was deleted, so that they do not hold for another one of its name.

    Source: Pulsar's PulsarAuthorizationProvider.removePermissionsAsync."""
    if call.service.cluster is None:
        return
    try:
        await _change(call, name.namespace_name, grants.forget_topic(name.full))
    except TopicNotFoundError:
        pass  # its namespace was deleted too


async def _many(call: AdminCall, pattern: str) -> list[tuple[TopicName, str, Mapping[str, Any]]]:
    """Return the topics and roles of a body, at least one; permitted, and of one namespace."""
    body = await call.json(MANY_BYTES_MAX)
    _GRANTS.shape.check(body, "the body", MalformedRequestError)
    found: list[tuple[TopicName, str, Mapping[str, Any]]] = []
    for each in body:
        try:
            found.append((TopicName.parse(each["topic"]), each["role"], each))
        except InvalidNameError as error:
            raise MalformedRequestError(str(error)) from error
    namespace = found[0][0].namespace_name
    await check_tenant_admin(call, namespace, pattern)
    if any(name.namespace_name != namespace for name, _, _ in found):
        raise NotThereError("the topics must be in one namespace")  # the original's status
    for name in dict.fromkeys(name for name, _, _ in found):
        await _check_exists(call, name)
    return found


async def _topic(call: AdminCall) -> TopicName:
    """Return the topic of the path. Raises TopicNotFoundError unless it may be missing."""
    name = call.topic()
    await _check_exists(call, name)
    return name


async def _check_exists(call: AdminCall, name: TopicName) -> None:
    """Raise TopicNotFoundError for a missing topic, unless permissions of missing ones may be changed."""
    authorizer, administration = call.service.authorizer, call.administration
    if authorizer is not None and authorizer.options.grants_on_missing_topics:
        return
    if await administration.partitions(name.partitioned):
        return
    if name.domain == PERSISTENT:
        exists = await administration.exists(name)
    else:
        exists = name in await administration.direct.names_everywhere(name.namespace_name)
    if not exists:
        raise TopicNotFoundError(f"topic {name.full} does not exist")


async def _partitions(call: AdminCall, name: TopicName) -> int:
    return 0 if name.partition >= 0 else await call.administration.partitions(name)


# Policies


async def _part(call: AdminCall, namespace: NamespaceName, part: str) -> Mapping[str, Any]:
    policies = await call.cluster.namespaces.policies(namespace)
    found = (policies.get(grants.AUTH) or {}).get(part)
    return found if isinstance(found, dict) else {}


async def _change(call: AdminCall, namespace: NamespaceName, change: grants.Change) -> None:
    await call.cluster.namespaces.update_policies(namespace, change)
    await used(call, str(namespace))


async def used(call: AdminCall, path: str) -> None:
    """Use the permissions that were just stored for a tenant, or for tenant/namespace. Raises ServiceNotReadyError."""
    if call.service.authorizer is not None:
        await call.service.authorizer.refresh(path)


def _checked(check: Any, value: object) -> Any:
    try:
        return check(value)
    except GrantsError as error:
        raise MalformedRequestError(str(error)) from error
