"""Tenants."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.table.shared import A_TENANT, FORCE
from quire.cli.admin.values import WORDS
from quire.cli.admin.verbs import Given, Plan, Request, Verb, VerbGroup, made, option

_ROLES: Final = option("--admin-roles", "-r", kind=WORDS, help="Roles that administrate the tenant, with commas.")
_CLUSTERS: Final = option("--allowed-clusters", "-c", kind=WORDS, help="Clusters of the tenant, with commas.")


def _create(given: Given) -> Plan:
    clusters = given["allowed_clusters"] or (yield Request("GET", "/admin/v2/clusters"))
    body = {"adminRoles": given["admin_roles"] or [], "allowedClusters": clusters}
    return (yield made("PUT tenants/{tenant}", given, body))


def _update(given: Given) -> Plan:
    stored = yield made("GET tenants/{tenant}", given)
    body = {
        "adminRoles": stored["adminRoles"] if given["admin_roles"] is None else given["admin_roles"],
        "allowedClusters": stored["allowedClusters"]
        if given["allowed_clusters"] is None
        else given["allowed_clusters"],
    }
    return (yield made("POST tenants/{tenant}", given, body))


GROUP: Final = VerbGroup(
    "tenants",
    "Tenants: who may use which clusters.",
    (
        Verb("list", "GET tenants", "Print the tenants."),
        Verb("get", "GET tenants/{tenant}", "Print the roles and clusters of a tenant.", (A_TENANT,)),
        Verb(
            "create",
            "PUT tenants/{tenant}",
            "Create a tenant. Without --allowed-clusters it may use every cluster.",
            (A_TENANT, _ROLES, _CLUSTERS),
            plan=_create,
        ),
        Verb(
            "update",
            "POST tenants/{tenant}",
            "Change a tenant. What is not given stays.",
            (A_TENANT, _ROLES, _CLUSTERS),
            plan=_update,
        ),
        Verb(
            "delete",
            "DELETE tenants/{tenant}?force={force}",
            "Delete a tenant; with --force its namespaces and topics too.",
            (A_TENANT, FORCE),
            destroys="the tenant {tenant}",
        ),
    ),
)
