"""Table of the permission that each call of the web port needs (pure), by method and route.

A call without a row is refused where authorization is on. docs/security.md has this table as text.

Each line of `_TABLE` is a permission, a kind, methods, and routes that begin with one of the names in `_PLACES`. The
kind decides the statuses of a refusal, which are the original's and do not depend on what exists:

    kind          no role   not permitted
    super-user    401       401
    tenant        401       401
    namespace     403       403
    policy        403       403
    admin         403       401
    topic         401       401

Source: Pulsar's PulsarWebResource (validate...), and the calls of it in NamespacesBase, PersistentTopicsBase,
PersistentTopics, SchemasResourceBase, TenantsBase, ClustersBase, BrokersBase, Bookies, TopicLookupBase. Transactions,
which anybody may read there, need here what their topic needs, or a super user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.security.authorization.permissions import Permission


class CallKind(Enum):
    """CallKind of a call; the value has the statuses without a role, and without the permission."""

    OPEN = ("open", 401, 401)
    SUPER_USER = ("super-user", 401, 401)
    TENANT = ("tenant", 401, 401)
    NAMESPACE = ("namespace", 403, 403)
    POLICY = ("policy", 403, 403)
    ADMIN = ("admin", 403, 401)
    TOPIC = ("topic", 401, 401)


class Route(NamedTuple):
    """Permission of one call."""

    permission: Permission
    kind: CallKind

    def status(self, *, has_role: bool) -> int:
        """Return the status of a refusal."""
        _, without_role, without_permission = self.kind.value
        return without_permission if has_role else without_role


_PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "TOPICS": "/admin/v2/persistent/{tenant}/{namespace}",
        "TOPIC": "/admin/v2/persistent/{tenant}/{namespace}/{topic}",
        "SUBSCRIPTION": "/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}",
        "DIRECT_TOPICS": "/admin/v2/non-persistent/{tenant}/{namespace}",
        "DIRECT": "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}",
        "SCHEMAS": "/admin/v2/schemas/{tenant}/{namespace}/{topic}",
        "NAMESPACES": "/admin/v2/namespaces",
        "NAMESPACE": "/admin/v2/namespaces/{tenant}/{namespace}",
        "BUNDLE": "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}",
        "TENANTS": "/admin/v2/tenants",
        "CLUSTERS": "/admin/v2/clusters",
        "ISOLATION": "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies",
        "DOMAINS": "/admin/v2/clusters/{cluster}/failureDomains",
        "BROKERS": "/admin/v2/brokers",
        "CONFIGURATION": "/admin/v2/brokers/configuration",
        "STATS": "/admin/v2/broker-stats",
        "QUOTAS": "/admin/v2/resource-quotas",
        "GROUPS": "/admin/v2/resourcegroups",
        "BOOKIES": "/admin/v2/bookies",
        "TRANSACTIONS": "/admin/v3/transactions",
        "LOOKUP": "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        "NODES": "/admin/v2/quireNodes",
        "RESTORES": "/admin/v2/quireRestores",
        "TOP": "/admin/v2/quireTop",
        "QUIRE": "/quire",
        "CLUSTER": "/console/api/cluster",
        "CONSOLE": "/console/api",
        "OPENAPI": "/openapi.json",
    }
)

_TABLE: Final = """
SUPER_USER super-user PUT NAMESPACE/unload BUNDLE/unload BUNDLE/split
SUPER_USER super-user POST,DELETE NAMESPACE/delayedDelivery
SUPER_USER super-user GET TENANTS
SUPER_USER super-user PUT TENANTS/{tenant}
TENANT_ADMIN tenant GET,POST,DELETE TENANTS/{tenant}
TENANT_ADMIN tenant GET NAMESPACES/{tenant}
TENANT_ADMIN tenant PUT,DELETE NAMESPACE
NOTHING open GET CLUSTERS
SUPER_USER super-user GET,PUT,POST,DELETE CLUSTERS/{cluster}
NOTHING open GET BROKERS/version BROKERS/ready
NOTHING open GET OPENAPI
SUPER_USER super-user GET BROKERS BROKERS/leaderBroker BROKERS/internal-configuration
SUPER_USER super-user GET CONFIGURATION CONFIGURATION/values CONFIGURATION/runtime
SUPER_USER super-user POST CONFIGURATION/{name}/{value}
SUPER_USER super-user DELETE CONFIGURATION/{name}
SUPER_USER super-user GET STATS/load-report STATS/topics STATS/metrics STATS/mbeans STATS/allocator-stats/{allocator}
SUPER_USER super-user GET STATS/bookieops STATS/broker-resource-availability/{tenant}/{namespace}
SUPER_USER super-user GET,POST QUOTAS
SUPER_USER super-user GET,POST,DELETE QUOTAS/{tenant}/{namespace}/{bundle}
SUPER_USER super-user GET GROUPS
SUPER_USER super-user GET,PUT,DELETE GROUPS/{group}
SUPER_USER super-user GET,POST CLUSTERS/{cluster}/peers CLUSTERS/{cluster}/migrate
SUPER_USER super-user GET DOMAINS
SUPER_USER super-user GET,POST,DELETE DOMAINS/{domain}
TENANT_ADMIN tenant GET NAMESPACES/{cluster}/antiAffinity/{affinity_group}
SUPER_USER super-user GET BROKERS/backlog-quota-check BROKERS/{cluster} BROKERS/{cluster}/{broker}/ownedNamespaces
SUPER_USER super-user GET BROKERS/health BOOKIES/all BOOKIES/racks-info
SUPER_USER super-user GET,POST,DELETE BOOKIES/racks-info/{bookie}
SUPER_USER super-user GET ISOLATION ISOLATION/brokers ISOLATION/brokers/{broker}
SUPER_USER super-user GET,POST,DELETE ISOLATION/{policy}
SUPER_USER super-user GET,PUT QUIRE/loggers
SUPER_USER super-user PUT,DELETE QUIRE/loggers/{name}
SUPER_USER super-user GET QUIRE/warnings
SUPER_USER super-user GET CLUSTER/brokers CLUSTER/brokers/events CLUSTER/bundles/{tenant}/{namespace}
SUPER_USER super-user POST CLUSTER/survey
SUPER_USER super-user GET CLUSTER/survey/events CLUSTER/ledgers CLUSTER/loss/{bookie} CLUSTER/bookies
SUPER_USER super-user GET CLUSTER/repairs CLUSTER/repairs/events CLUSTER/warnings CLUSTER/warnings/events
SUPER_USER super-user GET CONSOLE/topics CONSOLE/topic-events CONSOLE/loaded-topics
ANY_ROLE super-user GET CONSOLE/whoami
LOOKUP_NAMESPACE namespace GET CONSOLE/topics/{tenant}/{namespace} CONSOLE/topic-events/{tenant}/{namespace}
CONSUME topic GET CONSOLE/messages/{tenant}/{namespace}/{topic}

