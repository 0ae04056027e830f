"""Subscriptions and messages of topics."""

from __future__ import annotations

from typing import Final

from quire.cli.admin.errors import NOT_FOUND, CommandLineError, RequestRefusedError
from quire.cli.admin.table.shared import (
    A_POSITION,
    A_SUBSCRIPTION,
    A_TOPIC,
    DISABLE,
    ENABLE,
    EXCLUDED,
    FORCE,
    PROPERTIES,
    chosen,
)
from quire.cli.admin.values import (
    INT64_MAX,
    MESSAGE_ID,
    SECONDS,
    TIMESTAMP,
    UNIT_SECONDS,
    Json,
    number,
    one_of,
)
from quire.cli.admin.verbs import ABSENT, Given, Plan, Verb, flag, made, option

_SUBSCRIPTION: Final = "{topic}/subscription/{subscription}"


def _subscribe(given: Given) -> Json:
    properties = {} if given["property"] is None else {"properties": given["property"]}
    return {**given["message_id"], **properties}


def _update_subscription(given: Given) -> Json:
    if given["clear"] == (given["property"] is not None):
        raise CommandLineError("give either --property or --clear")
    return given["property"] or {}


def _expire(given: Given) -> Plan:
    if (given["expire_time"] is None) == (given["position"] is None):
        raise CommandLineError("give either --expire-time or --position")
    if given["position"] is None:
        return (yield made(f"POST {_SUBSCRIPTION}/expireMessages/{{expire_time}}", given))
    body = {**given["position"], "excluded": given["exclude_reset_position"]}
    return (yield made(f"POST {_SUBSCRIPTION}/expireMessages", given, body))


def _reset(given: Given) -> Plan:
    if (given["time"] is None) == (given["message_id"] is None):
        raise CommandLineError("give either --time or --message-id")
    if given["message_id"] is None:
        back = {**given, "timestamp": given["now_ms"] - 1000 * given["time"]}
        return (yield made(f"POST {_SUBSCRIPTION}/resetcursor/{{timestamp}}", back))
    body = {**given["message_id"], "excluded": given["exclude_reset_position"]}
    return (yield made(f"POST {_SUBSCRIPTION}/resetcursor", given, body))


def _peek(given: Given) -> Plan:
    found: list[Json] = []
    for place in range(1, given["count"] + 1):
        try:
            found.append((yield made(f"GET {_SUBSCRIPTION}/position/{{place}}", {**given, "place": place})))
        except RequestRefusedError as error:
            if not found or error.status != NOT_FOUND:
                raise
            break  # (there are fewer messages)
    return found


def _analyze(given: Given) -> Json:
    return ABSENT if given["position"] is None else given["position"]


