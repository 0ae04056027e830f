"""The roles of the table tests, and what is stored for them in public/default."""

from __future__ import annotations

from typing import Any

from broker.ownership.values import encode_json
from broker.security.authorization.config import AuthorizationOptions
from broker.security.principal import Principal
from quire.metadata.store import ANY_VERSION, MetadataStore

ROLES = ("nobody", "anonymous", "consumer", "producer", "admin", "super")
"""Without authentication, with the role of those without credentials, with consume, with produce on the namespace,
admin of the tenant, and super user."""
OPTIONS = AuthorizationOptions(enabled=True, super_users=("super",), proxies=("proxy",))
GRANTS = {"consumer": ["consume"], "producer": ["produce"]}
NAMESPACE = "/admin/policies/public/default"


def principal(role: str, original: str | None = None) -> Principal | None:
    return None if role == "nobody" else Principal(role, original)


def policies(namespace: dict[str, Any] | None = None, **auth: Any) -> dict[str, Any]:
    """Return Policies with these grants; `mode`: the subscription_auth_mode."""
    mode = auth.pop("mode", "None")
    found = {"namespace_auth": GRANTS if namespace is None else namespace, "destination_auth": {}, **auth}
    return {"auth_policies": found, "subscription_auth_mode": mode}


async def store(metadata: MetadataStore, path: str, value: object) -> None:
    """Store a node, as any broker or tool does."""
    if await metadata.get(path) is None:
        await metadata.create(path, encode_json(value), make_parents=True)
    else:
        await metadata.put(path, encode_json(value), ANY_VERSION)


async def store_roles(metadata: MetadataStore) -> None:
    """Store the admin of the tenant and the grants."""
    await store(metadata, "/admin/policies/public", {"adminRoles": ["admin"], "allowedClusters": ["c"]})
    await store(metadata, NAMESPACE, policies())