LOOKUP_NAMESPACE namespace GET TOPICS TOPICS/partitioned DIRECT_TOPICS DIRECT_TOPICS/partitioned
LOOKUP_NAMESPACE namespace GET NAMESPACE/topics NAMESPACE/bundles
CONSUME_NAMESPACE namespace POST NAMESPACE/clearBacklog NAMESPACE/clearBacklog/{subscription}
CONSUME_NAMESPACE namespace POST BUNDLE/clearBacklog BUNDLE/clearBacklog/{subscription}
CONSUME_NAMESPACE namespace POST NAMESPACE/unsubscribe/{subscription} BUNDLE/unsubscribe/{subscription}
TENANT_ADMIN namespace GET NAMESPACE/permissions NAMESPACE/permissions/subscription
TENANT_ADMIN namespace POST,DELETE NAMESPACE/permissions/{role}
TENANT_ADMIN namespace POST NAMESPACE/permissions/subscription/{subscription}
TENANT_ADMIN namespace DELETE NAMESPACE/permissions/{subscription}/{role}
TENANT_ADMIN admin POST NAMESPACES/grantPermissionsOnTopics NAMESPACES/revokePermissionsOnTopics
TENANT_ADMIN namespace DELETE BUNDLE
TENANT_ADMIN policy GET NAMESPACE NAMESPACE/delayedDelivery
TENANT_ADMIN policy GET,POST NAMESPACE/subscriptionAuthMode
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/persistence NAMESPACE/retention NAMESPACE/deduplication
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/deduplicationSnapshotInterval NAMESPACE/messageTTL
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/subscriptionExpirationTime NAMESPACE/maxProducersPerTopic
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/maxConsumersPerTopic NAMESPACE/maxSubscriptionsPerTopic
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/maxConsumersPerSubscription NAMESPACE/maxUnackedMessagesPerConsumer
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/maxUnackedMessagesPerSubscription NAMESPACE/maxTopicsPerNamespace
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/dispatchRate NAMESPACE/subscriptionDispatchRate NAMESPACE/publishRate
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/replicatorDispatchRate NAMESPACE/subscribeRate
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/inactiveTopicPolicies NAMESPACE/autoTopicCreation
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/autoSubscriptionCreation NAMESPACE/subscriptionTypesEnabled
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/entryFilters NAMESPACE/dispatcherPauseOnAckStatePersistent
TENANT_ADMIN policy GET,PUT,DELETE NAMESPACE/compactionThreshold
TENANT_ADMIN policy GET NAMESPACE/backlogQuotaMap
TENANT_ADMIN policy POST,DELETE NAMESPACE/backlogQuota
TENANT_ADMIN policy GET,PUT NAMESPACE/schemaCompatibilityStrategy NAMESPACE/schemaAutoUpdateCompatibilityStrategy
TENANT_ADMIN policy GET,POST NAMESPACE/isAllowAutoUpdateSchema NAMESPACE/schemaValidationEnforced
TENANT_ADMIN policy GET,POST NAMESPACE/encryptionRequired NAMESPACE/replication NAMESPACE/allowedClusters
TENANT_ADMIN policy GET,POST,DELETE NAMESPACE/allowedTopicPropertyKeysForMetrics NAMESPACE/antiAffinity
TENANT_ADMIN policy GET,PUT NAMESPACE/offloadThreshold NAMESPACE/offloadThresholdInSeconds
TENANT_ADMIN policy GET,PUT,DELETE NAMESPACE/offloadDeletionLagMs
TENANT_ADMIN policy GET,POST NAMESPACE/offloadPolicies
TENANT_ADMIN policy DELETE NAMESPACE/removeOffloadPolicies
TENANT_ADMIN policy GET,PUT,DELETE NAMESPACE/properties
TENANT_ADMIN policy GET,DELETE NAMESPACE/property/{key}
TENANT_ADMIN policy PUT NAMESPACE/property/{key}/{value}
TENANT_ADMIN policy GET,DELETE NAMESPACE/resourcegroup
TENANT_ADMIN policy POST NAMESPACE/resourcegroup/{group}
SUPER_USER super-user GET,POST,DELETE NAMESPACE/persistence/bookieAffinity
SUPER_USER super-user POST NAMESPACE/migration
LOOKUP_NAMESPACE namespace GET BUNDLE/topicHashPositions DIRECT

