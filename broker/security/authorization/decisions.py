"""Decisions: may a principal do something (pure).

Why this is hard: many rules permit, and only some restrict, so their order matters. A super user may do everything, and
an admin of the tenant everything in it; neither is restricted by lists of subscriptions. All others need one grant, of
the namespace or of the topic, by the exact role or by a wildcard, and beside it a list of roles of the subscription,
and the mode Prefix, restrict them. With a proxy this holds for each of two roles by itself. A tenant or namespace that
does not exist has no admins and no grants, so the answer is that of one that exists and permits nothing: the caller
cannot distinguish them.

Source: Pulsar's PulsarAuthorizationProvider, AuthorizationService. There a wildcard in a grant on a partitioned topic
does not hold for partitions that were added later; here it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.security.authorization.config import AuthorizationOptions
from broker.security.authorization.grants import CONSUME, NONE, PRODUCE, Actions, Grants
from broker.security.authorization.permissions import OF_TOPIC, Need, Permission
from broker.security.principal import Principal


class Decision(NamedTuple):
    """A decision, with the reason for logs and errors. The reason names roles and what was asked for, and never
    whether that exists."""

    allowed: bool
    reason: str


class Facts(NamedTuple):
    """Stored facts about a tenant and a namespace."""

    admins: frozenset[str] = frozenset()
    grants: Grants = NONE


NO_FACTS: Final = Facts()
_ACTIONS: Final[Mapping[Permission, tuple[str, ...]]] = {
    Permission.LOOKUP_NAMESPACE: (PRODUCE, CONSUME),
    Permission.CONSUME_NAMESPACE: (CONSUME,),
    Permission.FUNCTIONS: ("functions",),
    Permission.SOURCES: ("sources",),
    Permission.SINKS: ("sinks",),
    Permission.PACKAGES: ("packages",),
    Permission.LOOKUP: (PRODUCE, CONSUME),
    Permission.PRODUCE: (PRODUCE,),
    Permission.CONSUME: (CONSUME,),
}
"""Actions of which one is needed."""


class RoleRules:
    """RoleRules of one broker."""

    def __init__(self, options: AuthorizationOptions) -> None:
        self.super_users = frozenset(options.super_users)
        self._proxies = frozenset(options.proxies)
        self._wildcards = options.wildcards

    def at_once(self, principal: Principal | None, need: Need) -> Decision | None:
        """Decide without stored facts; None: they are needed."""
        if need.permission is Permission.NOTHING:
            return Decision(True, "nothing is needed")
        roles = self._roles(principal)
        if isinstance(roles, Decision):
            return roles
        if need.permission is Permission.ANY_ROLE:
            return Decision(True, "any role may do this")
        if all(role in self.super_users for role in roles):
            return Decision(True, "a super user may do everything")
        if not need.tenant or need.permission in (Permission.SUPER_USER, Permission.TRANSACTION_OWNER):
            return self.decide(principal, need, NO_FACTS)
        return None

    def decide(self, principal: Principal | None, need: Need, facts: Facts) -> Decision:
        """Decide. Of a transaction, its owner is compared by the caller; here only super users are permitted."""
        if need.permission is Permission.NOTHING:
            return Decision(True, "nothing is needed")
        roles = self._roles(principal)
        if isinstance(roles, Decision):
            return roles
        decision = Decision(False, "there is no role")
        for role in roles:
            decision = self._decide(role, need, facts)
            if not decision.allowed:
                break
        return decision

    def needs_grants(self, principal: Principal | None, facts: Facts) -> bool:
        """Return whether grants matter: some role of the principal is neither super user nor admin of the tenant."""
        roles = self._roles(principal)
        return not isinstance(roles, Decision) and not all(
            role in self.super_users or role in facts.admins for role in roles
        )

    def _roles(self, principal: Principal | None) -> tuple[str, ...] | Decision:
        """Return the roles of which each needs the permission, or the refusal of an impossible principal."""
        if principal is None or not principal.role:
            return Decision(False, "there is no role: authenticate first")
        role, original = principal.role, principal.original
        if role in self._proxies:
            if not original:
                return Decision(False, f"proxy {role!a} names no original principal")
            if original in self._proxies:
                return Decision(False, f"proxy {role!a} names the proxy {original!a} as original principal")
            return (role, original)
        if original and original != role:
            return Decision(False, f"role {role!a} is no proxy, and may not name an original principal")
        return (role,)

    def _decide(self, role: str, need: Need, facts: Facts) -> Decision:
        permission = need.permission
        if role in self.super_users:
            return Decision(True, f"role {role!a} is a super user")
        if permission is Permission.ANY_ROLE:
            return Decision(True, "any role may do this")
        if permission not in (Permission.SUPER_USER, Permission.TRANSACTION_OWNER) and role in facts.admins:
            return Decision(True, f"role {role!a} is an admin of tenant {need.tenant}")
        found = [each for each in _ACTIONS.get(permission, ()) if self._is_granted(role, each, need, facts.grants)]
        if not found:
            place = f" ({need.place})" if need.place else ""
            return Decision(False, f"role {role!a} is not permitted: it needs {permission.value}{place}")
        # Behind the grants, so that a role without one does not learn of the list.
        if permission is Permission.CONSUME and need.subscription:
            refused = self._restricted(role, need.subscription, facts.grants)
            if refused:
                return Decision(False, refused)
        return Decision(True, f"role {role!a} has {found[0]}")

    @staticmethod
    def _restricted(role: str, subscription: str, grants: Grants) -> str:
        """Return why a role may not use a subscription, whatever it may on the topic; empty if it may."""
        listed = grants.subscriptions.get(subscription)
        if listed and role not in listed:
            return f"role {role!a} is not permitted on subscription {subscription!a}, which has a list of roles"
        if grants.is_prefix_mode and not subscription.startswith(role):
            return f"role {role!a} is not permitted: subscriptions of this namespace begin with the role"
        return ""

    def _is_granted(self, role: str, action: str, need: Need, grants: Grants) -> bool:
        if self._has(grants.namespace, role, action):
            return True
        if need.topic is None or need.permission not in OF_TOPIC:
            return False
        names = [need.topic.full]
        if need.topic.partition >= 0:
            names.append(need.topic.partitioned.full)
        return any(self._has(grants.topics[name], role, action) for name in names if name in grants.topics)

    def _has(self, granted: Actions, role: str, action: str) -> bool:
        if action in granted.get(role, ()):
            return True
        return self._wildcards and action in _by_wildcard(granted, role)


def _by_wildcard(granted: Actions, role: str) -> Iterable[str]:
    """Return the actions of all wildcards that match a role: a prefix and `*`, or `*` and a suffix.

    >>> sorted(_by_wildcard({"app-*": frozenset(["produce"]), "*-east": frozenset(["consume"])}, "app-east"))
    ['consume', 'produce']
    """
    found: set[str] = set()
    for pattern, actions in granted.items():
        if (pattern.endswith("*") and role.startswith(pattern[:-1])) or (
            pattern.startswith("*") and role.endswith(pattern[1:])
        ):
            found |= actions
    return found
