"""Check that the namespace of a topic exists, and that topics may be made in it."""

from __future__ import annotations

from typing import Final

from broker.errors import TopicNotFoundError, translated
from broker.ownership.namespaces import heartbeat_broker
from broker.ownership.tenants import POLICIES
from broker.ownership.values import decode_json, is_being_deleted
from quire.metadata.store import MetadataStore
from quire.service.recent import Recent
from quire.wire.pulsar.names import NamespaceName, TopicName

NAMESPACES_MAX: Final = 10_000
NAMESPACE_TTL_S: Final = 5.0
"""Seconds for which a deleted namespace may still count as existing."""


class NamespaceCheck:
    """Checks of namespaces in the metadata store, with a memory of those seen a moment ago."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._seen: Recent[str, bool] = Recent(NAMESPACES_MAX, NAMESPACE_TTL_S)
        self._taking: Recent[str, bytes] = Recent(NAMESPACES_MAX, NAMESPACE_TTL_S)
        """Policies that were looked at and take topics, as stored, so that equal ones are not decoded again."""

    def is_known(self, name: TopicName) -> bool:
        """Return whether the namespace is known to exist, from memory."""
        return self._seen.get(name.namespace_path) is not None

    async def exists(self, name: TopicName | NamespaceName) -> None:
        """Raise TopicNotFoundError if the namespace does not exist, which clients expect before any other error.

        Raises MetadataUnavailableError."""
        path = name.namespace_path if isinstance(name, TopicName) else str(name)
        if self._seen.get(path) is None:
            await self._read(name)
            self._seen.put(path, True)

    async def takes_topics(self, name: TopicName) -> None:
        """Raise TopicNotFoundError if no topic may be made: the namespace does not exist, or is being deleted.

        Never answered from memory, because the clients of a deleted topic come back at once. Raises
        MetadataUnavailableError."""
        path = name.namespace_path
        value = await self._read(name)
        if value is None or value == self._taking.get(path):
            return
        if is_being_deleted(decode_json(value, f"the policies of {path}")):
            raise TopicNotFoundError(f"namespace {path} is being deleted")
        self._seen.put(path, True)
        self._taking.put(path, value)

    async def _read(self, name: TopicName | NamespaceName) -> bytes | None:
        """Return the namespace's node; None: a heartbeat namespace, which has none. Raises TopicNotFoundError."""
        path = name.namespace_path if isinstance(name, TopicName) else str(name)
        with translated(path):
            node = await self._metadata.get(f"{POLICIES}/{path}")
        if node is None:
            namespace = name.namespace_name if isinstance(name, TopicName) else name
            if heartbeat_broker(namespace) is None:
                self._seen.forget(path)
                raise TopicNotFoundError(f"namespace {path} does not exist")
        return None if node is None else node.value
