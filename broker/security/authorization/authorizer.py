"""Decisions of one broker: rules and what they need to know, from memory where it is known."""

from __future__ import annotations

from collections.abc import Callable

import trio

from broker.errors import AuthorizationError
from broker.ownership.tenants import POLICIES
from broker.security.authorization.config import AuthorizationOptions
from broker.security.authorization.decisions import Decision, Facts, RoleRules
from broker.security.authorization.grants import Grants, read_admins, read_grants
from broker.security.authorization.nodes import Followed, Nodes
from broker.security.authorization.permissions import Need
from broker.security.principal import Principal
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger

log = get_logger(__name__)


class Authorizer:
    """Decisions about principals. Made only where authorization is on."""

    def __init__(self, metadata: MetadataStore, options: AuthorizationOptions) -> None:
        self.options = options
        self.on_change: Callable[[Followed[frozenset[str]] | Followed[Grants]], None] = _ignore
        """Called when the permissions in a tenant or namespace have changed."""
        self.refused = 0
        """Number of refusals."""
        self._rules = RoleRules(options)
        self._tenants: Nodes[frozenset[str]] = Nodes(metadata, read_admins, lambda node: self.on_change(node))
        self._namespaces: Nodes[Grants] = Nodes(metadata, read_grants, lambda node: self.on_change(node))

    def options_changed(self) -> bool:
        """Obey the super users that the options name now; return whether they are others than before."""
        before, self._rules = self._rules, RoleRules(self.options)
        return before.super_users != self._rules.super_users

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow tenants and namespaces until cancelled. Before it runs every decision reads."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._tenants.run)
            await nursery.start(self._namespaces.run)
            task_status.started()

    def at_once(
        self, principal: Principal | None, need: Need, user: object = None, *, relies_on_memory: bool = False
    ) -> Decision | None:
        """Decide from memory; None: something has to be read first, also before a refusal.

        Args:
            user: what depends on the decision as long as it exists, and is checked again when it may have changed.
            relies_on_memory: also refuse because of what is in memory.
        """
        found = self._rules.at_once(principal, need)
        if found is not None:
            return found
        tenant = self._tenants.known(f"{POLICIES}/{need.tenant}")
        if tenant is None:
            return None
        namespace: Followed[Grants] | None = None
        if self._needs_grants(principal, need, tenant):
            namespace = self._namespaces.known(f"{POLICIES}/{need.namespace}")
            if namespace is None:
                return None
        decision = self._decided(principal, need, user, tenant, namespace)
        return decision if decision.allowed or relies_on_memory else None

    async def decide(self, principal: Principal | None, need: Need, user: object = None) -> Decision:
        """Decide; before a refusal what it relies on is read. Raises ServiceNotReadyError if it cannot be read now."""
        while True:
            found = self.at_once(principal, need, user)
            if found is not None:
                return found
            tenant = await self._tenants.newer(f"{POLICIES}/{need.tenant}")
            namespace: Followed[Grants] | None = None
            if self._needs_grants(principal, need, tenant):
                namespace = await self._namespaces.newer(f"{POLICIES}/{need.namespace}")
            # A node that is no longer followed would not report its changes to the user.
            is_kept = self._tenants.keeps(tenant) and (namespace is None or self._namespaces.keeps(namespace))
            if is_kept:
                return self._decided(principal, need, user, tenant, namespace)

    def _needs_grants(self, principal: Principal | None, need: Need, tenant: Followed[frozenset[str]]) -> bool:
        return bool(need.namespace) and self._rules.needs_grants(principal, Facts(tenant.value))

    def _decided(
        self,
        principal: Principal | None,
        need: Need,
        user: object,
        tenant: Followed[frozenset[str]],
        namespace: Followed[Grants] | None,
    ) -> Decision:
        facts = Facts(tenant.value) if namespace is None else Facts(tenant.value, namespace.value)
        decision = self._rules.decide(principal, need, facts)
        if user is not None and decision.allowed:
            tenant.users.add(user)
            if namespace is not None:
                namespace.users.add(user)
        return decision

    async def require(self, principal: Principal | None, need: Need, user: object = None) -> None:
        """Raise AuthorizationError if it is not permitted; ServiceNotReadyError if this cannot be decided now."""
        self.judge(need, await self.decide(principal, need, user))

    def judge(self, need: Need, decision: Decision) -> None:
        """Raise AuthorizationError for a refusal."""
        if not decision.allowed:
            self.note_refusal(need, decision)
            raise AuthorizationError(decision.reason)

    def note_refusal(self, need: Need, decision: Decision) -> None:
        """Count and log a refusal."""
        self.refused += 1
        log.debug("not permitted", permission=need.permission.value, on=need.place, reason=decision.reason)

    async def refresh(self, path: str) -> None:
        """Use the permissions of a tenant, or of tenant/namespace, that were just stored. Raises
        ServiceNotReadyError."""
        nodes = self._namespaces if "/" in path else self._tenants
        await nodes.reread(f"{POLICIES}/{path}")


def _ignore(node: Followed[frozenset[str]] | Followed[Grants]) -> None:
    """Do nothing: nothing depends on permissions yet."""
