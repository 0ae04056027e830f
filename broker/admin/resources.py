"""All resources of the admin REST, as routes for the web port.

The API has no authentication yet, so it is as open as the binary port beside it.
"""

from __future__ import annotations

from functools import partial

from starlette.routing import BaseRoute

from broker.admin import lookup, partitions, subscriptions, topics
from broker.admin.requests import Service
from broker.admin.resource import NotServed, Resource

_PERSISTENT = "/admin/v2/persistent/{tenant}/{namespace}"
_TOPIC = f"{_PERSISTENT}/{{topic}}"
_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


def routes(service: Service) -> list[BaseRoute]:
    """In the order in which they are tried."""
    at = partial(Resource, service=service)
    return [
        at(_PERSISTENT, GET=topics.names),
        at(f"{_PERSISTENT}/partitioned", GET=topics.partitioned_names),
        at(
            _TOPIC,
            PUT=topics.create,
            DELETE=topics.delete,
            statuses={"PUT": topics.CREATING, "DELETE": topics.DELETING},
        ),
        at(f"{_NAMESPACE}/topics", GET=topics.names_by_mode),
        at(
            f"{_TOPIC}/partitions",
            PUT=partitions.create,
            POST=partitions.grow,
            GET=partitions.count,
            DELETE=partitions.delete,
            statuses={"PUT": partitions.CREATING, "POST": partitions.GROWING},
        ),
        at(f"{_TOPIC}/internalStats", GET=topics.internal_stats),
        at(f"{_TOPIC}/partitioned-internalStats", GET=topics.partitioned_internal_stats),
        at(f"{_TOPIC}/messageid/{{timestamp}}", GET=topics.message_id_at),
        at(f"{_TOPIC}/lastMessageId", GET=topics.last_message_id),
        at(f"{_TOPIC}/subscriptions", GET=subscriptions.names),
        at(f"{_TOPIC}/subscription/{{subscription}}", PUT=subscriptions.create, DELETE=subscriptions.delete),
        at(_LOOKUP, GET=lookup.owner),
        NotServed("/admin/v2/"),
        NotServed("/admin/v3/"),
        NotServed("/lookup/"),
    ]
