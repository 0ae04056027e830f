"""Tenants, the owners of namespaces, as administrators manage them. /admin/policies/<tenant>: TenantInfo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.errors import TopicNotFoundError, translated
from broker.ownership.errors import NamespaceBusyError, NamespaceExistsError
from broker.ownership.values import Json, decode_json, encode_json
from quire.metadata.errors import NodeExistsError, NoNodeError, NotEmptyError
from quire.metadata.store import MetadataStore
from quire.metadata.update_loop import update_node

POLICIES = "/admin/policies"
LOCAL_POLICIES = "/admin/local-policies"


class Tenants:
    """Tenants of the cluster. Calls raise MetadataUnavailableError (of `broker.errors`) when the store is away."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def tenants(self) -> list[str]:
        """Return tenant names in order."""
        with translated("tenants"):
            try:
                return await self._metadata.children(POLICIES)
            except NoNodeError:
                return []

    async def tenant(self, name: str) -> Json:
        """Return a tenant's TenantInfo. Raises TopicNotFoundError."""
        with translated(name):
            node = await self._metadata.get(f"{POLICIES}/{name}")
        if node is None:
            raise TopicNotFoundError(f"tenant {name} does not exist")
        return decode_json(node.value, f"tenant {name}")

    async def create_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Create a tenant. Raises NamespaceExistsError."""
        with translated(name):
            try:
                await self._metadata.create(f"{POLICIES}/{name}", encode_json(info), make_parents=True)
            except NodeExistsError as error:
                raise NamespaceExistsError(f"tenant {name} exists") from error

    async def put_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Replace the given fields of a tenant. Raises TopicNotFoundError."""
        with translated(name):
            try:
                await update_node(
                    self._metadata,
                    f"{POLICIES}/{name}",
                    lambda value: encode_json(decode_json(value, f"tenant {name}") | dict(info)),
                )
            except NoNodeError as error:
                raise TopicNotFoundError(f"tenant {name} does not exist") from error

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant. Raises TopicNotFoundError, NamespaceBusyError (it has namespaces)."""
        with translated(name):
            try:
                await self._metadata.delete(f"{POLICIES}/{name}")
            except NoNodeError as error:
                raise TopicNotFoundError(f"tenant {name} does not exist") from error
            except NotEmptyError as error:
                raise NamespaceBusyError(f"tenant {name} has namespaces") from error