TENANT_ADMIN namespace PUT,DELETE TOPIC DIRECT
TENANT_ADMIN namespace PUT,DELETE TOPIC/partitions DIRECT/partitions
TENANT_ADMIN namespace POST TOPIC/createMissedPartitions
TENANT_ADMIN policy POST TOPIC/partitions DIRECT/partitions
TENANT_ADMIN admin GET TOPIC/permissions DIRECT/permissions
TENANT_ADMIN admin POST,DELETE TOPIC/permissions/{role} DIRECT/permissions/{role}
TENANT_ADMIN admin DELETE TOPIC/truncate
TENANT_ADMIN admin GET,POST,DELETE TOPIC/maxMessageSize
TENANT_ADMIN topic POST TOPIC/terminate TOPIC/terminate/partitions TOPIC/trim
TENANT_ADMIN topic GET,PUT TOPIC/compaction
TENANT_ADMIN topic PUT TOPIC/unload DIRECT/unload
TENANT_ADMIN topic PUT,DELETE TOPIC/properties
SUPER_USER super-user GET TOPIC/quireUnused DIRECT/quireUnused
SUPER_USER super-user GET,DELETE TOPIC/quireTopicPolicies
LOOKUP topic GET TOPIC/partitions DIRECT/partitions TOPIC/properties
LOOKUP topic GET TOPIC/stats TOPIC/partitioned-stats TOPIC/internalStats TOPIC/partitioned-internalStats TOPIC/explain
LOOKUP topic GET DIRECT/stats DIRECT/partitioned-stats DIRECT/internalStats
CONSUME topic GET TOPIC/subscriptions DIRECT/subscriptions TOPIC/messageid/{timestamp} TOPIC/lastMessageId
CONSUME topic GET TOPIC/examinemessage TOPIC/ledger/{ledger}/entry/{entry} TOPIC/getMessageIdByIndex
CONSUME topic PUT TOPIC/backlogSize
CONSUME topic POST TOPIC/all_subscription/expireMessages/{seconds}
CONSUME topic PUT,DELETE SUBSCRIPTION DIRECT/subscription/{subscription}
CONSUME topic POST SUBSCRIPTION/resetcursor SUBSCRIPTION/resetcursor/{timestamp} SUBSCRIPTION/analyzeBacklog
CONSUME topic POST SUBSCRIPTION/skip/{count} SUBSCRIPTION/skip_all
CONSUME topic POST SUBSCRIPTION/expireMessages SUBSCRIPTION/expireMessages/{seconds}
CONSUME topic GET,PUT SUBSCRIPTION/properties
CONSUME topic GET SUBSCRIPTION/position/{number} SUBSCRIPTION/explain
TENANT_ADMIN policy GET,POST,DELETE TOPIC/persistence TOPIC/retention TOPIC/deduplicationEnabled
TENANT_ADMIN policy GET,POST,DELETE TOPIC/deduplicationSnapshotInterval TOPIC/delayedDelivery TOPIC/messageTTL
TENANT_ADMIN policy GET,POST,DELETE TOPIC/maxProducers TOPIC/maxConsumers TOPIC/maxSubscriptionsPerTopic
TENANT_ADMIN policy GET,POST,DELETE TOPIC/maxConsumersPerSubscription TOPIC/maxUnackedMessagesOnConsumer
TENANT_ADMIN policy GET,POST,DELETE TOPIC/maxUnackedMessagesOnSubscription TOPIC/subscriptionExpirationTime
TENANT_ADMIN policy GET,POST,DELETE TOPIC/compactionThreshold TOPIC/dispatchRate TOPIC/subscriptionDispatchRate
TENANT_ADMIN policy GET,POST,DELETE TOPIC/replicatorDispatchRate TOPIC/publishRate TOPIC/subscribeRate
TENANT_ADMIN policy GET,POST,DELETE TOPIC/inactiveTopicPolicies TOPIC/autoSubscriptionCreation
TENANT_ADMIN policy GET,POST,DELETE TOPIC/subscriptionTypesEnabled TOPIC/entryFilters
TENANT_ADMIN policy GET,POST,DELETE TOPIC/dispatcherPauseOnAckStatePersistent TOPIC/offloadPolicies
TENANT_ADMIN policy GET,POST,DELETE TOPIC/replication TOPIC/shadowTopics TOPIC/{subscription}/dispatchRate
TENANT_ADMIN policy GET TOPIC/backlogQuotaMap
TENANT_ADMIN policy POST,DELETE TOPIC/backlogQuota
TENANT_ADMIN policy GET,PUT,DELETE TOPIC/schemaCompatibilityStrategy
TENANT_ADMIN policy GET,POST,DELETE TOPIC/schemaValidationEnforced
TENANT_ADMIN policy DELETE TOPIC/policies DIRECT/policies
TENANT_ADMIN policy GET,POST,DELETE DIRECT/inactiveTopicPolicies DIRECT/maxConsumers DIRECT/maxConsumersPerSubscription
TENANT_ADMIN policy GET,POST,DELETE DIRECT/maxProducers DIRECT/maxSubscriptionsPerTopic DIRECT/publishRate
TENANT_ADMIN admin GET,POST,DELETE DIRECT/maxMessageSize
TENANT_ADMIN topic GET,PUT TOPIC/offload
TENANT_ADMIN topic GET,PUT,POST TOPIC/quireBackup SUBSCRIPTION/quireState
TENANT_ADMIN topic GET,POST TOPIC/quireEntries
TENANT_ADMIN topic GET,PUT,POST,DELETE TOPIC/quireOffload
SUPER_USER super-user GET NODES RESTORES TOP
LOOKUP topic GET TOPIC/internal-info
CONSUME topic GET TOPIC/backlog
CONSUME topic GET,POST SUBSCRIPTION/replicatedSubscriptionStatus

