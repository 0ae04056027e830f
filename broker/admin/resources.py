"""All resources of the admin REST, as routes for the web port.

Each of them has a row in broker.security.authorization.routes, which says what permission it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.routing import BaseRoute

from broker.admin import (
    lookup,
    namespaces,
    non_persistent,
    not_obeyed,
    partitions,
    policies,
    policy_resources,
    properties,
    schema_policies,
    schemas,
    subscriptions,
    tenants,
    topics,
)
from broker.admin.backup import resources as backup
from broker.admin.cluster import (
    affinity,
    brokers,
    clusters,
    configuration,
    failure_domains,
    isolation,
    quotas,
    racks,
    resource_groups,
)
from broker.admin.errors import Statuses
from broker.admin.openapi import served
from broker.admin.openapi.reach import Late
from broker.admin.permissions import handlers as permissions
from broker.admin.policies import Handlers
from broker.admin.positions import analysis, compaction, life, messages, of_namespace
from broker.admin.positions import subscriptions as moves_of_subscriptions
from broker.admin.requests import Service
from broker.admin.resource import Handler, NotServed, Resource
from broker.admin.stats import broker_stats, stored
from broker.admin.stats import handlers as stats
from broker.explain import rest as explanations
from broker.transactions.errors import CoordinatorNotFoundError, InvalidStatusError, TransactionNotFoundError

_PERSISTENT = "/admin/v2/persistent/{tenant}/{namespace}"
_NON_PERSISTENT = "/admin/v2/non-persistent/{tenant}/{namespace}"
_TOPIC = f"{_PERSISTENT}/{{topic}}"
_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_TRANSACTIONS = "/admin/v3/transactions"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


def position_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of positions in a topic."""
    subscription, moves = f"{_TOPIC}/subscription/{{subscription}}", moves_of_subscriptions
    return [
        at(f"{subscription}/resetcursor", POST=moves.reset),
        at(f"{subscription}/resetcursor/{{timestamp}}", POST=moves.reset_to_time),
        at(f"{subscription}/skip/{{count}}", POST=moves.skip),
        at(f"{subscription}/skip_all", POST=moves.skip_all),
        at(f"{subscription}/expireMessages", POST=moves.expire_to),
        at(f"{subscription}/expireMessages/{{seconds}}", POST=moves.expire_older),
        at(f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}", POST=moves.expire_older_of_all),
        at(f"{subscription}/properties", GET=moves.properties, PUT=moves.set_properties),
        at(f"{subscription}/position/{{number}}", GET=messages.peek),
        at(f"{subscription}/analyzeBacklog", POST=analysis.analyze),
        at(f"{_TOPIC}/examinemessage", GET=messages.examine),
        at(f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}", GET=messages.by_id),
        at(f"{_TOPIC}/getMessageIdByIndex", GET=messages.by_index),
        at(f"{_TOPIC}/backlogSize", PUT=messages.backlog_size),
        at(f"{_TOPIC}/terminate", POST=life.terminate),
        at(f"{_TOPIC}/terminate/partitions", POST=life.terminate_partitions),
        at(f"{_TOPIC}/trim", POST=life.trim),
        at(f"{_TOPIC}/truncate", DELETE=life.truncate),
        at(f"{_TOPIC}/compaction", PUT=compaction.start, GET=compaction.status),
    ]


