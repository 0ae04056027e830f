"""Topics, their subscriptions and messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.table.shared import (
    A_NAMESPACE,
    A_ROLE,
    A_TOPIC,
    ACTIONS,
    FORCE,
    just,
    listed,
)
from quire.cli.admin.table.subscriptions import MESSAGES
from quire.cli.admin.table.subscriptions import SUBSCRIPTIONS as SUBSCRIPTION_VERBS
from quire.cli.admin.table.topic_policies import of_topics
from quire.cli.admin.values import (
    MESSAGE_ID,
    PAIRS,
    TEXT,
    TRUTH,
    number,
    one_of,
)
from quire.cli.admin.verbs import ABSENT, Given, Plan, Verb, VerbGroup, flag, made, option

PARTITIONS_TYPE: Final = "application/vnd.partitioned-topic-metadata+json"
_METADATA: Final = option("--metadata", "-m", kind=PAIRS, help="Properties of the topic; may be repeated.")
_PARTITIONS: Final = option("--partitions", "-p", kind=number(1), help="Number of partitions.", required=True)
_SYSTEM: Final = flag("--include-system-topic", "-ist", help="Topics of the servers too.")
_DOMAIN: Final = option(
    "--topic-domain", "-td", kind=one_of("persistent", "non_persistent"), help="Kind of topics.", default=None
)
_STATS: Final = (
    flag("--get-precise-backlog", "-gpb", help="Count messages instead of entries; reads the backlog."),
    flag("--get-earliest-time-in-backlog", "-etb", help="With the time of the oldest message."),
    option("--get-subscription-backlog-size", "-sbs", kind=TRUTH, help="With backlogs in bytes.", default="true"),
    flag("--exclude-publishers", "-ep", help="Without producers."),
    flag("--exclude-consumers", "-ec", help="Without consumers."),
)
_STATS_QUERY: Final = (
    "getPreciseBacklog={get_precise_backlog}&getEarliestTimeInBacklog={get_earliest_time_in_backlog}"
    "&subscriptionBacklogSize={get_subscription_backlog_size}&excludePublishers={exclude_publishers}"
    "&excludeConsumers={exclude_consumers}"
)
_LOOKUP: Final = "GET /lookup/v2/topic/{topic}"


def _list(given: Given) -> Plan:
    domains = ["persistent", "non-persistent"]
    if given["topic_domain"] is not None:
        domains = [given["topic_domain"].replace("_", "-")]
    found: list[str] = []
    for domain in domains:
        request = f"GET {domain}/{{namespace}}?bundle={{bundle}}&includeSystemTopic={{include_system_topic}}"
        found += yield made(request, given)
    return found


def _list_partitioned(given: Given) -> Plan:
    found: list[str] = []
    for domain in ("persistent", "non-persistent"):
        found += yield made(
            f"GET {domain}/{{namespace}}/partitioned?includeSystemTopic={{include_system_topic}}", given
        )
    return found


def _create_partitioned(given: Given) -> Plan:
    if given["metadata"] is None:
        return (yield made("PUT {topic}/partitions", given, given["partitions"]))
    body = {"partitions": given["partitions"], "properties": given["metadata"]}
    return (yield made("PUT {topic}/partitions", given, body, PARTITIONS_TYPE))


def _partitioned_lookup(given: Given) -> Plan:
    metadata = yield made("GET {topic}/partitions", given)
    if not metadata["partitions"]:
        raise CommandLineError(f"{given['topic']} is not partitioned: use topics lookup")
    found: dict[str, str] = {}
    for index in range(metadata["partitions"]):
        name = given["topic"].with_partition(index)
        answer = yield made(_LOOKUP, {"topic": name})
        found[str(name)] = answer["brokerUrl"]
    if not given["sort_by_broker"]:
        return found
    brokers: dict[str, list[str]] = {}
    for topic, broker in found.items():
        brokers.setdefault(broker, []).append(topic)
    return brokers


_TOPICS: Final = (
    Verb(
        "list",
        "GET persistent/{namespace}",
        "Print the topics of a namespace, partitions one by one.",
        (
            A_NAMESPACE,
            _DOMAIN,
            option("--bundle", "-b", kind=TEXT, help="Only those of a bundle."),
            _SYSTEM,
        ),
        plan=_list,
    ),
    Verb(
        "list-partitioned-topics",
        "GET persistent/{namespace}/partitioned",
        "Print the partitioned topics of a namespace.",
        (A_NAMESPACE, _SYSTEM),
        plan=_list_partitioned,
    ),
    Verb(
        "create",
        "PUT {topic}",
        "Create a topic without partitions.",
        (A_TOPIC, _METADATA),
        body=lambda given: ABSENT if given["metadata"] is None else given["metadata"],
    ),
    Verb(
        "create-partitioned-topic",
        "PUT {topic}/partitions",
        "Create a partitioned topic.",
        (A_TOPIC, _PARTITIONS, _METADATA),
        plan=_create_partitioned,
    ),
    Verb(
        "update-partitioned-topic",
        "POST {topic}/partitions?force={force}&updateLocalTopicOnly={update_local_only}",
        "Add partitions: --partitions is the number afterwards.",
        (
            A_TOPIC,
            _PARTITIONS,
            flag("--force", "-f", help="Do not check the existing partitions."),
            flag("--update-local-only", "-ulo", help="In this cluster only."),
        ),
        body=just("partitions"),
    ),
    Verb(
        "get-partitioned-topic-metadata",
        "GET {topic}/partitions",
        "Print the number of partitions; 0: not partitioned, or missing.",
        (A_TOPIC,),
    ),
    Verb("create-missed-partitions", "POST {topic}/createMissedPartitions", "Create missing partitions.", (A_TOPIC,)),
    Verb(
        "delete",
        "DELETE {topic}?force={force}",
        "Delete a topic; with --force although it is in use.",
        (A_TOPIC, FORCE),
        destroys="the topic {topic}, its messages and subscriptions",
    ),
    Verb(
        "delete-partitioned-topic",
        "DELETE {topic}/partitions?force={force}",
        "Delete a partitioned topic; with --force although it is in use.",
        (A_TOPIC, FORCE),
        destroys="the topic {topic}, all its partitions, messages and subscriptions",
    ),
    Verb(
        "truncate",
        "DELETE {topic}/truncate",
        "Delete all messages but those of the open ledger.",
        (A_TOPIC,),
        destroys="the messages of {topic}",
    ),
    Verb("unload", "PUT {topic}/unload", "Close a topic; the next client loads it again.", (A_TOPIC,)),
    Verb(
        "terminate",
        "POST {topic}/terminate",
        "Take no more messages, permanently; print the last message id.",
        (A_TOPIC,),
        destroys="the ability of {topic} to take messages, permanently",
    ),
    Verb(
        "partitioned-terminate",
        "POST {topic}/terminate/partitions",
        "Do the same with all partitions.",
        (A_TOPIC,),
        destroys="the ability of {topic} to take messages, permanently",
    ),
    Verb("trim-topic", "POST {topic}/trim", "Delete consumed ledgers past their retention now.", (A_TOPIC,)),
    Verb("compact", "PUT {topic}/compaction", "Compact a topic.", (A_TOPIC,)),
    Verb("compaction-status", "GET {topic}/compaction", "Print how the last compaction went.", (A_TOPIC,)),
    Verb("offload-status", "GET {topic}/offload", "Print how the last offloading went.", (A_TOPIC,)),
    Verb("get-shadow-topics", "GET {topic}/shadowTopics", "Print the shadow topics.", (A_TOPIC,)),
    Verb(
        "set-shadow-topics",
        "PUT {topic}/shadowTopics",
        "Set the shadow topics. (Pulsar's brokers.)",
        (A_TOPIC, listed("Topics, with commas.", "--topics", "-t")),
        body=just("topics"),
    ),
    Verb("remove-shadow-topics", "DELETE {topic}/shadowTopics", "Remove the shadow topics.", (A_TOPIC,)),
    Verb("get-properties", "GET {topic}/properties", "Print the properties.", (A_TOPIC,)),
    Verb(
        "update-properties",
        "PUT {topic}/properties",
        "Add or change properties.",
        (A_TOPIC, option("--property", "-p", kind=PAIRS, help="A property; may be repeated.", required=True)),
        body=just("property"),
    ),
    Verb(
        "remove-properties",
        "DELETE {topic}/properties?key={key}",
        "Remove a property.",
        (A_TOPIC, option("--key", "-k", kind=TEXT, help="Its key.", required=True)),
    ),
)
_PLACE: Final = (
    Verb("lookup", _LOOKUP, "Print the broker of a topic.", (A_TOPIC,)),
    Verb(
        "partitioned-lookup",
        _LOOKUP,
        "Print the brokers of all partitions.",
        (A_TOPIC, flag("--sort-by-broker", "-s", help="By broker.")),
        plan=_partitioned_lookup,
    ),
    Verb("bundle-range", f"{_LOOKUP}/bundle", "Print the bundle of a topic.", (A_TOPIC,)),
)
_STATISTICS: Final = (
    Verb(
        "stats",
        f"GET {{topic}}/stats?{_STATS_QUERY}",
        "Print rates, sizes, producers, subscriptions and consumers.",
        (A_TOPIC, *_STATS),
        renderer="topic_stats",
    ),
    Verb(
        "partitioned-stats",
        f"GET {{topic}}/partitioned-stats?perPartition={{per_partition}}&{_STATS_QUERY}",
        "Print the sums of all partitions.",
        (A_TOPIC, flag("--per-partition", help="And each partition."), *_STATS),
        renderer="topic_stats",
    ),
    Verb(
        "stats-internal",
        "GET {topic}/internalStats?metadata={metadata}",
        "Print ledgers and cursors.",
        (A_TOPIC, flag("--metadata", "-m", help="With the metadata of ledgers.")),
        renderer="internal_stats",
    ),
    Verb(
        "partitioned-stats-internal",
        "GET {topic}/partitioned-internalStats",
        "Print ledgers and cursors of all partitions.",
        (A_TOPIC,),
        renderer="internal_stats",
    ),
    Verb("info-internal", "GET {topic}/internal-info", "Print the stored metadata of a topic.", (A_TOPIC,)),
    Verb(
        "get-backlog-size",
        "PUT {topic}/backlogSize",
        "Print the bytes behind a message.",
        (
            A_TOPIC,
            option("--message-id", "--messageId", "-m", kind=MESSAGE_ID, help="The message.", default="-1:-1"),
        ),
        body=just("message_id"),
    ),
)
_PERMISSIONS: Final = (
    Verb("permissions", "GET {topic}/permissions", "Print what roles may do.", (A_TOPIC,)),
    Verb(
        "grant-permission",
        "POST {topic}/permissions/{role}",
        "Let a role do something.",
        (A_TOPIC, A_ROLE, ACTIONS),
        body=just("actions"),
    ),
    Verb(
        "revoke-permission",
        "DELETE {topic}/permissions/{role}",
        "Take the permissions on a topic from a role.",
        (A_TOPIC, A_ROLE),
    ),
)


def _sectioned() -> tuple[Verb, ...]:
    sections = {
        "Topics": _TOPICS,
        "Brokers of topics": _PLACE,
        "Statistics": _STATISTICS,
        "Subscriptions": SUBSCRIPTION_VERBS,
        "Messages": MESSAGES,
        "Permissions": _PERMISSIONS,
    }
    return tuple(replace(each, section=section) for section, verbs in sections.items() for each in verbs)


GROUP: Final = VerbGroup("topics", "Topics, their subscriptions and messages.", _sectioned(), hidden=of_topics())
SUBSCRIPTION_GROUP: Final = VerbGroup(
    "subscriptions",
    "Subscriptions: the verbs of topics about them.",
    tuple(each for each in GROUP.verbs if each.section == "Subscriptions" or each.name == "peek-messages"),
)
