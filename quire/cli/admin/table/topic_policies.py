"""Policies of topics. pulsar-admin has them in the group topicPolicies, and under older names in topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from quire.cli.admin.table.shared import (
    A_TOPIC,
    ACK_QUORUM,
    ANYWHERE,
    APPLIED,
    BYTES,
    DELAYED,
    DISABLE,
    ENABLE,
    ENSEMBLE,
    FILTERS,
    INACTIVE,
    MARK_DELETE_RATE,
    MESSAGES,
    OFFLOAD,
    PERIOD,
    PUBLISH_BYTES,
    PUBLISH_MESSAGES,
    QUOTA,
    QUOTA_TYPE,
    RELATIVE,
    STRATEGIES,
    SUBSCRIBE_PERIOD,
    SUBSCRIBE_RATE,
    TYPES,
    WRITE_QUORUM,
    backlog_quota,
    chosen,
    delayed,
    dispatch_rate,
    inactive,
    just,
    limit,
    listed,
    offload,
    persistence,
    policy,
    publish_rate,
    retention,
    subscribe_rate,
)
from quire.cli.admin.values import (
    RETENTION_SIZE,
    RETENTION_TIME,
    SECONDS,
    SIZE,
    TEXT,
    Json,
    ValueKind,
    number,
    one_of,
)
from quire.cli.admin.verbs import ABSENT, Given, Plan, Verb, VerbGroup, VerbParameter, made, option

_COUNT: Final = number(0)
_SUBSCRIPTION: Final = option("--subscription", "-s", kind=TEXT, help="Only this subscription.")


def _policy(
    name: str,
    resource: str,
    what: str,
    parameters: tuple[VerbParameter, ...],
    body: Callable[[Given], Json],
    *,
    setting: str = "POST",
) -> tuple[Verb, ...]:
    return policy(
        A_TOPIC,
        "{topic}",
        name,
        resource,
        what,
        parameters,
        body,
        setting=setting,
        further=(ANYWHERE,),
        reading=(APPLIED,),
    )


def _limit(name: str, resource: str, what: str, kind: ValueKind, *flags: str) -> tuple[Verb, ...]:
    one, body = limit(flags, kind, "The value; 0: no limit.")
    return _policy(name, resource, what, (one,), body)


def _subscription_rate() -> tuple[Verb, ...]:
    """Return the verbs of the rate of all subscriptions, or of one."""

    def plan(method: str) -> Callable[[Given], Plan]:
        def run(given: Given) -> Plan:
            resource = "subscriptionDispatchRate" if given["subscription"] is None else "{subscription}/dispatchRate"
            query = "?applied={applied}&isGlobal={global}" if method == "GET" else "?isGlobal={global}"
            body = dispatch_rate(given) if method == "POST" else ABSENT
            return (yield made(f"{method} {{topic}}/{resource}{query}", given, body))

        return run

    verbs = _policy(
        "subscription-dispatch-rate",
        "subscriptionDispatchRate",
        "the rate of delivery of a subscription",
        (MESSAGES, BYTES, PERIOD, RELATIVE),
        dispatch_rate,
    )
    return tuple(
        replace(each, parameters=(*each.parameters, _SUBSCRIPTION), plan=plan(each.method), body=None) for each in verbs
    )


def _quotas() -> tuple[Verb, ...]:
    query = "?backlogQuotaType={type}&isGlobal={global}"
    return (
        Verb(
            "get-backlog-quota",
            "GET {topic}/backlogQuotaMap?applied={applied}&isGlobal={global}",
            "Print the limits of the backlog.",
            (A_TOPIC, APPLIED, ANYWHERE),
        ),
        Verb(
            "set-backlog-quota",
            f"POST {{topic}}/backlogQuota{query}",
            "Set a limit of the backlog.",
            (A_TOPIC, *QUOTA, ANYWHERE),
            body=backlog_quota,
        ),
        Verb(
            "remove-backlog-quota",
            f"DELETE {{topic}}/backlogQuota{query}",
            "Remove a limit of the backlog.",
            (A_TOPIC, QUOTA_TYPE, ANYWHERE),
        ),
    )


def _ttl() -> tuple[Verb, ...]:
    """Return the verbs of the time to live, whose value is in the query."""
    get, setting, remove = _limit("message-ttl", "messageTTL", "the time to live of messages", SECONDS, "--ttl", "-t")
    request = "POST {topic}/messageTTL?messageTTL={ttl}&isGlobal={global}"
    return get, replace(setting, request=request, body=None), remove


def _all() -> tuple[Verb, ...]:
    return (
        *_policy(
            "retention",
            "retention",
            "how long acknowledged messages are kept",
            (
                option("--time", "-t", kind=RETENTION_TIME, help="Time; 0: none, -1: no limit.", required=True),
                option("--size", "-s", kind=RETENTION_SIZE, help="Size; 0: none, -1: no limit.", required=True),
            ),
            retention,
        ),
        *_quotas(),
        *_ttl(),
        *_policy(
            "persistence",
            "persistence",
            "the copies of ledgers",
            (ENSEMBLE, WRITE_QUORUM, ACK_QUORUM, MARK_DELETE_RATE),
            persistence,
        ),
        *_limit(
            "subscription-expiration-time",
            "subscriptionExpirationTime",
            "the minutes until unused subscriptions are deleted",
            _COUNT,
            "--time",
            "-t",
        ),
        *_policy(
            "deduplication", "deduplicationEnabled", "whether repeated messages are dropped", (ENABLE, DISABLE), chosen
        ),
        *_limit(
            "deduplication-snapshot-interval",
            "deduplicationSnapshotInterval",
            "the seconds after which sequence ids are stored",
            _COUNT,
            "--interval",
            "-i",
        ),
        *_policy(
            "dispatch-rate",
            "dispatchRate",
            "the rate of delivery",
            (MESSAGES, BYTES, PERIOD, RELATIVE),
            dispatch_rate,
        ),
        *_subscription_rate(),
        *_policy(
            "replicator-dispatch-rate",
            "replicatorDispatchRate",
            "the rate of replication",
            (MESSAGES, BYTES, PERIOD, RELATIVE),
            dispatch_rate,
        ),
        *_policy(
            "publish-rate", "publishRate", "the rate of publishing", (PUBLISH_MESSAGES, PUBLISH_BYTES), publish_rate
        ),
        *_policy(
            "subscribe-rate",
            "subscribeRate",
            "the rate of subscribing of a consumer",
            (SUBSCRIBE_RATE, SUBSCRIBE_PERIOD),
            subscribe_rate,
        ),
        *_policy("delayed-delivery", "delayedDelivery", "the delayed delivery", DELAYED, delayed),
        *_policy(
            "inactive-topic-policies", "inactiveTopicPolicies", "when the unused topic is deleted", INACTIVE, inactive
        ),
        *_limit("max-producers", "maxProducers", "the most producers", _COUNT, "--max-producers", "-p"),
        *_limit("max-consumers", "maxConsumers", "the most consumers", _COUNT, "--max-consumers", "-c"),
        *_limit(
            "max-consumers-per-subscription",
            "maxConsumersPerSubscription",
            "the most consumers of a subscription",
            _COUNT,
            "--max-consumers-per-subscription",
            "-c",
        ),
        *_limit(
            "max-subscriptions-per-topic",
            "maxSubscriptionsPerTopic",
            "the most subscriptions",
            _COUNT,
            "--max-subscriptions-per-topic",
            "-s",
        ),
        *_limit("max-message-size", "maxMessageSize", "the largest message", SIZE, "--max-message-size", "-m"),
        *_limit(
            "max-unacked-messages-per-consumer",
            "maxUnackedMessagesOnConsumer",
            "the most messages of a consumer that are not acknowledged",
            _COUNT,
            "--max-num",
            "--maxNum",
            "-m",
        ),
        *_limit(
            "max-unacked-messages-per-subscription",
            "maxUnackedMessagesOnSubscription",
            "the most messages of a subscription that are not acknowledged",
            _COUNT,
            "--max-num",
            "--maxNum",
            "-m",
        ),
        *_limit(
            "compaction-threshold",
            "compactionThreshold",
            "the backlog at which it is compacted",
            SIZE,
            "--threshold",
            "-t",
        ),
        *_policy(
            "subscription-types-enabled",
            "subscriptionTypesEnabled",
            "the allowed types of subscriptions",
            (TYPES,),
            just("types"),
        ),
        *_policy(
            "auto-subscription-creation",
            "autoSubscriptionCreation",
            "whether clients create subscriptions",
            (ENABLE, DISABLE),
            lambda given: {"allowAutoSubscriptionCreation": chosen(given)},
        ),
        *_policy(
            "entry-filters-per-topic",
            "entryFilters",
            "the entry filters",
            (FILTERS,),
            lambda given: {"entryFilterNames": given["entry_filters_name"]},
        ),
        *_policy(
            "dispatcher-pause-on-ack-state-persistent",
            "dispatcherPauseOnAckStatePersistent",
            "whether delivery waits until acknowledgements are stored",
            (),
            lambda given: ABSENT,
        ),
        *_policy(
            "schema-compatibility-strategy",
            "schemaCompatibilityStrategy",
            "the compatibility of schemas",
            (option("--strategy", "-s", kind=one_of(*STRATEGIES), help="The strategy.", required=True),),
            just("strategy"),
            setting="PUT",
        ),
        *_policy(
            "schema-validation-enforce",
            "schemaValidationEnforced",
            "whether producers need a schema",
            (ENABLE, DISABLE),
            chosen,
        ),
        *_policy("offload-policies", "offloadPolicies", "the long-term storage", OFFLOAD, offload),
        *_policy(
            "replication-clusters",
            "replication",
            "the clusters that have the topic",
            (listed("Clusters, with commas.", "--clusters", "-c"),),
            just("clusters"),
        ),
        Verb(
            "delete",
            "DELETE {topic}/policies",
            "Remove all policies of a topic.",
            (A_TOPIC,),
            destroys="all policies of the topic {topic}",
        ),
    )


GROUP: Final = VerbGroup("topic-policies", "Policies of single topics.", _all(), aliases=("topicPolicies",))

_OLDER_NAMES: Final = {
    "get-backlog-quota": "get-backlog-quotas",
    "get-max-subscriptions-per-topic": "get-max-subscriptions",
    "set-max-subscriptions-per-topic": "set-max-subscriptions",
    "remove-max-subscriptions-per-topic": "remove-max-subscriptions",
    "get-max-unacked-messages-per-consumer": "get-max-unacked-messages-on-consumer",
    "set-max-unacked-messages-per-consumer": "set-max-unacked-messages-on-consumer",
    "remove-max-unacked-messages-per-consumer": "remove-max-unacked-messages-on-consumer",
    "get-max-unacked-messages-per-subscription": "get-max-unacked-messages-on-subscription",
    "set-max-unacked-messages-per-subscription": "set-max-unacked-messages-on-subscription",
    "remove-max-unacked-messages-per-subscription": "remove-max-unacked-messages-on-subscription",
    "get-max-producers": "get-maxProducers",
    "set-max-producers": "set-maxProducers",
    "remove-max-producers": "remove-maxProducers",
}


def of_topics() -> tuple[Verb, ...]:
    """Return the verbs that `topics` understands too: the same names, and those that only `topics` had."""
    kept = [each for each in GROUP.verbs if each.name != "delete"]
    return (
        *kept,
        *(replace(each, name=_OLDER_NAMES[each.name]) for each in kept if each.name in _OLDER_NAMES),
    )