def non_persistent_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of non-persistent topics."""
    topic = f"{_NON_PERSISTENT}/{{topic}}"
    return [
        at(_NON_PERSISTENT, GET=non_persistent.names),
        at(f"{_NON_PERSISTENT}/partitioned", GET=non_persistent.partitioned_names),
        at(
            topic,
            GET=non_persistent.names_of_bundle,
            PUT=non_persistent.create,
            DELETE=non_persistent.delete,
            statuses={"DELETE": topics.DELETING},
        ),
        at(
            f"{topic}/partitions",
            PUT=partitions.create,
            POST=partitions.grow,
            GET=partitions.count,
            DELETE=partitions.delete,
            statuses={"PUT": partitions.CREATING, "POST": partitions.GROWING},
        ),
        at(f"{topic}/stats", GET=non_persistent.stats),
        at(f"{topic}/partitioned-stats", GET=non_persistent.partitioned_stats),
        at(f"{topic}/internalStats", GET=non_persistent.internal_stats),
        at(f"{topic}/unload", PUT=non_persistent.unload),
        *policy_resources.direct_resources(at, topic),
        at(f"{topic}/policies", DELETE=policies.delete_own),
        at(f"{topic}/quireUnused", GET=topics.check_unused),
        at(f"{topic}/subscriptions", GET=non_persistent.subscriptions),
        at(
            f"{topic}/subscription/{{subscription}}",
            PUT=non_persistent.create_subscription,
            DELETE=non_persistent.delete_subscription,
        ),
    ]


def permission_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of permissions."""
    place = f"{_NAMESPACE}/permissions"
    direct = f"{_NON_PERSISTENT}/{{topic}}"
    return [
        at(permissions.GRANT_MANY, POST=permissions.grant_many),
        at(permissions.REVOKE_MANY, POST=permissions.revoke_many),
        at(place, GET=permissions.of_namespace),
        at(f"{place}/subscription", GET=permissions.of_subscriptions),
        at(f"{place}/subscription/{{subscription}}", POST=permissions.grant_on_subscription),
        at(f"{place}/{{role}}", POST=permissions.grant, DELETE=permissions.revoke),
        at(f"{place}/{{subscription}}/{{role}}", DELETE=permissions.revoke_on_subscription),
        at(f"{_NAMESPACE}/subscriptionAuthMode", GET=permissions.mode, POST=permissions.set_mode),
        *[
            each
            for topic in (_TOPIC, direct)
            for each in (
                at(f"{topic}/permissions", GET=permissions.of_topic),
                at(
                    f"{topic}/permissions/{{role}}", POST=permissions.grant_on_topic, DELETE=permissions.revoke_on_topic
                ),
            )
        ],
    ]


def isolation_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of the brokers that may serve a namespace."""
    policies = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
    return [
        at(policies, GET=isolation.every),
        at(f"{policies}/brokers", GET=isolation.every_broker),
        at(f"{policies}/brokers/{{broker}}", GET=isolation.one_broker),
        at(f"{policies}/{{policy}}", GET=isolation.one, POST=isolation.put, DELETE=isolation.delete),
    ]


def affinity_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of clusters beside this one, of failure domains and of affinities of namespaces."""
    cluster = "/admin/v2/clusters/{cluster}"
    return [
        at(f"{cluster}/peers", GET=clusters.peers, POST=clusters.put_peers),
        at(f"{cluster}/migrate", GET=clusters.migrated, POST=clusters.migrate),
        at(f"{cluster}/failureDomains", GET=failure_domains.every),
        at(
            f"{cluster}/failureDomains/{{domain}}",
            GET=failure_domains.one,
            POST=failure_domains.put,
            DELETE=failure_domains.delete,
        ),
        at(f"{_NAMESPACE}/antiAffinity", GET=affinity.group, POST=affinity.put_group, DELETE=affinity.delete_group),
        at(affinity.LISTED, GET=affinity.listed),
        at(
            f"{_NAMESPACE}/persistence/bookieAffinity",
            GET=affinity.bookies,
            POST=affinity.put_bookies,
            DELETE=affinity.delete_bookies,
        ),
    ]


def configuration_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of the configuration that changes while brokers run."""
    place = "/admin/v2/brokers/configuration"
    return [
        at(place, GET=configuration.names),
        at(f"{place}/values", GET=configuration.values),
        at(f"{place}/runtime", GET=configuration.runtime),
        at(f"{place}/{{name}}", DELETE=configuration.delete),
        at(f"{place}/{{name}}/{{value}}", POST=configuration.put),
    ]


def quota_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of resource quotas."""
    return [
        at("/admin/v2/resource-quotas", GET=quotas.default_quota, POST=quotas.put_default_quota),
        at(
            "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}",
            GET=quotas.quota,
            POST=quotas.put_quota,
            DELETE=quotas.delete_quota,
        ),
    ]