SUBSCRIPTIONS: Final = (
    Verb("subscriptions", "GET {topic}/subscriptions", "Print the subscriptions.", (A_TOPIC,)),
    Verb(
        "create-subscription",
        f"PUT {_SUBSCRIPTION}?replicated={{replicated}}",
        "Create a subscription.",
        (
            A_TOPIC,
            A_SUBSCRIPTION,
            option(
                "--message-id",
                "--messageId",
                "-m",
                kind=MESSAGE_ID,
                help="Where it begins: latest, earliest or a message id.",
                default="latest",
            ),
            PROPERTIES,
            flag("--replicated", "-r", help="Replicate it. (Pulsar's brokers.)"),
        ),
        body=_subscribe,
    ),
    Verb(
        "unsubscribe",
        f"DELETE {_SUBSCRIPTION}?force={{force}}",
        "Delete a subscription; with --force although it has consumers.",
        (A_TOPIC, A_SUBSCRIPTION, FORCE),
        destroys="the subscription {subscription} of {topic}",
    ),
    Verb(
        "skip",
        f"POST {_SUBSCRIPTION}/skip/{{count}}",
        "Acknowledge the next messages.",
        (A_TOPIC, A_SUBSCRIPTION, option("--count", "-n", kind=number(1), help="Their number.", required=True)),
        destroys="the next {count} messages of the subscription {subscription} of {topic}",
    ),
    Verb(
        "clear-backlog",
        f"POST {_SUBSCRIPTION}/skip_all",
        "Acknowledge all messages.",
        (A_TOPIC, A_SUBSCRIPTION),
        destroys="the backlog of the subscription {subscription} of {topic}",
    ),
    Verb(
        "expire-messages",
        f"POST {_SUBSCRIPTION}/expireMessages",
        "Acknowledge the messages older than a time, or up to a message.",
        (
            A_TOPIC,
            A_SUBSCRIPTION,
            option("--expire-time", "--expireTime", "-t", kind=SECONDS, help="The age, such as 3h."),
            A_POSITION,
            EXCLUDED,
        ),
        plan=_expire,
        destroys="old messages of the subscription {subscription} of {topic}",
    ),
    Verb(
        "expire-messages-all-subscriptions",
        "POST {topic}/all_subscription/expireMessages/{expire_time}",
        "Do the same with all subscriptions.",
        (A_TOPIC, option("--expire-time", "--expireTime", "-t", kind=SECONDS, help="The age.", required=True)),
        destroys="old messages of all subscriptions of {topic}",
    ),
    Verb(
        "reset-cursor",
        f"POST {_SUBSCRIPTION}/resetcursor",
        "Continue at a message, or at the messages of a time ago.",
        (
            A_TOPIC,
            A_SUBSCRIPTION,
            option("--time", "-t", kind=UNIT_SECONDS, help="How long ago, with a unit, such as 10m."),
            option("--message-id", "--messageId", "-m", kind=MESSAGE_ID, help="latest, earliest or a message id."),
            EXCLUDED,
        ),
        plan=_reset,
    ),
    Verb(
        "analyze-backlog",
        f"POST {_SUBSCRIPTION}/analyzeBacklog",
        "Count the messages of a backlog.",
        (A_TOPIC, A_SUBSCRIPTION, A_POSITION),
        body=_analyze,
    ),
    Verb(
        "get-subscription-properties",
        f"GET {_SUBSCRIPTION}/properties",
        "Print the properties of a subscription.",
        (A_TOPIC, A_SUBSCRIPTION),
    ),
    Verb(
        "update-subscription-properties",
        f"PUT {_SUBSCRIPTION}/properties",
        "Replace the properties of a subscription.",
        (A_TOPIC, A_SUBSCRIPTION, PROPERTIES, flag("--clear", "-c", help="Remove all properties.")),
        body=_update_subscription,
    ),
    Verb(
        "get-replicated-subscription-status",
        f"GET {_SUBSCRIPTION}/replicatedSubscriptionStatus",
        "Print whether a subscription is replicated.",
        (A_TOPIC, A_SUBSCRIPTION),
    ),
    Verb(
        "set-replicated-subscription-status",
        f"POST {_SUBSCRIPTION}/replicatedSubscriptionStatus",
        "Switch the replication of a subscription.",
        (A_TOPIC, A_SUBSCRIPTION, ENABLE, DISABLE),
        body=chosen,
    ),
)
MESSAGES: Final = (
    Verb(
        "peek-messages",
        f"GET {_SUBSCRIPTION}/position/{{number}}",
        "Print the next messages of a subscription.",
        (A_TOPIC, A_SUBSCRIPTION, option("--count", "-n", kind=number(1), help="Their number.", default="1")),
        plan=_peek,
    ),
    Verb(
        "examine-messages",
        "GET {topic}/examinemessage?initialPosition={initial_position}&messagePosition={message_position}",
        "Print a message by its place.",
        (
            A_TOPIC,
            option(
                "--initial-position",
                "--initialPosition",
                "-i",
                kind=one_of("latest", "earliest"),
                help="From which end.",
                default="latest",
            ),
            option(
                "--message-position", "--messagePosition", "-m", kind=number(1), help="The place, from 1.", default="1"
            ),
        ),
    ),
    Verb(
        "get-message-by-id",
        "GET {topic}/ledger/{ledger_id}/entry/{entry_id}",
        "Print a message by its id.",
        (
            A_TOPIC,
            option("--ledger-id", "--ledgerId", "-l", kind=number(0, INT64_MAX), help="The ledger.", required=True),
            option("--entry-id", "--entryId", "-e", kind=number(0, INT64_MAX), help="The entry.", required=True),
        ),
    ),
    Verb(
        "get-message-id",
        "GET {topic}/messageid/{datetime}",
        "Print the id of the first message of a time.",
        (A_TOPIC, option("--datetime", "-d", kind=TIMESTAMP, help="2026-06-28T16:53:08Z, or ms.", required=True)),
    ),
    Verb(
        "get-message-id-by-index",
        "GET {topic}/getMessageIdByIndex?index={index}",
        "Print the id of a message by its index.",
        (A_TOPIC, option("--index", "-i", kind=number(0, INT64_MAX), help="The index.", required=True)),
    ),
    Verb("last-message-id", "GET {topic}/lastMessageId", "Print the id of the last message.", (A_TOPIC,)),
)
