"""The groups of verbs by name: only the table that a command needs is imported."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quire.cli.admin.verbs import VerbGroup

GROUPS: Final = MappingProxyType(
    {
        "clusters": ("clusters", "GROUP", "Clusters: their addresses and failure domains."),
        "tenants": ("tenants", "GROUP", "Tenants: who may use which clusters."),
        "namespaces": ("namespaces", "GROUP", "Namespaces: life, permissions, bundles, policies."),
        "topics": ("topics", "GROUP", "Topics, their subscriptions and messages."),
        "subscriptions": ("topics", "SUBSCRIPTION_GROUP", "Subscriptions: the verbs of topics about them."),
        "topic-policies": ("topic_policies", "GROUP", "Policies of single topics."),
        "schemas": ("schemas", "GROUP", "Schemas of topics."),
        "brokers": ("brokers", "BROKERS", "Brokers: who serves, their configuration, their health."),
        "broker-stats": ("brokers", "STATS", "Statistics of one broker."),
        "bookies": ("brokers", "BOOKIES", "Bookies and their racks."),
        "ns-isolation-policy": ("clusters", "ISOLATION", "Policies that keep namespaces on some brokers."),
        "resource-quotas": ("limits", "QUOTAS", "Expected load of bundles."),
        "resourcegroups": ("limits", "GROUPS", "Resource groups: limits that namespaces share."),
        "transactions": ("transactions", "GROUP", "Transactions and their coordinators."),
    }
)
"""By name: the module of `quire.cli.admin.table`, the name in it, and the help."""
ALIASES: Final = MappingProxyType({"topicPolicies": "topic-policies"})


def group(name: str) -> VerbGroup:
    """Return a group by its name, or its other name."""
    module, attribute, _ = GROUPS[ALIASES.get(name, name)]
    found: VerbGroup = getattr(import_module(f"quire.cli.admin.table.{module}"), attribute)
    return found