def broker_stats_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of the statistics of this broker."""
    place, none = "/admin/v2/broker-stats", broker_stats.not_served
    return [
        at(f"{place}/load-report", GET=broker_stats.load_report),
        at(f"{place}/topics", GET=broker_stats.topics),
        at(f"{place}/metrics", GET=none("metrics are served at /metrics, in the format of Prometheus")),
        at(f"{place}/mbeans", GET=none("there is no JVM, and there are no MBeans; see /metrics")),
        at(f"{place}/allocator-stats/{{allocator}}", GET=none("there is no JVM, and no allocator of its own")),
        at(f"{place}/bookieops", GET=none("operations on metadata are not kept; see /metrics")),
        at(
            f"{place}/broker-resource-availability/{{tenant}}/{{namespace}}",
            GET=none("resources of machines are not measured; see load-report"),
        ),
    ]


def _of_transactions(module: str, name: str) -> Handler:
    """Return a handler of transactions, whose module is imported at the first request."""

    def find() -> Handler:
        from broker.admin.transactions import coordinators, participants

        handler: Handler = getattr(coordinators if module == "coordinators" else participants, name)
        return handler

    return Late(find)


def transaction_routes(at: Callable[..., Resource]) -> list[BaseRoute]:
    """Return the routes of transactions."""
    txn, topic = "{most}/{least}", "{tenant}/{namespace}/{topic}"
    subscription = f"{topic}/{{subscription}}"
    missing: Statuses = {TransactionNotFoundError: 404, InvalidStatusError: 409, CoordinatorNotFoundError: 503}
    return [
        at(f"{_TRANSACTIONS}/{path}", statuses={method: missing}, **{method: _of_transactions(module, name)})
        for method, path, module, name in (
            ("GET", "coordinators", "coordinators", "listed"),
            ("GET", "coordinatorStats", "coordinators", "stats"),
            ("GET", "coordinatorInternalStats/{coordinator}", "coordinators", "internal_stats"),
            ("GET", f"transactionMetadata/{txn}", "coordinators", "metadata"),
            ("GET", "slowTransactions/{timeout}", "coordinators", "slow"),
            ("POST", f"abortTransaction/{txn}", "coordinators", "abort"),
            ("POST", "transactionCoordinator/replicas", "coordinators", "scale"),
            ("GET", f"transactionBufferStats/{topic}", "participants", "buffer_stats"),
            ("GET", f"transactionInBufferStats/{topic}/{txn}", "participants", "in_buffer"),
            ("GET", f"transactionBufferInternalStats/{topic}", "participants", "buffer_internal_stats"),
            ("GET", f"pendingAckStats/{subscription}", "participants", "acks_stats"),
            ("GET", f"pendingAckInternalStats/{subscription}", "participants", "acks_internal_stats"),
            ("GET", f"transactionInPendingAckStats/{subscription}/{txn}", "participants", "in_acks"),
            (
                "GET",
                f"positionStatsInPendingAck/{subscription}/{{ledger}}/{{entry}}",
                "participants",
                "position_in_acks",
            ),
        )
    ]


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes in the order in which they are tried."""
    at = partial(Resource, service=service)

    def at_policy(pattern: str, policy: Handlers) -> Resource:
        return at(pattern, GET=policy.get, POST=policy.post, DELETE=policy.delete)

    return [
        at(_PERSISTENT, GET=topics.names),
        at(f"{_PERSISTENT}/partitioned", GET=topics.partitioned_names),
        at(
            _TOPIC,
            PUT=topics.create,
            DELETE=topics.delete,
            statuses={"PUT": topics.CREATING, "DELETE": topics.DELETING},
        ),
        *non_persistent_routes(at),
        at(f"{_NAMESPACE}/topics", GET=topics.names_by_mode),
        at(
            f"{_TOPIC}/partitions",
            PUT=partitions.create,
            POST=partitions.grow,
            GET=partitions.count,
            DELETE=partitions.delete,
            statuses={"PUT": partitions.CREATING, "POST": partitions.GROWING},
        ),
        at(f"{_TOPIC}/stats", GET=stats.of_topic, statuses={"GET": stats.STATUSES}),
        at(f"{_TOPIC}/partitioned-stats", GET=stats.of_partitioned),
        at(f"{_TOPIC}/internalStats", GET=topics.internal_stats),
        at(f"{_TOPIC}/partitioned-internalStats", GET=topics.partitioned_internal_stats),
        at(f"{_TOPIC}/messageid/{{timestamp}}", GET=topics.message_id_at),
        at(f"{_TOPIC}/lastMessageId", GET=topics.last_message_id),
        at(f"{_TOPIC}/subscriptions", GET=subscriptions.names),
        at(f"{_TOPIC}/subscription/{{subscription}}", PUT=subscriptions.create, DELETE=subscriptions.delete),
        *position_routes(at),
        at(f"{_TOPIC}/subscription/{{subscription}}/explain", GET=explanations.of_subscription),
        at(f"{_TOPIC}/explain", GET=explanations.of_topic),
        at(f"{_TOPIC}/properties", GET=properties.get, PUT=properties.put, DELETE=properties.delete),
        at(f"{_TOPIC}/createMissedPartitions", POST=properties.create_missed_partitions),
        at(f"{_TOPIC}/internal-info", GET=stored.internal_info),
        at(f"{_TOPIC}/backlog", GET=stored.backlog),
        at(f"{_TOPIC}/policies", DELETE=policies.delete_own),
        at(f"{_TOPIC}/unload", PUT=topics.unload),
        at(f"{_TOPIC}/quireUnused", GET=topics.check_unused),
        at_policy(f"{_TOPIC}/persistence", policies.TOPIC_PERSISTENCE),
        at_policy(f"{_TOPIC}/retention", policies.TOPIC_RETENTION),
        at_policy(f"{_TOPIC}/deduplicationEnabled", policies.TOPIC_DEDUPLICATION),
        at_policy(f"{_TOPIC}/deduplicationSnapshotInterval", policies.TOPIC_SNAPSHOT_INTERVAL),
        at(
            f"{_TOPIC}/schemaCompatibilityStrategy",
            GET=schema_policies.get_topic_strategy,
            PUT=schema_policies.put_topic_strategy,
            DELETE=schema_policies.delete_topic_strategy,
        ),
        at(
            f"{_TOPIC}/schemaValidationEnforced",
            GET=schema_policies.get_topic_enforced,
            POST=schema_policies.post_topic_enforced,
            DELETE=schema_policies.delete_topic_enforced,
        ),
        at(f"{_SCHEMAS}/schema", GET=schemas.get, POST=schemas.post, DELETE=schemas.delete),
        at(f"{_SCHEMAS}/schema/{{version}}", GET=schemas.get_version),
        at(f"{_SCHEMAS}/schemas", GET=schemas.get_all),
        at(f"{_SCHEMAS}/metadata", GET=schemas.metadata),
        at(f"{_SCHEMAS}/compatibility", POST=schemas.compatibility),
        at(f"{_SCHEMAS}/version", POST=schemas.version),
        at_policy(f"{_TOPIC}/delayedDelivery", policies.TOPIC_DELAYED_DELIVERY),
        at_policy(f"{_TOPIC}/messageTTL", policies.TOPIC_TTL),
        *policy_resources.resources(at, _TOPIC, _NAMESPACE),
        *not_obeyed.resources(at, _TOPIC, _NAMESPACE),
        *permission_routes(at),
        at("/admin/v2/namespaces/{tenant}", GET=namespaces.names),
        at(_NAMESPACE, GET=namespaces.get, PUT=namespaces.create, DELETE=namespaces.delete),
        at_policy(f"{_NAMESPACE}/persistence", policies.NAMESPACE_PERSISTENCE),
        at_policy(f"{_NAMESPACE}/retention", policies.NAMESPACE_RETENTION),
        at_policy(f"{_NAMESPACE}/deduplication", policies.NAMESPACE_DEDUPLICATION),
        at_policy(f"{_NAMESPACE}/deduplicationSnapshotInterval", policies.NAMESPACE_SNAPSHOT_INTERVAL),
        at(
            f"{_NAMESPACE}/schemaCompatibilityStrategy",
            GET=schema_policies.get_strategy,
            PUT=schema_policies.put_strategy,
        ),
        at(
            f"{_NAMESPACE}/schemaAutoUpdateCompatibilityStrategy",
            GET=schema_policies.get_auto_update_strategy,
            PUT=schema_policies.put_auto_update_strategy,
        ),
        at(
            f"{_NAMESPACE}/isAllowAutoUpdateSchema",
            GET=schema_policies.get_auto_update,
            POST=schema_policies.post_auto_update,
        ),
        at(
            f"{_NAMESPACE}/schemaValidationEnforced",
            GET=schema_policies.get_enforced,
            POST=schema_policies.post_enforced,
        ),
        at_policy(f"{_NAMESPACE}/delayedDelivery", policies.NAMESPACE_DELAYED_DELIVERY),
        at(
            f"{_NAMESPACE}/encryptionRequired",
            GET=policies.get_encryption,
            POST=policies.NAMESPACE_ENCRYPTION.post,
        ),
        at(
            f"{_NAMESPACE}/properties",
            GET=properties.get_all,
            PUT=properties.put_all,
            DELETE=properties.clear,
        ),
        at(f"{_NAMESPACE}/property/{{key}}", GET=properties.get_one, DELETE=properties.delete_one),
        at(f"{_NAMESPACE}/property/{{key}}/{{value}}", PUT=properties.put_one),
        at_policy(f"{_NAMESPACE}/messageTTL", policies.NAMESPACE_TTL),
        at_policy(f"{_NAMESPACE}/subscriptionExpirationTime", policies.SUBSCRIPTION_EXPIRATION),
        *[
            at(f"{place}/{resource}", POST=handler)
            for place in (_NAMESPACE, f"{_NAMESPACE}/{{bundle}}")
            for resource, handler in (
                ("clearBacklog", of_namespace.clear),
                ("clearBacklog/{subscription}", of_namespace.clear),
                ("unsubscribe/{subscription}", of_namespace.unsubscribe),
            )
        ],
        at(f"{_NAMESPACE}/bundles", GET=namespaces.bundles),
        at(f"{_NAMESPACE}/unload", PUT=namespaces.unload_all),
        at(f"{_NAMESPACE}/{{bundle}}/unload", PUT=namespaces.unload, statuses={"PUT": namespaces.UNLOADING}),
        at(f"{_NAMESPACE}/{{bundle}}/split", PUT=namespaces.split),
        at(f"{_NAMESPACE}/{{bundle}}/topicHashPositions", GET=namespaces.hash_positions),
        at("/admin/v2/tenants", GET=tenants.names),
        at(
            "/admin/v2/tenants/{tenant}",
            GET=tenants.get,
            PUT=tenants.create,
            POST=tenants.update,
            DELETE=tenants.delete,
        ),
        at("/admin/v2/clusters", GET=clusters.names),
        at(
            "/admin/v2/clusters/{cluster}",
            GET=clusters.get,
            PUT=clusters.create,
            POST=clusters.update,
            DELETE=clusters.delete,
        ),
        *isolation_routes(at),
        *affinity_routes(at),
        *quota_routes(at),
        *resource_groups.resources(at, _NAMESPACE),
        *broker_stats_routes(at),
        at("/admin/v2/brokers", GET=brokers.names),
        at("/admin/v2/brokers/leaderBroker", GET=brokers.leader),
        at("/admin/v2/brokers/version", GET=brokers.version),
        at("/admin/v2/brokers/internal-configuration", GET=brokers.internal_configuration),
        *configuration_routes(at),
        at("/admin/v2/brokers/backlog-quota-check", GET=brokers.check_backlog_quotas),
        at("/admin/v2/brokers/{cluster}", GET=brokers.names_of_cluster),
        at("/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", GET=brokers.owned),
        at("/admin/v2/bookies/all", GET=brokers.bookies),
        at("/admin/v2/bookies/racks-info", GET=racks.every),
        at("/admin/v2/bookies/racks-info/{bookie}", GET=racks.one, POST=racks.put, DELETE=racks.delete),
        at(f"{_LOOKUP}/bundle", GET=lookup.bundle),
        at(_LOOKUP, GET=lookup.owner),
        *transaction_routes(at),
        *backup.resources(at, _TOPIC),
        at(served.PATH, GET=served.Description().get),
        NotServed("/admin/v2/non-persistent/", 405, "is not allowed: a non-persistent topic stores nothing"),
        NotServed("/admin/v2/"),
        NotServed("/admin/v3/"),
        NotServed("/lookup/"),
        # Last, so that other methods of such a path are not served instead of not allowed.
        at(f"{_NAMESPACE}/{{bundle}}", DELETE=namespaces.delete_bundle, statuses={"DELETE": namespaces.UNLOADING}),
    ]
