"""Initial content of an embedded metadata store: the cluster, its tenants and namespaces.

Paths and values are Pulsar's, so that what is written here reads the same on a cluster.
"""

from __future__ import annotations

import json

from quire.metadata.errors import NodeExistsError
from quire.metadata.ledgers import Random, initialize_layout
from quire.metadata.store import Kind, MetadataStore

_NAMESPACES = ("public/default", "pulsar/system")
_BUNDLES = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}


async def initialize(store: MetadataStore, cluster: str, rng: Random) -> None:
    """Create missing nodes; existing ones are left unchanged."""
    await initialize_layout(store, "/ledgers", rng=rng)
    await _ensure(store, "/managed-ledgers", b"")
    await _ensure(store, f"/admin/clusters/{cluster}", b"{}")
    for tenant in ("public", "pulsar"):
        tenant_info = {"adminRoles": [], "allowedClusters": [cluster]}
        await _ensure(store, f"/admin/policies/{tenant}", _json(tenant_info))
    for namespace in _NAMESPACES:
        policies = {"replication_clusters": [cluster], "bundles": _BUNDLES}
        await _ensure(store, f"/admin/policies/{namespace}", _json(policies))


async def next_incarnation(store: MetadataStore) -> int:
    """Return a number no earlier start had, which makes generated producer names unique."""
    path = await store.create("/counters/producer-name/-", kind=Kind.EPHEMERAL, sequential=True, make_parents=True)
    return int(path.rpartition("-")[2])


async def _ensure(store: MetadataStore, path: str, value: bytes) -> None:
    if await store.get(path) is None:
        try:
            await store.create(path, value, make_parents=True)
        except NodeExistsError:
            pass  # another process created it between the two calls


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
