"""Namespaces: life, permissions, bundles, backlogs, properties."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.table.namespace_policies import VERBS as POLICIES
from quire.cli.admin.table.shared import (
    A_BUNDLE,
    A_CLUSTER,
    A_NAMESPACE,
    A_ROLE,
    A_SUBSCRIPTION,
    A_TENANT,
    ACTIONS,
    FORCE,
    just,
)
from quire.cli.admin.values import PAIRS, TEXT, WORDS, Json, ValueKind, number, one_of, whole
from quire.cli.admin.verbs import ABSENT, Given, Plan, Verb, VerbGroup, flag, made, option

_SUB: Final = option("--sub", "--subscription", "-s", kind=TEXT, help="Only this subscription.")
_KEY: Final = option("--key", "-k", kind=TEXT, help="The key.", required=True)
_NAMESPACE: Final = "namespaces/{namespace}"
_IN_NAMESPACE: Final = (A_NAMESPACE,)
_POSITIONS: Final = ValueKind("N,N,...", lambda text: [whole(each) for each in text.split(",")])


def _list_cluster(given: Given) -> Plan:
    """Ask every tenant: the original's call for this is deprecated, and Quire has none."""
    found: list[str] = []
    for tenant in (yield made("GET tenants", given)):
        for name in (yield made("GET namespaces/{tenant}", {**given, "tenant": tenant})):
            clusters = yield made("GET namespaces/{name}/replication".replace("{name}", name), given)
            if given["cluster"] in clusters:
                found.append(name)
    return found


def _create(given: Given) -> Json:
    found: dict[str, Json] = {}
    if given["bundles"] is not None:
        found["bundles"] = {"numBundles": given["bundles"]}
    if given["clusters"]:
        found["replication_clusters"] = given["clusters"]
    return found or ABSENT


def _unload(given: Given) -> Plan:
    if given["bundle"] is not None:
        request = "PUT namespaces/{namespace}/{bundle}/unload?destinationBroker={destination_broker}"
        return (yield made(request, given))
    if given["destination_broker"] is not None:
        raise CommandLineError("--destination-broker takes one bundle: give --bundle too")
    return (yield made("PUT namespaces/{namespace}/unload", given))


def _split(given: Given) -> Plan:
    if (given["bundle"] is None) == (given["bundle_type"] is None):
        raise CommandLineError("give either --bundle or --bundle-type")
    filled = {**given, "bundle": given["bundle"] or given["bundle_type"]}
    request = "PUT namespaces/{namespace}/{bundle}/split?unload={unload}&splitAlgorithmName={split_algorithm_name}"
    positions = given["split_boundaries"]
    return (yield made(request, filled, ABSENT if positions is None else positions))


def _clear(given: Given) -> Plan:
    bundle = "" if given["bundle"] is None else "/{bundle}"
    subscription = "" if given["sub"] is None else "/{sub}"
    return (yield made(f"POST {_NAMESPACE}{bundle}/clearBacklog{subscription}", given))


def _unsubscribe(given: Given) -> Plan:
    bundle = "" if given["bundle"] is None else "/{bundle}"
    return (yield made(f"POST {_NAMESPACE}{bundle}/unsubscribe/{{sub}}", given))


