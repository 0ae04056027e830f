"""Table of the permission that each command of the binary protocol needs (pure).

A command without a row is refused where authorization is on. docs/security.md has this table as text.
Source: Pulsar's ServerCnx. There GET_SCHEMA, GET_OR_CREATE_SCHEMA and the participants of a transaction are not
checked, nor is a command about a consumer that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.security.authorization.permissions import Permission
from quire.wire.pulsar import PulsarApi_pb2 as pb


class CommandRow(NamedTuple):
    """Permissions of one command."""

    permission: Permission
    also: Permission | None = None
    """Second permission, on what `note` says."""
    note: str = ""


_KIND = pb.BaseCommand
_OF_PRODUCER: Final = CommandRow(Permission.NOTHING, note="checked with PRODUCER, and again when permissions change")
_OF_CONSUMER: Final = CommandRow(Permission.NOTHING, note="checked with SUBSCRIBE, and again when permissions change")
_OWN: Final = CommandRow(Permission.NOTHING, note="concerns only what the connection itself has")

COMMANDS: Final[Mapping[int, CommandRow]] = MappingProxyType(
    {
        _KIND.CONNECT: CommandRow(Permission.NOTHING, note="authenticates"),
        _KIND.AUTH_RESPONSE: CommandRow(Permission.NOTHING, note="authenticates"),
        _KIND.PING: _OWN,
        _KIND.PONG: _OWN,
        _KIND.LOOKUP: CommandRow(Permission.LOOKUP),
        _KIND.PARTITIONED_METADATA: CommandRow(Permission.LOOKUP),
        _KIND.GET_TOPICS_OF_NAMESPACE: CommandRow(Permission.LOOKUP_NAMESPACE),
        _KIND.WATCH_TOPIC_LIST: CommandRow(Permission.LOOKUP_NAMESPACE),
        _KIND.WATCH_TOPIC_LIST_CLOSE: _OWN,
        _KIND.PRODUCER: CommandRow(
            Permission.PRODUCE, also=Permission.CONSUME, note="the second for an initial subscription"
        ),
        _KIND.SEND: _OF_PRODUCER,
        _KIND.CLOSE_PRODUCER: _OWN,
        _KIND.SUBSCRIBE: CommandRow(Permission.CONSUME),
        _KIND.FLOW: _OF_CONSUMER,
        _KIND.ACK: _OF_CONSUMER,
        _KIND.REDELIVER_UNACKNOWLEDGED_MESSAGES: _OF_CONSUMER,
        _KIND.CLOSE_CONSUMER: _OWN,
        _KIND.UNSUBSCRIBE: CommandRow(Permission.CONSUME),
        _KIND.SEEK: CommandRow(Permission.CONSUME),
        _KIND.GET_LAST_MESSAGE_ID: CommandRow(Permission.CONSUME),
        _KIND.CONSUMER_STATS: CommandRow(Permission.CONSUME),
        _KIND.GET_SCHEMA: CommandRow(Permission.LOOKUP),
        _KIND.GET_OR_CREATE_SCHEMA: CommandRow(Permission.PRODUCE),
        _KIND.TC_CLIENT_CONNECT_REQUEST: CommandRow(Permission.ANY_ROLE),
        _KIND.NEW_TXN: CommandRow(Permission.ANY_ROLE, note="its role owns the transaction"),
        _KIND.ADD_PARTITION_TO_TXN: CommandRow(
            Permission.TRANSACTION_OWNER, also=Permission.PRODUCE, note="the second for each topic"
        ),
        _KIND.ADD_SUBSCRIPTION_TO_TXN: CommandRow(
            Permission.TRANSACTION_OWNER, also=Permission.CONSUME, note="the second for each subscription"
        ),
        _KIND.END_TXN: CommandRow(Permission.TRANSACTION_OWNER),
        _KIND.END_TXN_ON_PARTITION: CommandRow(Permission.SUPER_USER, note="between brokers"),
        _KIND.END_TXN_ON_SUBSCRIPTION: CommandRow(Permission.SUPER_USER, note="between brokers"),
    }
)
"""Rows by type of command."""
