"""Clusters: addresses, failure domains, and policies that isolate namespaces."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.table.shared import A_CLUSTER, listed
from quire.cli.admin.values import PAIRS, TEXT, WORDS, Json
from quire.cli.admin.verbs import Given, Verb, VerbGroup, argument, option

_URLS: Final = (
    option("--url", "--service-url", kind=TEXT, help="URL of the admin REST, http://host:8080."),
    option("--url-secure", kind=TEXT, help="URL of the admin REST with TLS, https://host:8443."),
    option("--broker-url", kind=TEXT, help="URL for clients, pulsar://host:6650."),
    option("--broker-url-secure", kind=TEXT, help="URL for clients with TLS, pulsar+ssl://host:6651."),
)
_DOMAIN: Final = option("--domain-name", kind=TEXT, help="The failure domain.", required=True)
_BROKERS: Final = listed("Brokers that fail together, as host:port with commas.", "--broker-list")
_POLICY: Final = argument("policy", TEXT, "A namespace isolation policy.")
_DOMAINS: Final = "clusters/{cluster}/failureDomains"
_ISOLATION: Final = "clusters/{cluster}/namespaceIsolationPolicies"


def _data(given: Given) -> Json:
    names = {
        "serviceUrl": "url",
        "serviceUrlTls": "url_secure",
        "brokerServiceUrl": "broker_url",
        "brokerServiceUrlTls": "broker_url_secure",
    }
    found = {key: given[name] for key, name in names.items() if given[name] is not None}
    if not found:
        raise CommandLineError("a cluster needs an address: give --url and --broker-url, or those with TLS")
    return found


def _brokers(given: Given) -> Json:
    return {"brokers": given["broker_list"]}


def _isolation(given: Given) -> Json:
    return {
        "namespaces": given["namespaces"],
        "primary": given["primary"],
        "secondary": given["secondary"] or [],
        "auto_failover_policy": {
            "policy_type": given["auto_failover_policy_type"],
            "parameters": given["auto_failover_policy_params"],
        },
    }


GROUP: Final = VerbGroup(
    "clusters",
    "Clusters: their addresses and failure domains.",
    (
        Verb("list", "GET clusters", "Print the clusters."),
        Verb("get", "GET clusters/{cluster}", "Print the addresses of a cluster.", (A_CLUSTER,)),
        Verb("create", "PUT clusters/{cluster}", "Add a cluster.", (A_CLUSTER, *_URLS), body=_data),
        Verb("update", "POST clusters/{cluster}", "Change the addresses.", (A_CLUSTER, *_URLS), body=_data),
        Verb(
            "delete",
            "DELETE clusters/{cluster}",
            "Remove a cluster from the metadata.",
            (A_CLUSTER,),
            destroys="the entry of the cluster {cluster}",
        ),
        Verb("get-peer-clusters", "GET clusters/{cluster}/peers", "Print the peers of a cluster.", (A_CLUSTER,)),
        Verb(
            "update-peer-clusters",
            "POST clusters/{cluster}/peers",
            "Set the peers of a cluster.",
            (A_CLUSTER, option("--peer-clusters", kind=WORDS, help="Clusters, with commas.", required=True)),
            body=lambda given: given["peer_clusters"],
        ),
        Verb("list-failure-domains", f"GET {_DOMAINS}", "Print the failure domains.", (A_CLUSTER,)),
        Verb(
            "get-failure-domain",
            f"GET {_DOMAINS}/{{domain_name}}",
            "Print the brokers of a failure domain.",
            (A_CLUSTER, _DOMAIN),
        ),
        Verb(
            "create-failure-domain",
            f"POST {_DOMAINS}/{{domain_name}}",
            "Create a failure domain.",
            (A_CLUSTER, _DOMAIN, _BROKERS),
            body=_brokers,
        ),
        Verb(
            "update-failure-domain",
            f"POST {_DOMAINS}/{{domain_name}}",
            "Set the brokers of a failure domain.",
            (A_CLUSTER, _DOMAIN, _BROKERS),
            body=_brokers,
        ),
        Verb(
            "delete-failure-domain",
            f"DELETE {_DOMAINS}/{{domain_name}}",
            "Delete a failure domain.",
            (A_CLUSTER, _DOMAIN),
            destroys="the failure domain {domain_name}",
        ),
    ),
)

ISOLATION: Final = VerbGroup(
    "ns-isolation-policy",
    "Policies that keep namespaces on some brokers.",
    (
        Verb("list", f"GET {_ISOLATION}", "Print the policies of a cluster.", (A_CLUSTER,)),
        Verb("get", f"GET {_ISOLATION}/{{policy}}", "Print a policy.", (A_CLUSTER, _POLICY)),
        Verb(
            "set",
            f"POST {_ISOLATION}/{{policy}}",
            "Create or change a policy.",
            (
                A_CLUSTER,
                _POLICY,
                listed("Patterns of namespaces, with commas.", "--namespaces"),
                listed("Patterns of the brokers that serve them, with commas.", "--primary"),
                option("--secondary", kind=WORDS, help="Patterns of brokers for lack of those, with commas."),
                option("--auto-failover-policy-type", kind=TEXT, help="min_available.", default="min_available"),
                option(
                    "--auto-failover-policy-params",
                    kind=PAIRS,
                    help="min_limit=1,usage_threshold=80",
                    required=True,
                ),
            ),
            body=_isolation,
        ),
        Verb(
            "delete",
            f"DELETE {_ISOLATION}/{{policy}}",
            "Delete a policy.",
            (A_CLUSTER, _POLICY),
            destroys="the namespace isolation policy {policy}",
        ),
        Verb("brokers", f"GET {_ISOLATION}/brokers", "Print the brokers with their policies.", (A_CLUSTER,)),
        Verb(
            "broker",
            f"GET {_ISOLATION}/brokers/{{broker}}",
            "Print the policies of a broker.",
            (A_CLUSTER, option("--broker", kind=TEXT, help="The broker, as host:port.", required=True)),
        ),
    ),
)
