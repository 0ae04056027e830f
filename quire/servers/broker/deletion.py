"""Configuration keys about the deletion of tenants and namespaces, of a broker and of a standalone server."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionKeys:
    """Keys that let tenants and namespaces be deleted with their contents."""

    force_namespace: bool = conf_key(
        "forceDeleteNamespaceAllowed",
        False,
        dynamic=True,
        doc="true: DELETE of a namespace with ?force=true also deletes its topics.",
    )
    force_tenant: bool = conf_key(
        "forceDeleteTenantAllowed",
        False,
        dynamic=True,
        doc="true: DELETE of a tenant with ?force=true also deletes its namespaces.",
    )
