"""Grants in the Policies of a namespace, as Pulsar stores them, and changes of them (pure).

    auth_policies.namespace_auth             {"role": ["produce", "consume"]}
    auth_policies.destination_auth           {"persistent://t/n/topic": {"role": ["consume"]}}
    auth_policies.subscription_auth_roles    {"subscription": ["role"]}
    subscription_auth_mode                   "None", "Prefix"

Why this is hard: what cannot be read must not count as "no restriction". A list of roles of a subscription restricts,
and so does the mode. Therefore a part of another shape than expected is an error, which refuses, and is never skipped.
Unknown actions of a role are skipped: they permit nothing here.

Source: Pulsar's AuthPolicies, SubscriptionAuthMode, PulsarAuthorizationProvider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from quire.service.web.shapes import Listing, OneText

Json: TypeAlias = dict[str, Any]
Actions: TypeAlias = Mapping[str, frozenset[str]]
"""Actions by role."""

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
ACTIONS: Final = (PRODUCE, CONSUME, "functions", "sources", "sinks", "packages")
"""Source: Pulsar's AuthAction."""

AUTH: Final = "auth_policies"
OF_NAMESPACE: Final = "namespace_auth"
OF_TOPICS: Final = "destination_auth"
OF_SUBSCRIPTIONS: Final = "subscription_auth_roles"
MODE: Final = "subscription_auth_mode"
NO_MODE: Final = "None"
PREFIX: Final = "Prefix"
MODES: Final = (NO_MODE, PREFIX)
_ACTIONS: Final = Listing(OneText(ACTIONS))
_MODE: Final = OneText(MODES)


class GrantsError(Exception):
    """Grants that cannot be read, or that may not be set. Permanent until they are corrected."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Grants in one namespace."""

    namespace: Actions = field(default_factory=dict)
    topics: Mapping[str, Actions] = field(default_factory=dict)
    """By full name."""
    subscriptions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Roles by subscription; an empty set does not restrict."""
    is_prefix_mode: bool = False
    """True if the name of a subscription has to begin with the role."""


NONE: Final = Grants()


def read_grants(policies: Mapping[str, Any] | None) -> Grants:
    """Return the grants in Policies; None: there is no such namespace, and no grant. Raises GrantsError."""
    if policies is None:
        return NONE
    auth = _object(policies.get(AUTH), AUTH)
    mode = policies.get(MODE)
    if mode not in (None, *MODES):
        raise GrantsError(f"{MODE} is {mode!a}; it must be one of {', '.join(MODES)}")
    return Grants(
        namespace=_actions(auth.get(OF_NAMESPACE), OF_NAMESPACE),
        topics={
            full: _actions(roles, f"{OF_TOPICS} of {full}")
            for full, roles in _object(auth.get(OF_TOPICS), OF_TOPICS).items()
        },
        subscriptions={
            name: frozenset(_texts(roles, f"{OF_SUBSCRIPTIONS} of {name}"))
            for name, roles in _object(auth.get(OF_SUBSCRIPTIONS), OF_SUBSCRIPTIONS).items()
        },
        is_prefix_mode=mode == PREFIX,
    )


def read_admins(tenant: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the admin roles in a TenantInfo; None: there is no such tenant, and no admin. Raises GrantsError."""
    return frozenset() if tenant is None else frozenset(_texts(tenant.get("adminRoles"), "adminRoles"))


def _object(value: object, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise GrantsError(f"{what} is not a JSON object")
    return value


def _texts(value: object, what: str) -> Sequence[str]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise GrantsError(f"{what} is not a list of strings")
    return value


def _actions(value: object, what: str) -> Actions:
    return {role: frozenset(_texts(found, what)) for role, found in _object(value, what).items()}


# Changes: each takes Policies, and returns others

Change: TypeAlias = Callable[[Json], Json]


def checked_actions(value: object) -> list[str]:
    """Return the actions of a request, each once. Raises GrantsError."""
    return list(dict.fromkeys(_ACTIONS.check(value, "actions", GrantsError)))


def checked_mode(value: object) -> str:
    """Return a subscriptionAuthMode; nothing means None. Raises GrantsError."""
    return NO_MODE if value is None else _MODE.check(value, "subscriptionAuthMode", GrantsError)


def grant_on_namespace(role: str, actions: Sequence[str]) -> Change:
    """Return a change that gives a role exactly these actions in the namespace."""
    return lambda policies: _with(policies, OF_NAMESPACE, lambda kept: {**kept, role: list(actions)})


def revoke_on_namespace(role: str) -> Change:
    """Return a change that takes all actions in the namespace from a role; its grants on topics remain."""
    return lambda policies: _with(policies, OF_NAMESPACE, lambda kept: _without(kept, role))


def grant_on_topics(grants: Iterable[tuple[str, str, Sequence[str]]]) -> Change:
    """Return a change that gives roles actions on topics: full name, role, actions."""
    given = list(grants)

    def changed(kept: Json) -> Json:
        for full, role, actions in given:
            kept = {**kept, full: {**_object(kept.get(full), full), role: list(actions)}}
        return kept

    return lambda policies: _with(policies, OF_TOPICS, changed)


def revoke_on_topics(revoked: Iterable[tuple[str, str]]) -> Change:
    """Return a change that takes all actions on topics from roles: full name, role. A topic without grants is left
    out."""
    taken = list(revoked)

    def changed(kept: Json) -> Json:
        for full, role in taken:
            rest = _without(_object(kept.get(full), full), role)
            kept = {**kept, full: rest} if rest else _without(kept, full)
        return kept

    return lambda policies: _with(policies, OF_TOPICS, changed)


def forget_topic(full: str) -> Change:
    """Return a change that takes away all grants on a deleted topic and on its partitions."""

    def changed(kept: Json) -> Json:
        partition = f"{full}-partition-"
        return {
            name: roles
            for name, roles in kept.items()
            if name != full and not (name.startswith(partition) and name.removeprefix(partition).isdecimal())
        }

    return lambda policies: _with(policies, OF_TOPICS, changed) if _has_topics(policies) else policies


def grant_on_subscription(subscription: str, roles: Sequence[str]) -> Change:
    """Return a change that lets only these roles use a subscription of the namespace."""
    return lambda policies: _with(policies, OF_SUBSCRIPTIONS, lambda kept: {**kept, subscription: list(roles)})


def revoke_on_subscription(subscription: str, role: str) -> Change:
    """Return a change that takes one role out of the list of a subscription.

    The last one takes the list with it, and without a list there is no restriction. Raises GrantsError, when called, if
    there is no list."""

    def changed(kept: Json) -> Json:
        if subscription not in kept:
            raise GrantsError(f"subscription {subscription!a} has no list of roles")
        roles = [each for each in _texts(kept[subscription], subscription) if each != role]
        return {**kept, subscription: roles} if roles else _without(kept, subscription)

    return lambda policies: _with(policies, OF_SUBSCRIPTIONS, changed)


def _with(policies: Json, part: str, changed: Callable[[Json], Json]) -> Json:
    auth = dict(_object(policies.get(AUTH), AUTH))
    return {**policies, AUTH: {**auth, part: changed(dict(_object(auth.get(part), part)))}}


def _has_topics(policies: Json) -> bool:
    return bool(_object(policies.get(AUTH), AUTH).get(OF_TOPICS))


def _without(kept: Mapping[str, Any], key: str) -> Json:
    return {each: value for each, value in kept.items() if each != key}
