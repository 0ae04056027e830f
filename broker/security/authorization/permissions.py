"""Permissions that commands and REST calls need (pure). Each has a sentence for docs/security.md."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from quire.wire.pulsar.names import TopicName


class Permission(Enum):
    """A permission. The value is its description."""

    NOTHING = "none; the connection suffices, or what it uses was checked when it was made"
    ANY_ROLE = "any role"
    SUPER_USER = "super user"
    TENANT_ADMIN = "admin of the tenant"
    LOOKUP_NAMESPACE = "produce or consume on the namespace"
    CONSUME_NAMESPACE = "consume on the namespace"
    FUNCTIONS = "functions on the namespace"
    SOURCES = "sources on the namespace"
    SINKS = "sinks on the namespace"
    PACKAGES = "packages on the namespace"
    LOOKUP = "produce or consume on the topic"
    PRODUCE = "produce on the topic"
    CONSUME = "consume on the topic, and the subscription"
    TRANSACTION_OWNER = "owner of the transaction"


OF_TOPIC = frozenset((Permission.LOOKUP, Permission.PRODUCE, Permission.CONSUME))
"""Permissions that a grant on the topic gives too."""


class Need(NamedTuple):
    """A permission on something. Empty parts: it is about none."""

    permission: Permission
    tenant: str = ""
    namespace: str = ""
    """tenant/namespace."""
    topic: TopicName | None = None
    subscription: str = ""

    @property
    def place(self) -> str:
        """Return the name of what the permission is on."""
        if self.topic is not None:
            return self.topic.full
        return self.namespace or self.tenant


def on_topic(permission: Permission, topic: TopicName, subscription: str = "") -> Need:
    """Return the need of a permission on a topic."""
    return Need(permission, topic.tenant, topic.namespace_path, topic, subscription)
