"""Tenants and namespaces: their policies, and the boundaries of their bundles, watched and kept in memory.

    /admin/policies/<tenant>                            TenantInfo
    /admin/policies/<tenant>/<namespace>                Policies: what the administrator wants; the first boundaries
    /admin/local-policies/<tenant>/<namespace>          LocalPolicies: the boundaries that count, made on first use

While `run` runs, a namespace that was used once is followed and answered from memory, also while the metadata service
is away. Without it every call reads. A split by another broker may be seen late: a broker that takes a bundle makes its
node in one step with a check of `boundaries_check`, so no broker takes a bundle that no longer exists.

A heartbeat namespace, `pulsar/<broker id>`, has no policies: it is one bundle, which is that broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio

from broker.errors import BrokerError, MetadataUnavailableError, TopicNotFoundError, translated
from broker.ownership.bundles import Bundles, even
from broker.ownership.config import OwnershipOptions
from broker.ownership.errors import BundlesChangedError, NamespaceBusyError, NamespaceExistsError
from broker.ownership.following import Tasks, follow
from broker.ownership.tenants import LOCAL_POLICIES, POLICIES, Tenants
from broker.ownership.values import (
    Json,
    decode_bundles,
    decode_json,
    default_policies,
    encode_bundles,
    encode_json,
    local_policies,
)
from broker.topics.partitioned_topics import ROOT as PARTITIONED_TOPICS
from managed_ledger.stored_list import log_path
from quire.metadata.errors import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from quire.metadata.store import Check, Delete, MetadataStore, Node, Op
from quire.metadata.update_loop import update_node
from quire.service.log import get_logger
from quire.wire.pulsar.names import DOMAINS, NamespaceName

log = get_logger(__name__)

HEARTBEAT_TENANT = "pulsar"
FOLLOWED_MAX = 10_000
"""Maximum number of namespaces in memory; the least recently used are dropped."""
RACES_MAX = 10


def heartbeat_namespace(broker_id: str) -> NamespaceName:
    """Return the namespace in which a broker checks its health.

    Source: NamespaceService.getHeartbeatNamespaceV2 of the original."""
    return NamespaceName(HEARTBEAT_TENANT, broker_id)


def heartbeat_broker(namespace: NamespaceName) -> str | None:
    """Return the broker whose heartbeat namespace this is, if it is one."""
    host, colon, port = namespace.namespace.rpartition(":")
    pinned = namespace.tenant == HEARTBEAT_TENANT and host and colon and port.isdigit()
    return namespace.namespace if pinned else None


class _Namespace:
    """State of one namespace as of the last look."""

    def __init__(self, name: NamespaceName) -> None:
        self.name = name
        self.policies: Json | None = None
        self.bundles: Bundles | None = None
        self.local: Json = {}
        """LocalPolicies; not to be changed."""
        self.local_version = -1
        self.scope = trio.CancelScope()
        self.lock = trio.Lock()
        """Serializes looks, so that none is overtaken."""


class Namespaces(Tenants):
    """Tenants' namespaces. Calls that read the store raise MetadataUnavailableError (of `broker.errors`) when it is
    away."""

    def __init__(self, metadata: MetadataStore, options: OwnershipOptions) -> None:
        self.on_change: Callable[[NamespaceName, Bundles | None], None] = _ignore
        """Called when a followed namespace has other boundaries, or is gone."""
        super().__init__(metadata)
        self._options = options
        self._known: dict[NamespaceName, _Namespace] = {}
        self._tasks = Tasks()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the namespaces in use until cancelled."""
        try:
            await self._tasks.run(task_status)
        finally:
            self._known.clear()

    # Namespaces

    def known_bundles(self, namespace: NamespaceName) -> Bundles | None:
        """Return `bundles` from memory; None: ask."""
        known = self._known.get(namespace)
        return None if known is None else known.bundles

    async def bundles(self, namespace: NamespaceName) -> Bundles:
        """Return the bundles of a namespace. Raises TopicNotFoundError, MetadataRefusedError (they cannot be read)."""
        found = (await self._get(namespace)).bundles
        assert found is not None, "a namespace that is there has bundles"
        return found

    async def policies(self, namespace: NamespaceName) -> Json:
        """Return the Policies of a namespace; not to be changed. Raises TopicNotFoundError."""
        found = (await self._get(namespace)).policies
        assert found is not None, "a namespace that is there has policies"
        return found

    async def local_policies(self, namespace: NamespaceName) -> Json:
        """Return the LocalPolicies of a namespace; not to be changed. Raises TopicNotFoundError."""
        return (await self._get(namespace)).local

    async def boundaries_check(self, bundles: Bundles) -> list[Check]:
        """Return checks that hold in the store as long as these are the boundaries; [] where they never change.

        Raises BundlesChangedError."""
        if heartbeat_broker(bundles.namespace) is not None:
            return []
        known = await self._get(bundles.namespace)
        if known.bundles != bundles:
            raise BundlesChangedError(f"the bundles of {bundles.namespace} have changed")
        return [Check(path=f"{LOCAL_POLICIES}/{bundles.namespace}", version=known.local_version)]

    async def reread(self, namespace: NamespaceName) -> None:
        """Read the current boundaries, without waiting for the watch."""
        if (known := self._known.get(namespace)) is not None:
            with translated(namespace):
                await self._look(known)

    async def names(self, tenant: str) -> list[NamespaceName]:
        """Return a tenant's namespaces, in order. Raises TopicNotFoundError: no such tenant."""
        with translated(tenant):
            try:
                return [NamespaceName(tenant, name) for name in await self._metadata.children(f"{POLICIES}/{tenant}")]
            except NoNodeError as error:
                raise TopicNotFoundError(f"tenant {tenant} does not exist") from error

    # Changing

    async def create(self, namespace: NamespaceName, policies: Mapping[str, Any] | None = None) -> None:
        """Create a namespace; missing fields get the original's defaults.

        Raises NamespaceExistsError, TopicNotFoundError (no such tenant), MetadataRefusedError (invalid bundles)."""
        given = dict(policies or {})
        bundles = decode_bundles(namespace, given, self._options.bundles_default)
        value = default_policies(bundles, [self._options.cluster_name]) | given | {"bundles": encode_bundles(bundles)}
        await self.tenant(namespace.tenant)
        with translated(namespace):
            try:
                await self._metadata.create(f"{POLICIES}/{namespace}", encode_json(value))
            except NodeExistsError as error:
                raise NamespaceExistsError(f"namespace {namespace} exists") from error
            except NoNodeError as error:
                raise TopicNotFoundError(f"tenant {namespace.tenant} does not exist") from error

    async def mark_deleted(self, namespace: NamespaceName) -> None:
        """Mark a namespace as being deleted: from now on no broker makes a topic in it. Its topics are still served.

        The mark stays until the namespace is deleted. Raises TopicNotFoundError.
        Source: the field `deleted` of the original's Policies."""
        await self.update_policies(namespace, lambda policies: policies | {"deleted": True})

    async def delete(self, namespace: NamespaceName) -> None:
        """Delete a namespace that has no topics, in one step. Raises TopicNotFoundError, NamespaceBusyError."""
        optional = [
            log_path(f"{namespace}/persistent"),
            log_path(str(namespace)),
            *(f"{PARTITIONED_TOPICS}/{namespace}/{domain}" for domain in DOMAINS),
            f"{PARTITIONED_TOPICS}/{namespace}",
            f"{LOCAL_POLICIES}/{namespace}",
        ]
        with translated(namespace):
            for _ in range(RACES_MAX):
                ops: list[Op] = [Delete(path=path) for path in optional if await self._metadata.get(path) is not None]
                try:
                    await self._metadata.multi([*ops, Delete(path=f"{POLICIES}/{namespace}")])
                    break
                except NotEmptyError as error:
                    raise NamespaceBusyError(f"namespace {namespace} has topics") from error
                except NoNodeError as error:
                    if error.index == len(ops):
                        raise TopicNotFoundError(f"namespace {namespace} does not exist") from error
            else:
                raise MetadataUnavailableError(f"namespace {namespace} is being changed by others")
            await self.reread(namespace)

    async def update_policies(self, namespace: NamespaceName, change: Callable[[Json], Json]) -> Json:
        """Change the Policies by compare-and-set; return the stored value.

        `change` gets a copy, with unknown fields, and may be called again. Raises TopicNotFoundError."""

        def changed(value: bytes) -> bytes | None:
            before = decode_json(value, f"the policies of {namespace}")
            after = change(decode_json(value, f"the policies of {namespace}"))
            return None if after == before else encode_json(after)

        with translated(namespace):
            try:
                stored = await update_node(self._metadata, f"{POLICIES}/{namespace}", changed)
            except NoNodeError as error:
                raise TopicNotFoundError(f"namespace {namespace} does not exist") from error
            await self.reread(namespace)
        return decode_json(stored.value, f"the policies of {namespace}")

    async def update_local(self, namespace: NamespaceName, change: Callable[[Json], Json]) -> None:
        """Change the LocalPolicies by compare-and-set, all but the bundles. `change` gets a copy, with unknown fields,
        and may be called again. Raises TopicNotFoundError."""
        what = f"the local policies of {namespace}"

        def changed(value: bytes) -> bytes | None:
            before, after = decode_json(value, what), change(decode_json(value, what))
            return None if after == before else encode_json(after)

        await self._get(namespace)  # makes the node
        with translated(namespace):
            try:
                await update_node(self._metadata, f"{LOCAL_POLICIES}/{namespace}", changed)
            except NoNodeError as error:
                raise TopicNotFoundError(f"namespace {namespace} does not exist") from error
            await self.reread(namespace)

    async def update_bundles(self, bundles: Bundles, change: Callable[[Bundles], Bundles]) -> Bundles:
        """Replace `bundles` by one compare-and-set; return the new ones, which are in memory then.

        Raises BundlesChangedError if they have changed; MetadataUnavailableError, after which they have to be read."""
        namespace = bundles.namespace
        path = f"{LOCAL_POLICIES}/{namespace}"
        with translated(namespace):
            node = await self._metadata.get(path)
            fields = decode_json(b"" if node is None else node.value, f"the local policies of {namespace}")
            if node is None or decode_bundles(namespace, fields, self._options.bundles_default) != bundles:
                await self.reread(namespace)
                raise BundlesChangedError(f"the bundles of {namespace} have changed")
            after = change(bundles)
            try:
                await self._metadata.put(path, encode_json(fields | {"bundles": encode_bundles(after)}), node.version)
            except (BadVersionError, NoNodeError) as error:
                raise BundlesChangedError(f"the bundles of {namespace} have changed") from error
            finally:
                await self.reread(namespace)
        return after

    # Inside

    async def _get(self, namespace: NamespaceName) -> _Namespace:
        known = self._known.get(namespace)
        if known is not None and known.bundles is not None:
            return known
        found = _Namespace(namespace)
        with translated(namespace):
            await self._look(found)
        if found.bundles is None:
            raise TopicNotFoundError(f"namespace {namespace} does not exist")
        self._keep(found)
        return found

    def _keep(self, found: _Namespace) -> None:
        """Follow the namespace from now on, and drop the oldest if there are too many."""
        if self._tasks.nursery is None or found.name in self._known:
            return
        self._known[found.name] = found
        if heartbeat_broker(found.name) is None:
            self._tasks.nursery.start_soon(self._follow, found, name=f"follow {found.name}")
        if len(self._known) > FOLLOWED_MAX:
            oldest = next(iter(self._known.values()))
            del self._known[oldest.name]
            oldest.scope.cancel()

    async def _follow(self, found: _Namespace) -> None:
        async def look() -> None:
            try:
                await self._look(found)
            except BrokerError as error:
                # The last valid value is used until the node is corrected.
                log.warning("policies not read", namespace=str(found.name), reason=str(error))

        recheck_s = self._options.recheck_s
        with found.scope:
            async with trio.open_nursery() as nursery:
                for root in (POLICIES, LOCAL_POLICIES):
                    path = f"{root}/{found.name}"
                    following = partial(follow, self._metadata, path, look, recheck_s=recheck_s)
                    nursery.start_soon(following, name=f"watch {path}")

    async def _look(self, found: _Namespace) -> None:
        """Read both nodes; create the local policies if there are none."""
        async with found.lock:
            await self._look_now(found)

    async def _look_now(self, found: _Namespace) -> None:
        before = found.bundles
        if heartbeat_broker(found.name) is not None:
            found.policies, found.bundles = {}, even(found.name, 1)
            return
        found.policies, found.bundles, found.local_version, found.local = await self._read(found.name)
        bundles = found.bundles
        if bundles is None and self._known.get(found.name) is found:
            del self._known[found.name]
            found.scope.cancel()
        if bundles != before and before is not None:
            self.on_change(found.name, bundles)

    async def _read(self, namespace: NamespaceName) -> tuple[Json | None, Bundles | None, int, Json]:
        what = f"the policies of {namespace}"
        for _ in range(RACES_MAX):
            node = await self._metadata.get(f"{POLICIES}/{namespace}")
            if node is None:
                return None, None, -1, {}
            policies = decode_json(node.value, what)
            local = await self._local(namespace, policies)
            if local is not None:
                fields = decode_json(local.value, what)
                bundles = decode_bundles(
                    namespace, fields if fields.get("bundles") else policies, self._options.bundles_default
                )
                return policies, bundles, local.version, fields
        raise MetadataUnavailableError(f"namespace {namespace} is being changed by others")

    async def _local(self, namespace: NamespaceName, policies: Json) -> Node | None:
        """Return the node of the local policies, created if missing; None: it was deleted meanwhile."""
        path = f"{LOCAL_POLICIES}/{namespace}"
        node = await self._metadata.get(path)
        if node is None:
            bundles = decode_bundles(namespace, policies, self._options.bundles_default)
            value = encode_json(local_policies(bundles))
            try:
                await self._metadata.create(path, value, make_parents=True)
            except NodeExistsError:
                pass
            node = await self._metadata.get(path)
        return node


def _ignore(namespace: NamespaceName, bundles: Bundles | None) -> None:
    pass