GROUP: Final = VerbGroup(
    "namespaces",
    "Namespaces: life, permissions, bundles, policies.",
    (
        Verb("list", "GET namespaces/{tenant}", "Print the namespaces of a tenant.", (A_TENANT,)),
        Verb(
            "list-cluster",
            "GET namespaces/{tenant}",
            "Print the namespaces of a cluster.",
            (A_CLUSTER,),
            plan=_list_cluster,
        ),
        Verb(
            "topics",
            f"GET {_NAMESPACE}/topics?mode={{mode}}&includeSystemTopic={{include_system_topic}}",
            "Print the topics of a namespace, partitions one by one.",
            (
                A_NAMESPACE,
                option("--mode", "-m", kind=one_of("PERSISTENT", "NON_PERSISTENT", "ALL"), help="Kind of topics."),
                flag("--include-system-topic", "-ist", help="Topics of the servers too."),
            ),
        ),
        Verb("policies", f"GET {_NAMESPACE}", "Print the policies of a namespace.", _IN_NAMESPACE),
        Verb(
            "create",
            f"PUT {_NAMESPACE}",
            "Create a namespace.",
            (
                A_NAMESPACE,
                option("--bundles", "-b", kind=number(1), help="Number of bundles."),
                option("--clusters", "-c", kind=WORDS, help="Clusters, with commas."),
            ),
            body=_create,
        ),
        Verb(
            "delete",
            f"DELETE {_NAMESPACE}?force={{force}}",
            "Delete a namespace; with --force its topics too.",
            (A_NAMESPACE, FORCE),
            destroys="the namespace {namespace}",
        ),
        Verb(
            "permissions",
            f"GET {_NAMESPACE}/permissions",
            "Print what roles may do.",
            _IN_NAMESPACE,
            section="Permissions",
        ),
        Verb(
            "grant-permission",
            f"POST {_NAMESPACE}/permissions/{{role}}",
            "Let a role do something.",
            (A_NAMESPACE, A_ROLE, ACTIONS),
            body=just("actions"),
            section="Permissions",
        ),
        Verb(
            "revoke-permission",
            f"DELETE {_NAMESPACE}/permissions/{{role}}",
            "Take all permissions from a role.",
            (A_NAMESPACE, A_ROLE),
            section="Permissions",
        ),
        Verb(
            "subscription-permission",
            f"GET {_NAMESPACE}/permissions/subscription",
            "Print which roles may use which subscriptions.",
            _IN_NAMESPACE,
            section="Permissions",
        ),
        Verb(
            "grant-subscription-permission",
            f"POST {_NAMESPACE}/permissions/subscription/{{subscription}}",
            "Let only these roles use a subscription.",
            (
                A_NAMESPACE,
                A_SUBSCRIPTION,
                option("--roles", "-rs", kind=WORDS, help="Roles, with commas.", required=True),
            ),
            body=just("roles"),
            section="Permissions",
        ),
        Verb(
            "revoke-subscription-permission",
            f"DELETE {_NAMESPACE}/permissions/{{subscription}}/{{role}}",
            "Take a subscription from a role.",
            (A_NAMESPACE, A_SUBSCRIPTION, A_ROLE),
            section="Permissions",
        ),
        Verb(
            "bundles",
            f"GET {_NAMESPACE}/bundles",
            "Print the bundles of a namespace.",
            _IN_NAMESPACE,
            section="Bundles",
            renderer="bundles",
        ),
        Verb(
            "unload",
            f"PUT {_NAMESPACE}/{{bundle}}/unload",
            "Release all bundles of a namespace, or one: brokers take them again.",
            (
                A_NAMESPACE,
                A_BUNDLE,
                option("--destination-broker", "--destinationBroker", "-d", kind=TEXT, help="Broker that takes it."),
            ),
            plan=_unload,
            section="Bundles",
        ),
        Verb(
            "split-bundle",
            f"PUT {_NAMESPACE}/{{bundle}}/split",
            "Split a bundle.",
            (
                A_NAMESPACE,
                A_BUNDLE,
                option("--bundle-type", "-bt", kind=one_of("LARGEST", "HOT"), help="The largest, or the busiest one."),
                flag("--unload", "-u", help="Release the new bundles."),
                option(
                    "--split-algorithm-name",
                    "-san",
                    kind=one_of(
                        "range_equally_divide",
                        "topic_count_equally_divide",
                        "specified_positions_divide",
                        "flow_or_qps_equally_divide",
                    ),
                    help="How to split.",
                ),
                option(
                    "--split-boundaries",
                    "-sb",
                    kind=_POSITIONS,
                    help="Positions, with commas, of specified_positions_divide.",
                ),
            ),
            plan=_split,
            section="Bundles",
        ),
        Verb(
            "get-topic-positions",
            f"GET {_NAMESPACE}/{{bundle}}/topicHashPositions?topics={{topic_list}}",
            "Print the positions of topics in a bundle.",
            (
                A_NAMESPACE,
                option("--bundle", "-b", kind=TEXT, help="The bundle.", required=True),
                option("--topic-list", "-tl", kind=TEXT, help="Only these topics, with commas."),
            ),
            section="Bundles",
        ),
        Verb(
            "clear-backlog",
            f"POST {_NAMESPACE}/clearBacklog",
            "Acknowledge all messages of all topics.",
            (A_NAMESPACE, _SUB, A_BUNDLE, flag("--force", "-force", help="Do not ask; as --yes.")),
            plan=_clear,
            destroys="the backlog of all topics of {namespace}",
            confirmed_by="force",
            section="Backlog",
        ),
        Verb(
            "unsubscribe",
            f"POST {_NAMESPACE}/unsubscribe/{{sub}}",
            "Delete a subscription of all topics.",
            (
                A_NAMESPACE,
                option("--sub", "--subscription", "-s", kind=TEXT, help="The subscription.", required=True),
                A_BUNDLE,
            ),
            plan=_unsubscribe,
            destroys="the subscription {sub} of all topics of {namespace}",
            section="Backlog",
        ),
        Verb(
            "get-properties",
            f"GET {_NAMESPACE}/properties",
            "Print the properties.",
            _IN_NAMESPACE,
            section="Properties",
        ),
        Verb(
            "set-properties",
            f"PUT {_NAMESPACE}/properties",
            "Add or change properties.",
            (A_NAMESPACE, option("--properties", "-p", kind=PAIRS, help="The properties.", required=True)),
            body=just("properties"),
            section="Properties",
        ),
        Verb(
            "clear-properties",
            f"DELETE {_NAMESPACE}/properties",
            "Remove all properties.",
            _IN_NAMESPACE,
            section="Properties",
        ),
        Verb(
            "get-property",
            f"GET {_NAMESPACE}/property/{{key}}",
            "Print a property.",
            (A_NAMESPACE, _KEY),
            section="Properties",
        ),
        Verb(
            "set-property",
            f"PUT {_NAMESPACE}/property/{{key}}/{{value}}",
            "Add or change a property.",
            (A_NAMESPACE, _KEY, option("--value", "-v", kind=TEXT, help="The value.", required=True)),
            section="Properties",
        ),
        Verb(
            "remove-property",
            f"DELETE {_NAMESPACE}/property/{{key}}",
            "Remove a property.",
            (A_NAMESPACE, _KEY),
            section="Properties",
        ),
        Verb(
            "get-anti-affinity-namespaces",
            "GET namespaces/{cluster}/antiAffinity/{group}?tenant={tenant}",
            "Print the namespaces of an anti-affinity group.",
            (
                option("--cluster", "-c", kind=TEXT, help="The cluster.", required=True),
                option("--group", "-g", kind=TEXT, help="The group.", required=True),
                option("--tenant", "-p", kind=TEXT, help="A tenant that you administrate."),
            ),
            section="Policies",
        ),
        *POLICIES,
    ),
)
