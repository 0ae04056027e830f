"""Interface of the logs that hold policies of topics: to read what was said since a place, and to say more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.ownership.values import Json
from quire.ledger.position import Position
from quire.wire.pulsar.names import NamespaceName, TopicName

ANNOUNCED: Final = "/quire/topic-policies"
CHANGE_EVENTS: Final = "__change_events"
GLOBAL: Final = "__G__"
"""Before the name of a topic in the key of its policies that are for all clusters."""
CHANGES_MAX: Final = 200
"""Topics whose policies one answer has."""


def change_events(namespace: NamespaceName) -> TopicName:
    """Return the topic in which the policies of the topics of a namespace are.

    >>> change_events(NamespaceName("a", "b")).full
    'persistent://a/b/__change_events'
    """
    return TopicName("persistent", namespace.tenant, namespace.namespace, CHANGE_EVENTS)


def is_change_events(name: TopicName) -> bool:
    """Return whether the topic, or partition, holds policies of other topics, and so has none of its own."""
    return name.local.startswith(CHANGE_EVENTS) and name.partitioned.local == CHANGE_EVENTS


def announced_path(namespace: NamespaceName) -> str:
    return f"{ANNOUNCED}/{namespace}"


def decode_announced(value: bytes) -> dict[str, Position]:
    """Return the places of a node, by local name."""
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    places = ((name, position_of(each)) for name, each in found.items())
    return {name: place for name, place in places if place is not None}


def position_of(text: object) -> Position | None:
    """Return the position that a text such as 12:3 stands for; None: none.

    >>> position_of("12:-1"), position_of("12")
    (Position(ledger_id=12, entry_id=-1), None)
    """
    if not isinstance(text, str):
        return None
    ledger, _, entry = text.partition(":")
    try:
        return Position(int(ledger), int(entry))
    except ValueError:
        return None


class PolicyChanges(NamedTuple):
    """Last words of a log about some topics, in the order in which they were said."""

    whole: bool
    """True if what was known before does not count any more: it begins with the first event."""
    upto: Position
    """Place of the last event that is in it."""
    policies: Mapping[str, Json | None]
    """By key (see `events.key_of`); None: there are none any more."""
    more: bool
    """True if there are more behind it."""


class PolicySource(Protocol):
    """Logs of change events. Calls raise BrokerError."""

    async def logs(self, namespace: NamespaceName) -> list[TopicName]:
        """Return the topics that hold policies of the namespace's topics; none, if none was ever made."""

    async def changes(self, log: TopicName, since: Position | None, announced: Position | None) -> PolicyChanges:
        """Return what a log said behind `since`; None: from the beginning. `announced`: the last place that its owner
        has announced, if any."""

    async def log_of(self, name: TopicName) -> TopicName:
        """Return the log for the policies of a topic, whether or not it exists."""

    async def changes_here(self, log: TopicName, since: Position | None) -> PolicyChanges:
        """The same as `changes` where this broker is the owner. Raises NotOwnerError."""

    async def update(
        self,
        name: TopicName,
        change: Callable[[Json], Json] | None,
        *,
        is_global: bool,
        older: Mapping[str, Json],
    ) -> list[str]:
        """Change the policies of a topic; durable on return, and announced. None: delete them, of either kind.

        `older`: policies of topics that are stored elsewhere. Those that are not in the log yet are written to it too;
        return the names of all that are in it. Raises NotOwnerError if another broker has to do it,
        MetadataRefusedError (the log has no place for a field)."""

    async def delete(self, name: TopicName, *, older: Mapping[str, Json]) -> list[str]:
        """Delete the policies of a topic, at whichever broker; return what `update` does, if it is this one."""
