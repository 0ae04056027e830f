"""The isolation policies of a cluster in its metadata: read for each decision, decoded when they changed."""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import ServiceNotReadyError, translated
from broker.ownership.isolation import POLICIES_MAX, Isolation, IsolationError
from broker.ownership.values import Json, decode_json, encode_json
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.metadata.update_loop import update_node


def isolation_path(cluster: str) -> str:
    """Return the path of the policies of a cluster."""
    return f"/admin/clusters/{cluster}/namespaceIsolationPolicies"


class IsolationStore:
    """Isolation policies. Calls raise MetadataUnavailableError (of `broker.errors`) when the store is away."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._known: tuple[bytes, Isolation] = (b"", Isolation())

    async def isolation(self, cluster: str) -> Isolation:
        """Return the policies. Raises ServiceNotReadyError if they cannot be obeyed."""
        with translated("isolation policies"):
            node = await self._metadata.get(isolation_path(cluster))
        value = b"" if node is None else node.value
        if value != self._known[0]:
            try:
                found = Isolation.of(decode_json(value, "isolation policies"))
            except IsolationError as error:
                raise ServiceNotReadyError(f"no broker is chosen: {error}") from error
            self._known = value, found
        return self._known[1]

    async def stored(self, cluster: str) -> Json | None:
        """Return the policies by name, as they are stored; None: there were never any."""
        with translated("isolation policies"):
            node = await self._metadata.get(isolation_path(cluster))
        return None if node is None else decode_json(node.value, "isolation policies")

    async def change(self, cluster: str, changed: Callable[[Json], Json]) -> None:
        """Replace the policies by what `changed` makes of them. Raises IsolationError (too many)."""

        def new(value: bytes) -> bytes:
            policies = changed(decode_json(value, "isolation policies"))
            if len(policies) > POLICIES_MAX:
                raise IsolationError(f"a cluster has at most {POLICIES_MAX} isolation policies")
            return encode_json(policies)

        path = isolation_path(cluster)
        with translated("isolation policies"):
            try:
                await update_node(self._metadata, path, new)
            except NoNodeError:
                try:
                    await self._metadata.create(path, new(b"{}"), make_parents=True)
                except NodeExistsError:
                    await update_node(self._metadata, path, new)
