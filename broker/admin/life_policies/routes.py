"""Routes of the policies about the life of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from starlette.routing import BaseRoute

from broker.admin.life_policies import limits, quotas
from broker.admin.resource import Resource


def life_routes(at: Callable[..., Resource], namespace: str, topic: str) -> Iterator[BaseRoute]:
    """Return the routes below the patterns of a namespace and of a topic."""
    for place, quota in ((namespace, quotas.OF_NAMESPACE), (topic, quotas.OF_TOPIC)):
        yield at(f"{place}/backlogQuotaMap", GET=quota.get)
        yield at(f"{place}/backlogQuota", POST=quota.post, DELETE=quota.delete)
    for place, policies in ((namespace, limits.OF_NAMESPACE), (topic, limits.OF_TOPIC)):
        for name, policy in policies.items():
            yield at(f"{place}/{name}", GET=policy.get, POST=policy.post, DELETE=policy.delete)
