"""Policies of namespaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.table.namespace_places import BASE, PLACES, namespace_limit, namespace_policy
from quire.cli.admin.table.shared import (
    A_NAMESPACE,
    ACK_QUORUM,
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
    persistence,
    publish_rate,
    retention,
    subscribe_rate,
)
from quire.cli.admin.values import (
    RETENTION_SIZE,
    RETENTION_TIME,
    SECONDS,
    SIZE,
    Json,
    number,
    one_of,
)
from quire.cli.admin.verbs import ABSENT, Given, Verb, VerbParameter, option

_COUNT: Final = number(0)


def _rate(name: str, resource: str, what: str, *further: VerbParameter) -> tuple[Verb, ...]:
    def body(given: Given) -> Json:
        return dispatch_rate({"relative_to_publish_rate": False, **given})

    return namespace_policy(name, resource, what, (MESSAGES, BYTES, PERIOD, *further), body)


def _switch(name: str, resource: str, what: str, *, remove: str = "remove") -> tuple[Verb, ...]:
    return namespace_policy(name, resource, what, (ENABLE, DISABLE), chosen, remove=remove)


def _auto_topics(given: Given) -> Json:
    on = chosen(given)
    found: dict[str, Json] = {"allowAutoTopicCreation": on}
    if on:
        found["topicType"] = given["type"]
        if given["type"] == "partitioned":
            if given["num_partitions"] is None:
                raise CommandLineError("partitioned topics need their number: give --num-partitions NUMBER")
            found["defaultNumPartitions"] = given["num_partitions"]
        elif given["num_partitions"] is not None:
            raise CommandLineError("--num-partitions is for --type partitioned")
    return found


def _auto_update(given: Given) -> Json:
    if (given["compatibility"] is None) == (not given["disabled"]):
        raise CommandLineError("give either --compatibility or --disabled")
    return "AutoUpdateDisabled" if given["disabled"] else given["compatibility"]


def _quotas() -> tuple[Verb, ...]:
    query = "?backlogQuotaType={type}"
    return (
        Verb("get-backlog-quotas", f"GET {BASE}/backlogQuotaMap", "Print the limits of backlogs.", (A_NAMESPACE,)),
        Verb(
            "set-backlog-quota",
            f"POST {BASE}/backlogQuota{query}",
            "Set a limit of backlogs.",
            (A_NAMESPACE, *QUOTA),
            body=backlog_quota,
        ),
        Verb(
            "remove-backlog-quota",
            f"DELETE {BASE}/backlogQuota{query}",
            "Remove a limit of backlogs.",
            (A_NAMESPACE, QUOTA_TYPE),
        ),
    )


def _all() -> tuple[Verb, ...]:
    return (
        *namespace_policy(
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
        *namespace_limit(
            "message-ttl", "messageTTL", "the time to live of messages", SECONDS, "--ttl", "--messageTTL", "-ttl"
        ),
        *namespace_policy(
            "persistence",
            "persistence",
            "the copies of ledgers",
            (ENSEMBLE, WRITE_QUORUM, ACK_QUORUM, MARK_DELETE_RATE),
            persistence,
        ),
        *namespace_limit(
            "subscription-expiration-time",
            "subscriptionExpirationTime",
            "the minutes until unused subscriptions are deleted",
            _COUNT,
            "--time",
            "-t",
        ),
        *_switch("deduplication", "deduplication", "whether repeated messages are dropped"),
        *namespace_limit(
            "deduplication-snapshot-interval",
            "deduplicationSnapshotInterval",
            "the seconds after which sequence ids are stored",
            _COUNT,
            "--interval",
            "-i",
        ),
        *namespace_policy(
            "auto-topic-creation",
            "autoTopicCreation",
            "whether clients create topics",
            (
                ENABLE,
                DISABLE,
                option(
                    "--type",
                    "-t",
                    kind=one_of("partitioned", "non-partitioned"),
                    help="Kind.",
                    default="non-partitioned",
                ),
                option("--num-partitions", "-n", kind=number(1), help="Partitions."),
            ),
            _auto_topics,
        ),
        *namespace_policy(
            "auto-subscription-creation",
            "autoSubscriptionCreation",
            "whether clients create subscriptions",
            (ENABLE, DISABLE),
            lambda given: {"allowAutoSubscriptionCreation": chosen(given)},
        ),
        *_rate("dispatch-rate", "dispatchRate", "the rate of delivery of a topic", RELATIVE),
        *_rate(
            "subscription-dispatch-rate",
            "subscriptionDispatchRate",
            "the rate of delivery of a subscription",
            RELATIVE,
        ),
        *_rate("replicator-dispatch-rate", "replicatorDispatchRate", "the rate of replication"),
        *namespace_policy(
            "publish-rate",
            "publishRate",
            "the rate of publishing of a topic",
            (PUBLISH_MESSAGES, PUBLISH_BYTES),
            publish_rate,
        ),
        *namespace_policy(
            "subscribe-rate",
            "subscribeRate",
            "the rate of subscribing of a consumer",
            (SUBSCRIBE_RATE, SUBSCRIBE_PERIOD),
            subscribe_rate,
        ),
        *namespace_policy("delayed-delivery", "delayedDelivery", "the delayed delivery", DELAYED, delayed),
        *namespace_policy(
            "inactive-topic-policies",
            "inactiveTopicPolicies",
            "when unused topics are deleted",
            INACTIVE,
            inactive,
        ),
        *namespace_limit(
            "max-producers-per-topic",
            "maxProducersPerTopic",
            "the most producers of a topic",
            _COUNT,
            "--max-producers-per-topic",
            "-p",
        ),
        *namespace_limit(
            "max-consumers-per-topic",
            "maxConsumersPerTopic",
            "the most consumers of a topic",
            _COUNT,
            "--max-consumers-per-topic",
            "-c",
        ),
        *namespace_limit(
            "max-consumers-per-subscription",
            "maxConsumersPerSubscription",
            "the most consumers of a subscription",
            _COUNT,
            "--max-consumers-per-subscription",
            "-c",
        ),
        *namespace_limit(
            "max-subscriptions-per-topic",
            "maxSubscriptionsPerTopic",
            "the most subscriptions of a topic",
            _COUNT,
            "--max-subscriptions-per-topic",
            "-m",
        ),
        *namespace_limit(
            "max-topics-per-namespace",
            "maxTopicsPerNamespace",
            "the most topics",
            _COUNT,
            "--max-topics-per-namespace",
            "-t",
        ),
        *namespace_limit(
            "max-unacked-messages-per-consumer",
            "maxUnackedMessagesPerConsumer",
            "the most messages of a consumer that are not acknowledged",
            _COUNT,
            "--max-unacked-messages-per-consumer",
            "--max-unacked-messages-per-topic",
            "-c",
        ),
        *namespace_limit(
            "max-unacked-messages-per-subscription",
            "maxUnackedMessagesPerSubscription",
            "the most messages of a subscription that are not acknowledged",
            _COUNT,
            "--max-unacked-messages-per-subscription",
            "-c",
        ),
        *namespace_limit(
            "compaction-threshold",
            "compactionThreshold",
            "the backlog at which topics are compacted",
            SIZE,
            "--threshold",
            "-t",
            setting="PUT",
        ),
        *namespace_policy(
            "subscription-types-enabled",
            "subscriptionTypesEnabled",
            "the allowed types of subscriptions",
            (TYPES,),
            just("types"),
        ),
        *namespace_policy(
            "entry-filters",
            "entryFilters",
            "the entry filters",
            (FILTERS,),
            lambda given: {"entryFilterNames": given["entry_filters_name"]},
        ),
        *namespace_policy(
            "dispatcher-pause-on-ack-state-persistent",
            "dispatcherPauseOnAckStatePersistent",
            "whether delivery waits until acknowledgements are stored",
            (),
            lambda given: ABSENT,
        ),
        *namespace_policy(
            "schema-compatibility-strategy",
            "schemaCompatibilityStrategy",
            "the compatibility of schemas",
            (option("--compatibility", "-c", kind=one_of(*STRATEGIES), help="The strategy.", required=True),),
            just("compatibility"),
            setting="PUT",
            remove="",
        ),
        *namespace_policy(
            "schema-autoupdate-strategy",
            "schemaAutoUpdateCompatibilityStrategy",
            "the compatibility of schemas that producers bring",
            (
                option(
                    "--compatibility",
                    "-c",
                    kind=one_of(
                        "AlwaysCompatible",
                        "Backward",
                        "BackwardTransitive",
                        "Forward",
                        "ForwardTransitive",
                        "Full",
                        "FullTransitive",
                    ),
                    help="The strategy.",
                ),
                replace(DISABLE, name="disabled", flags=("--disabled", "-d"), help="Refuse new schemas."),
            ),
            _auto_update,
            setting="PUT",
            remove="",
        ),
        *_switch("is-allow-auto-update-schema", "isAllowAutoUpdateSchema", "whether producers add schemas", remove=""),
        *namespace_policy(
            "schema-validation-enforce",
            "schemaValidationEnforced",
            "whether producers need a schema",
            (ENABLE, DISABLE),
            chosen,
            remove="",
            reading=(APPLIED,),
        ),
        *_switch("encryption-required", "encryptionRequired", "whether messages must be encrypted", remove=""),
        *namespace_policy(
            "subscription-auth-mode",
            "subscriptionAuthMode",
            "whether names of subscriptions begin with the role",
            (option("--subscription-auth-mode", "-m", kind=one_of("None", "Prefix"), help="The mode.", required=True),),
            just("subscription_auth_mode"),
            remove="",
        ),
    )


VERBS: Final[tuple[Verb, ...]] = tuple(replace(each, section="Policies") for each in (*_all(), *PLACES))
