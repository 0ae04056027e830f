"""Parameters that many verbs have, and makers of policies' verbs (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quire.cli.admin.errors import CommandLineError
from quire.cli.admin.values import (
    DECIMAL,
    FLAG,
    MESSAGE_ID,
    MILLISECONDS,
    NAMESPACE,
    PAIRS,
    SECONDS,
    SIZE,
    TEXT,
    TOPIC,
    WORDS,
    Json,
    ValueKind,
    number,
    one_of,
    several_of,
)
from quire.cli.admin.verbs import Given, Verb, VerbParameter, argument, flag, option

A_TOPIC: Final = argument("topic", TOPIC, "A topic, such as orders or persistent://public/default/orders.")
A_NAMESPACE: Final = argument("namespace", NAMESPACE, "A namespace, as tenant/namespace.")
A_TENANT: Final = argument("tenant", TEXT, "A tenant.")
A_CLUSTER: Final = argument("cluster", TEXT, "A cluster.")
A_SUBSCRIPTION: Final = option("--subscription", "-s", kind=TEXT, help="The subscription.", required=True)
FORCE: Final = flag("--force", "-f", help="Delete it although it is in use.")
APPLIED: Final = flag("--applied", "-ap", help="Print what holds: the value of the namespace or broker too.")
ANYWHERE: Final = flag("--global", "-g", help="Mean the policies that the topic has for all clusters.")
PROPERTIES: Final = option("--property", "-p", kind=PAIRS, help="A property; may be repeated.")
A_BUNDLE: Final = option("--bundle", "-b", kind=TEXT, help="A bundle, such as 0x00000000_0x40000000.")
A_ROLE: Final = option("--role", "-r", kind=TEXT, help="The role.", required=True)
ACTIONS: Final = option(
    "--actions",
    "-a",
    kind=several_of("produce", "consume", "functions", "sources", "sinks", "packages"),
    help="What the role may do: produce, consume, functions, sources, sinks, packages.",
    required=True,
)
ENABLE: Final = flag("--enable", "-e", help="Switch it on.")
DISABLE: Final = flag("--disable", "-d", help="Switch it off.")
A_POSITION: Final = option("--position", "-p", kind=MESSAGE_ID, help="A message id.")
EXCLUDED: Final = flag("--exclude-reset-position", "-e", help="Mean the message behind this one.")

ENSEMBLE: Final = option("--bookkeeper-ensemble", "-e", kind=number(0), help="Bookies of a ledger.", default="2")
WRITE_QUORUM: Final = option("--bookkeeper-write-quorum", "-w", kind=number(0), help="Copies.", default="2")
ACK_QUORUM: Final = option(
    "--bookkeeper-ack-quorum", "-a", kind=number(0), help="Copies to wait for before an entry counts.", default="2"
)
MARK_DELETE_RATE: Final = option(
    "--ml-mark-delete-max-rate", "-r", kind=DECIMAL, help="Changes of a position per second; 0: no limit.", default="0"
)
MESSAGES: Final = option(
    "--msg-dispatch-rate", "-md", kind=number(-1), help="Messages per period; -1: no limit.", default="-1"
)
BYTES: Final = option("--byte-dispatch-rate", "-bd", kind=SIZE, help="Bytes per period; -1: no limit.", default="-1")
PERIOD: Final = option("--dispatch-rate-period", "-dt", kind=SECONDS, help="The period.", default="1")
RELATIVE: Final = flag("--relative-to-publish-rate", "-rp", help="Count from the rate of publishing.")
PUBLISH_MESSAGES: Final = option(
    "--msg-publish-rate", "-m", kind=number(-1), help="Messages per second; -1: no limit.", default="-1"
)
PUBLISH_BYTES: Final = option(
    "--byte-publish-rate", "-b", kind=SIZE, help="Bytes per second; -1: no limit.", default="-1"
)
SUBSCRIBE_RATE: Final = option(
    "--subscribe-rate", "-sr", kind=number(-1), help="Subscribing of a consumer per period; -1: no limit.", default="-1"
)
SUBSCRIBE_PERIOD: Final = option("--subscribe-rate-period", "-st", kind=SECONDS, help="The period.", default="30")
QUOTA_TYPE: Final = option(
    "--type",
    "-t",
    kind=one_of("destination_storage", "message_age"),
    help="What the quota limits.",
    default="destination_storage",
)
QUOTA: Final = (
    option("--limit", "-l", kind=SIZE, help="Bytes of backlog; -1: no limit.", default="-1"),
    option("--limit-time", "--limitTime", "-lt", kind=SECONDS, help="Age of the backlog; -1: no limit.", default="-1"),
    option(
        "--policy",
        "-p",
        kind=one_of("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
        help="What happens above the limit.",
        required=True,
    ),
    QUOTA_TYPE,
)
INACTIVE: Final = (
    flag("--enable-delete-while-inactive", "-e", help="Delete topics that are not used."),
    flag("--disable-delete-while-inactive", "-d", help="Keep them."),
    option("--max-inactive-duration", "-t", kind=SECONDS, help="Time without use.", required=True),
    option(
        "--delete-mode",
        "-m",
        kind=one_of("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
        help="When a topic counts as unused.",
        required=True,
    ),
)
DELAYED: Final = (
    ENABLE,
    DISABLE,
    option("--time", "-t", kind=MILLISECONDS, help="Precision of delivery times.", default="1s"),
    option("--max-delay", "-md", kind=MILLISECONDS, help="Longest delay; 0: no limit.", default="0"),
)
TYPES: Final = option(
    "--types",
    "-t",
    kind=several_of("Exclusive", "Shared", "Failover", "Key_Shared"),
    help="Types: Exclusive, Shared, Failover, Key_Shared.",
    required=True,
)
STRATEGIES: Final = (
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
FILTERS: Final = option(
    "--entry-filters-name", "-efn", kind=TEXT, help="Names of entry filters, with commas.", required=True
)
OFFLOAD: Final = (
    option("--driver", "-d", kind=TEXT, help="Driver of the long-term storage, such as aws-s3.", required=True),
    option("--bucket", "-b", kind=TEXT, help="Its bucket."),
    option("--region", "-r", kind=TEXT, help="Its region."),
    option("--endpoint", "-e", kind=TEXT, help="Its endpoint."),
    option("--offload-after-threshold", "--offloadAfterThreshold", "-oat", kind=SIZE, help="Bytes kept in bookies."),
    option("--offload-after-elapsed", "--offloadAfterElapsed", "-oae", kind=MILLISECONDS, help="Time until deletion."),
)


def chosen(given: Given, on: str = "enable", off: str = "disable") -> bool:
    """Return the value of a pair of flags. Raises CommandLineError unless exactly one is given."""
    if given[on] == given[off]:
        raise CommandLineError(f"give either --{on.replace('_', '-')} or --{off.replace('_', '-')}")
    return bool(given[on])


def persistence(given: Given) -> Json:
    return {
        "bookkeeperEnsemble": given["bookkeeper_ensemble"],
        "bookkeeperWriteQuorum": given["bookkeeper_write_quorum"],
        "bookkeeperAckQuorum": given["bookkeeper_ack_quorum"],
        "managedLedgerMaxMarkDeleteRate": given["ml_mark_delete_max_rate"],
    }


def retention(given: Given) -> Json:
    return {"retentionTimeInMinutes": given["time"], "retentionSizeInMB": given["size"]}


def dispatch_rate(given: Given) -> Json:
    return {
        "dispatchThrottlingRateInMsg": given["msg_dispatch_rate"],
        "dispatchThrottlingRateInByte": given["byte_dispatch_rate"],
        "relativeToPublishRate": given["relative_to_publish_rate"],
        "ratePeriodInSecond": given["dispatch_rate_period"],
    }


def publish_rate(given: Given) -> Json:
    return {
        "publishThrottlingRateInMsg": given["msg_publish_rate"],
        "publishThrottlingRateInByte": given["byte_publish_rate"],
    }


def subscribe_rate(given: Given) -> Json:
    return {
        "subscribeThrottlingRatePerConsumer": given["subscribe_rate"],
        "ratePeriodInSecond": given["subscribe_rate_period"],
    }


def backlog_quota(given: Given) -> Json:
    if given["type"] == "message_age" and given["limit_time"] < 0:
        raise CommandLineError("a quota of type message_age needs its limit: give --limit-time TIME")
    if given["type"] == "destination_storage" and given["limit"] < 0:
        raise CommandLineError("a quota of type destination_storage needs its limit: give --limit SIZE")
    return {"limitSize": given["limit"], "limitTime": given["limit_time"], "policy": given["policy"]}


def inactive(given: Given) -> Json:
    return {
        "inactiveTopicDeleteMode": given["delete_mode"],
        "maxInactiveDurationSeconds": given["max_inactive_duration"],
        "deleteWhileInactive": chosen(given, "enable_delete_while_inactive", "disable_delete_while_inactive"),
    }


def delayed(given: Given) -> Json:
    return {"tickTime": given["time"], "active": chosen(given), "maxDeliveryDelayInMillis": given["max_delay"]}


def offload(given: Given) -> Json:
    names = {
        "managedLedgerOffloadDriver": "driver",
        "managedLedgerOffloadBucket": "bucket",
        "managedLedgerOffloadRegion": "region",
        "managedLedgerOffloadServiceEndpoint": "endpoint",
        "managedLedgerOffloadThresholdInBytes": "offload_after_threshold",
        "managedLedgerOffloadDeletionLagInMillis": "offload_after_elapsed",
    }
    return {key: given[name] for key, name in names.items() if given[name] is not None}


def just(name: str) -> Callable[[Given], Json]:
    """Return a maker of a body that is the value of one parameter."""
    return lambda given: given[name]


def limit(flags: tuple[str, ...], kind: ValueKind, help: str) -> tuple[VerbParameter, Callable[[Given], Json]]:
    """Return the parameter of a policy that is one value, and its body."""
    made = option(*flags, kind=kind, help=help, required=kind is not FLAG)
    return made, just(made.name)


def listed(help: str, *flags: str) -> VerbParameter:
    """Return a required option whose value is a list with commas."""
    return option(*flags, kind=WORDS, help=help, required=True)


def policy(
    place: VerbParameter,
    base: str,
    name: str,
    resource: str,
    what: str,
    parameters: tuple[VerbParameter, ...],
    body: Callable[[Given], Json],
    *,
    setting: str = "POST",
    get: bool = True,
    remove: str = "remove",
    further: tuple[VerbParameter, ...] = (),
    reading: tuple[VerbParameter, ...] = (),
) -> tuple[Verb, ...]:
    """Return the verbs get-, set- and remove- of a policy.

    `remove`: first word of the third; empty: there is none. `further`: parameters of all, in the query by their
    names in `_QUERY`; `reading`: those of get- alone.
    """
    path = f"{base}/{resource}"
    made = [
        Verb(f"get-{name}", f"GET {path}{query(*reading, *further)}", f"Print {what}.", (place, *reading, *further))
    ]
    made.append(
        Verb(
            f"set-{name}",
            f"{setting} {path}{query(*further)}",
            f"Set {what}.",
            (place, *parameters, *further),
            body=body,
        )
    )
    if remove:
        verb = "Remove" if remove == "remove" else remove.capitalize()
        made.append(Verb(f"{remove}-{name}", f"DELETE {path}{query(*further)}", f"{verb} {what}.", (place, *further)))
    return tuple(made if get else made[1:])


_QUERY: Final = {"global": "isGlobal", "applied": "applied", "type": "backlogQuotaType"}


def query(*parameters: VerbParameter) -> str:
    """Return the query of a template with these parameters."""
    told = "&".join(f"{_QUERY[each.name]}={{{each.name}}}" for each in parameters)
    return f"?{told}" if told else ""
