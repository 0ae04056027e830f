"""Anti-affinity groups and failure domains in the metadata: the shell around `spread`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.errors import ServiceNotReadyError, TopicNotFoundError, translated
from broker.ownership.affinity.quotas import BundleQuotas
from broker.ownership.affinity.rules import PlacementRules
from broker.ownership.affinity.spread import Placed, Spread, namespace_of
from broker.ownership.config import OwnershipOptions
from broker.ownership.isolation_store import IsolationStore
from broker.ownership.namespaces import Namespaces, heartbeat_broker
from broker.ownership.tenants import LOCAL_POLICIES
from broker.ownership.values import Json, decode_json, encode_json
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import ANY_VERSION, MetadataStore
from quire.service.log import get_logger
from quire.service.web.shapes import Listing, Record, Text
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName

__all__ = ["LOCAL_POLICIES", "Affinity", "FailureDomains"]

log = get_logger(__name__)

GROUP = "namespaceAntiAffinityGroup"
DOMAIN = Record({"brokers": Listing(Text())})
"""Shape of a failure domain."""


def domains_path(cluster: str) -> str:
    """Return the path of the failure domains of a cluster."""
    return f"/admin/clusters/{cluster}/failureDomain"


class FailureDomains:
    """Failure domains of clusters. Calls raise MetadataUnavailableError (of `broker.errors`) when the store is away."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def every(self, cluster: str) -> dict[str, Json]:
        """Return the domains of a cluster by name, as they are stored."""
        with translated("failure domains"):
            try:
                names = await self._metadata.children(domains_path(cluster))
            except NoNodeError:
                return {}
            found = {}
            for name in names:
                node = await self._metadata.get(f"{domains_path(cluster)}/{name}")
                if node is not None:
                    found[name] = decode_json(node.value, f"failure domain {name}")
        return found

    async def put(self, cluster: str, name: str, domain: Json) -> None:
        """Store a domain."""
        path = f"{domains_path(cluster)}/{name}"
        with translated(f"failure domain {name}"):
            try:
                await self._metadata.create(path, encode_json(domain), make_parents=True)
            except NodeExistsError:
                await self._metadata.put(path, encode_json(domain), ANY_VERSION)

    async def delete(self, cluster: str, name: str) -> bool:
        """Delete a domain; return whether it was there."""
        with translated(f"failure domain {name}"):
            try:
                await self._metadata.delete(f"{domains_path(cluster)}/{name}")
            except NoNodeError:
                return False
        return True

    async def of_brokers(self, cluster: str) -> dict[str, str]:
        """Return the domain of each broker that is in one. Raises ServiceNotReadyError if that cannot be read."""
        found: dict[str, str] = {}
        try:
            for name, domain in (await self.every(cluster)).items():
                found |= dict.fromkeys(brokers_of(domain), name)
        except ValueError as error:
            raise ServiceNotReadyError(f"no broker is chosen: {error}") from error
        return found


def brokers_of(domain: object) -> list[str]:
    """Return the ids of the brokers of a domain. Raises ValueError.

    >>> brokers_of({"brokers": ["a:8080"]})
    ['a:8080']
    """
    try:
        brokers: list[str] = DOMAIN.check(domain, "it", ValueError).get("brokers", [])
    except ValueError as error:
        raise ValueError(f"a failure domain is malformed: {error}") from None
    return brokers


class Affinity:
    """The rules about the brokers of bundles, as they are stored now."""

    def __init__(
        self, metadata: MetadataStore, namespaces: Namespaces, isolation: IsolationStore, options: OwnershipOptions
    ) -> None:
        self.domains = FailureDomains(metadata)
        self.quotas = BundleQuotas(metadata)
        self._namespaces = namespaces
        self._isolation = isolation
        self._options = options

    async def rules(self, placed: Placed) -> PlacementRules:
        """Return the rules about all bundles that brokers have.

        Raises ServiceNotReadyError (they cannot be obeyed), MetadataUnavailableError."""
        isolation = await self._isolation.isolation(self._options.cluster_name)
        return PlacementRules(isolation, await self._spread(_namespaces_of(placed.values())))

    async def rules_for(self, namespace: NamespaceName, placed: Placed) -> PlacementRules:
        """Return the rules about one bundle more of a namespace. Raises as `rules`."""
        isolation = await self._isolation.isolation(self._options.cluster_name)
        if not await self.group(namespace):
            return PlacementRules(isolation, Spread({}))  # the rule: no other namespace is looked at
        return PlacementRules(isolation, await self._spread({str(namespace), *_namespaces_of(placed.values())}))

    async def group(self, namespace: NamespaceName) -> str:
        """Return the anti-affinity group of a namespace; "" if it has none. Raises TopicNotFoundError."""
        if heartbeat_broker(namespace) is not None:
            return ""
        found = (await self._namespaces.local_policies(namespace)).get(GROUP)
        return found if isinstance(found, str) else ""

    async def _spread(self, namespaces: Iterable[str]) -> Spread:
        groups: dict[str, str] = {}
        for each in sorted(namespaces):
            try:
                groups[each] = await self.group(NamespaceName.parse(each))
            except (InvalidNameError, TopicNotFoundError):
                continue  # it was deleted, and its bundles are on the way out
        if not any(groups.values()) or not self._options.failure_domains:
            return Spread(groups)
        return Spread(groups, await self.domains.of_brokers(self._options.cluster_name))


def _namespaces_of(bundles: Iterable[Collection[str]]) -> set[str]:
    return {namespace_of(bundle) for each in bundles for bundle in each}
