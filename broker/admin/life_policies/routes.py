"""Routes of the policies about the life of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from starlette.routing import BaseRoute

from broker.admin.life_policies import creation, inactive, limits, quotas, rates
from broker.admin.resource import Resource


def life_routes(at: Callable[..., Resource], namespace: str, topic: str) -> Iterator[BaseRoute]:
    """Return the routes below the patterns of a namespace and of a topic."""
    for place, quota in ((namespace, quotas.OF_NAMESPACE), (topic, quotas.OF_TOPIC)):
        yield at(f"{place}/backlogQuotaMap", GET=quota.get)
        yield at(f"{place}/backlogQuota", POST=quota.post, DELETE=quota.delete)
    rooms = (limits, rates, creation, inactive)
    of_namespace = {name: policy for room in rooms for name, policy in room.OF_NAMESPACE.items()}
    of_topic = {name: policy for room in rooms for name, policy in room.OF_TOPIC.items()}
    of_topic["{subscription}/dispatchRate"] = rates.OF_SUBSCRIPTION
    for place, policies in ((namespace, of_namespace), (topic, of_topic)):
        for name, policy in policies.items():
            yield at(f"{place}/{name}", GET=policy.get, POST=policy.post, DELETE=policy.delete)
