"""Anti-affinity of namespaces: the brokers that namespaces of one group are spread over (pure).

Why this is hard: a rule that looks at one bundle must not move others back and forth. So a broker counts the namespaces
of the group that it would have without the bundle in question, and the ones with the least count may have it: moving a
bundle to one of them never makes the spread worse, and a bundle that is on one of them stays.

    /admin/local-policies/<t>/<ns>                         "namespaceAntiAffinityGroup": "group"
    /admin/clusters/<cluster>/failureDomain/<domain>       {"brokers": ["host:8080"]}

With failure domains (failureDomainsEnabled) the domains with the least sum of the counts of their brokers come first,
and then their brokers with the least count. Brokers that are in no domain make one. A namespace with several bundles
counts once for each broker that has any of them, also for its own bundles, so that they are spread too. Case does not
matter in the names of groups.

Source: Pulsar's LoadManagerShared.filterAntiAffinityGroupOwnedBrokers, filterDomainsNotHavingLeastNumberAntiAffinity-
Namespaces, getAntiAffinityNamespaceOwnedBrokers, shouldAntiAffinityNamespaceUnload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

Placed = Mapping[str, Collection[str]]
"""Bundles, as `namespace/range`, of each broker by its id."""

NO_DOMAIN: Final = "default"
"""Domain of brokers that are in none. Source: the original's DEFAULT_DOMAIN."""


class Spread:
    """Groups of namespaces, and domains of brokers, at one moment."""

    __slots__ = ("_domains", "_groups")

    def __init__(self, groups: Mapping[str, str], domains: Mapping[str, str] | None = None) -> None:
        """Take groups by namespace, those without one left out, and domains by broker (None: they do not count)."""
        self._groups = {namespace: group.lower() for namespace, group in groups.items() if group}
        self._domains = domains

    def __bool__(self) -> bool:
        return bool(self._groups)

    def allowed(self, bundle: str, candidates: Iterable[str], placed: Placed) -> set[str]:
        """Return those of the brokers that may have a bundle (`namespace/range`): all, if its namespace has no
        group."""
        found = set(candidates)
        group = self._groups.get(namespace_of(bundle))
        if group is None or not found:
            return found
        counts = {each: self._count(group, bundle, placed.get(each, ())) for each in found}
        if self._domains is not None:
            sums: Counter[str] = Counter()
            for each in found:
                sums[self._domain(each)] += counts[each]
            least = min(sums.values())
            found = {each for each in found if sums[self._domain(each)] == least}
        fewest = min(counts[each] for each in found)
        return {each for each in found if counts[each] == fewest}

    def _domain(self, broker_id: str) -> str:
        return NO_DOMAIN if self._domains is None else self._domains.get(broker_id, NO_DOMAIN)

    def _count(self, group: str, bundle: str, bundles: Collection[str]) -> int:
        """Return how many namespaces of a group have bundles among these, other than the one in question."""
        namespaces = {namespace_of(each) for each in bundles if each != bundle}
        return sum(self._groups.get(each) == group for each in namespaces)


def namespace_of(bundle: str) -> str:
    """Return the namespace of a bundle.

    >>> namespace_of("public/default/0x00000000_0x40000000")
    'public/default'
    """
    return bundle.rpartition("/")[0]
