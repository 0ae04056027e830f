"""Policies of namespaces: where their topics are served and stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quire.cli.admin.table.shared import (
    A_NAMESPACE,
    OFFLOAD,
    just,
    limit,
    listed,
    offload,
    policy,
)
from quire.cli.admin.values import (
    MILLISECONDS,
    SIZE,
    TEXT,
    Json,
    ValueKind,
)
from quire.cli.admin.verbs import Given, Verb, VerbParameter, option

BASE: Final = "namespaces/{namespace}"


def namespace_policy(
    name: str,
    resource: str,
    what: str,
    parameters: tuple[VerbParameter, ...],
    body: Callable[[Given], Json],
    *,
    setting: str = "POST",
    remove: str = "remove",
    reading: tuple[VerbParameter, ...] = (),
) -> tuple[Verb, ...]:
    return policy(
        A_NAMESPACE, BASE, name, resource, what, parameters, body, setting=setting, remove=remove, reading=reading
    )


def namespace_limit(
    name: str,
    resource: str,
    what: str,
    kind: ValueKind,
    *flags: str,
    setting: str = "POST",
    remove: str = "remove",
) -> tuple[Verb, ...]:
    one, body = limit(flags, kind, "The value; 0: no limit.")
    return namespace_policy(name, resource, what, (one,), body, setting=setting, remove=remove)


def _affinity(given: Given) -> Json:
    return {
        "bookkeeperAffinityGroupPrimary": given["primary_group"],
        "bookkeeperAffinityGroupSecondary": given["secondary_group"],
    }


PLACES: Final = (
    *namespace_policy(
        "anti-affinity-group",
        "antiAffinity",
        "the group of namespaces that are kept on different brokers",
        (option("--group", "-g", kind=TEXT, help="The group.", required=True),),
        just("group"),
        remove="delete",
    ),
    *namespace_policy(
        "bookie-affinity-group",
        "persistence/bookieAffinity",
        "the groups of bookies that have the ledgers",
        (
            option("--primary-group", "-pg", kind=TEXT, help="Groups, with commas.", required=True),
            option("--secondary-group", "-sg", kind=TEXT, help="Groups for lack of those, with commas."),
        ),
        _affinity,
        remove="delete",
    ),
    *namespace_policy(
        "clusters",
        "replication",
        "the clusters that have the topics",
        (listed("Clusters, with commas.", "--clusters", "-c"),),
        just("clusters"),
        remove="",
    ),
    *namespace_policy(
        "allowed-clusters",
        "allowedClusters",
        "the clusters that may have the topics",
        (listed("Clusters, with commas.", "--clusters", "-c"),),
        just("clusters"),
        remove="",
    ),
    Verb("get-resource-group", f"GET {BASE}/resourcegroup", "Print the resource group.", (A_NAMESPACE,)),
    Verb(
        "set-resource-group",
        f"POST {BASE}/resourcegroup/{{resource_group_name}}",
        "Set the resource group.",
        (A_NAMESPACE, option("--resource-group-name", "-rgn", kind=TEXT, help="The group.", required=True)),
    ),
    Verb("remove-resource-group", f"DELETE {BASE}/resourcegroup", "Remove the resource group.", (A_NAMESPACE,)),
    *namespace_limit(
        "offload-threshold",
        "offloadThreshold",
        "the bytes that stay in bookies",
        SIZE,
        "--size",
        "-s",
        setting="PUT",
        remove="",
    ),
    *namespace_limit(
        "offload-deletion-lag",
        "offloadDeletionLagMs",
        "the time until offloaded ledgers are deleted",
        MILLISECONDS,
        "--lag",
        "-l",
        setting="PUT",
        remove="clear",
    ),
    Verb("get-offload-policies", f"GET {BASE}/offloadPolicies", "Print the long-term storage.", (A_NAMESPACE,)),
    Verb(
        "set-offload-policies",
        f"POST {BASE}/offloadPolicies",
        "Set the long-term storage.",
        (A_NAMESPACE, *OFFLOAD),
        body=offload,
    ),
    Verb(
        "remove-offload-policies",
        f"DELETE {BASE}/removeOffloadPolicies",
        "Remove the long-term storage.",
        (A_NAMESPACE,),
    ),
)