LOOKUP topic GET SCHEMAS/schema SCHEMAS/schema/{version} SCHEMAS/schemas SCHEMAS/metadata
LOOKUP topic POST SCHEMAS/version
PRODUCE topic POST SCHEMAS/schema
TENANT_ADMIN admin DELETE SCHEMAS/schema
TENANT_ADMIN admin POST SCHEMAS/compatibility

LOOKUP topic GET LOOKUP
LOOKUP_NAMESPACE namespace GET LOOKUP/bundle

SUPER_USER super-user GET TRANSACTIONS/coordinators TRANSACTIONS/coordinatorStats
SUPER_USER super-user GET TRANSACTIONS/coordinatorInternalStats/{coordinator}
SUPER_USER super-user POST TRANSACTIONS/transactionCoordinator/replicas
SUPER_USER super-user GET TRANSACTIONS/transactionMetadata/{most}/{least} TRANSACTIONS/slowTransactions/{timeout}
SUPER_USER super-user POST TRANSACTIONS/abortTransaction/{most}/{least}
LOOKUP topic GET TRANSACTIONS/transactionBufferStats/{tenant}/{namespace}/{topic}
LOOKUP topic GET TRANSACTIONS/transactionInBufferStats/{tenant}/{namespace}/{topic}/{most}/{least}
LOOKUP topic GET TRANSACTIONS/transactionBufferInternalStats/{tenant}/{namespace}/{topic}
CONSUME topic GET TRANSACTIONS/pendingAckStats/{tenant}/{namespace}/{topic}/{subscription}
CONSUME topic GET TRANSACTIONS/transactionInPendingAckStats/{tenant}/{namespace}/{topic}/{subscription}/{most}/{least}
CONSUME topic GET TRANSACTIONS/pendingAckInternalStats/{tenant}/{namespace}/{topic}/{subscription}
CONSUME topic GET TRANSACTIONS/positionStatsInPendingAck/{tenant}/{namespace}/{topic}/{subscription}/{ledger}/{entry}
"""


def _rows() -> Iterator[tuple[tuple[str, str], Route]]:
    kinds = {each.value[0]: each for each in CallKind}
    for line in _TABLE.split("\n"):
        if not line:
            continue
        permission, kind, methods, *routes = line.split(" ")
        for route in routes:
            place, slash, rest = route.partition("/")
            for method in methods.split(","):
                yield (method, f"{_PLACES[place]}{slash}{rest}"), Route(Permission[permission], kinds[kind])


def _once() -> dict[tuple[str, str], Route]:
    found: dict[tuple[str, str], Route] = {}
    for key, route in _rows():
        assert key not in found, f"{key} has two rows"
        found[key] = route
    return found


ROUTES: Final[Mapping[tuple[str, str], Route]] = MappingProxyType(_once())
"""Rows by method and route. A HEAD needs what its GET needs."""
BY_BODY: Final = frozenset(("grantPermissionsOnTopics", "revokePermissionsOnTopics", "{affinity_group}"))
"""Ends of routes whose tenant is in the body or the query: their handlers check it."""


def row_of(method: str, pattern: str) -> Route | None:
    """Return the row of a call; None: it has none."""
    return ROUTES.get(("GET" if method == "HEAD" else method, pattern))
