"""Keys of what one role, or one address, may have of a broker. Pulsar has none of them. Part of BrokerOptions."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key

_WITH_ROLE = "Roles of superUserRoles have no limit. 0: no limit."
_ANY = "Behind a proxy all clients have its address. 0: no limit."


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourOptions:
    """Limits of one role, and of one address; 0: none."""

    role_connections_max: int = conf_key(
        "quireMaxConnectionsPerRole",
        0,
        minimum=0,
        doc=f"Connections of one role. A further one is refused in its CONNECT. {_WITH_ROLE}",
    )
    role_requests_max: int = conf_key(
        "quireMaxRequestsPerRole",
        0,
        minimum=0,
        doc="Requests of one role, over all its connections and the web port, that are not answered yet. Above it its "
        f"connections are not read, and its requests to the web port are refused with 429. {_WITH_ROLE}",
    )
    address_requests_max: int = conf_key(
        "quireMaxRequestsPerAddress", 0, minimum=0, doc=f"The same for the clients of one address. {_ANY}"
    )
    role_publish_percent: int = conf_key(
        "quireMaxPublishBufferPercentPerRole",
        0,
        minimum=0,
        maximum=100,
        doc="Percentage of maxMessagePublishBufferSizeInMB that messages of one role may take while they are stored. "
        f"Above it the connections of the role that publish are not read. {_WITH_ROLE}",
    )
    address_publish_percent: int = conf_key(
        "quireMaxPublishBufferPercentPerAddress",
        0,
        minimum=0,
        maximum=100,
        doc=f"The same for the clients of one address. {_ANY}",
    )
    role_topics_per_minute_max: int = conf_key(
        "quireMaxTopicsMadePerRolePerMinute",
        0,
        minimum=0,
        doc="Topics that one role may make in a minute, by using or by creating them; a partitioned topic counts as "
        f"one. Further ones are refused. {_WITH_ROLE}",
    )
    address_topics_per_minute_max: int = conf_key(
        "quireMaxTopicsMadePerAddressPerMinute", 0, minimum=0, doc=f"The same for the clients of one address. {_ANY}"
    )
