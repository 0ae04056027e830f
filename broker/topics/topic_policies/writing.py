"""Events that a change of policies adds to their log, and their entries (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from broker.errors import MetadataRefusedError
from broker.ownership.values import Json
from broker.topics.topic_policies.avro import AvroValueError, encode, has_room_for
from broker.topics.topic_policies.event_schema import event_type
from broker.topics.topic_policies.events import IS_GLOBAL, event_entry, event_value, key_of, said
from quire.wire.pulsar.names import TopicName


class Said(NamedTuple):
    """Content of an event to be written."""

    full: str
    """Name of the topic."""
    fields: Json | None
    """Its policies from now on; None: it has none any more."""
    is_global: bool = False
    """True if they are for all clusters."""


class SaidSoFar(Protocol):
    """Content of a log so far."""

    def fields(self, key: str) -> Json | None: ...

    def has(self, key: str) -> bool: ...


def left_over(log: SaidSoFar, older: Mapping[str, Json]) -> list[Said]:
    """Return the policies that are stored elsewhere and not in the log yet. Those with fields that the log has no place
    for stay where they are."""
    return [Said(full, fields) for full, fields in older.items() if not log.has(full) and _has_room(full, fields)]


def said_by(
    log: SaidSoFar, name: TopicName, change: Callable[[Json], Json] | None, is_global: bool, older: Mapping[str, Json]
) -> list[Said]:
    """Return what a change of a topic's policies adds to the log. `change`: None to delete them, of either kind."""
    full = name.partitioned.full
    if change is None:
        found = [each for each in (False, True) if log.fields(key_of(name, is_global=each)) is not None]
        if not found and full in older:
            found = [False]
        return [Said(full, None, each) for each in found]
    key = key_of(name, is_global=is_global)
    before = log.fields(key)
    if before is None and not is_global and not log.has(key):
        before = older.get(full)
    after = said({**change(dict(before or {})), IS_GLOBAL: is_global})
    return [] if log.fields(key) is not None and after == before else [Said(full, after, is_global)]


def _has_room(full: str, fields: Json) -> bool:
    value = event_value(TopicName.parse(full), fields, "")
    try:
        encode(event_type(), value)
    except AvroValueError:
        return False
    return has_room_for(event_type(), value)


class EventWriter:
    """Entries of one producer, with one version of the schema."""

    def __init__(self, cluster: str, producer: str, version: int) -> None:
        self._cluster = cluster
        self._producer = producer
        self._version = version
        self._sequence_id = 0

    def entry(self, event: Said, now_ms: int) -> bytes:
        """Return the entry of an event. Raises MetadataRefusedError."""
        name = TopicName.parse(event.full)
        value = None if event.fields is None else event_value(name, event.fields, self._cluster)
        self._sequence_id = max(self._sequence_id + 1, now_ms)
        if value is not None and not has_room_for(event_type(), value):
            raise MetadataRefusedError(f"policies of {event.full} have fields that cannot be stored: {event.fields}")
        try:
            return event_entry(
                name,
                value,
                is_global=event.is_global,
                cluster=self._cluster,
                kind=event_type(),
                version=self._version,
                producer=self._producer,
                sequence_id=self._sequence_id,
                now_ms=now_ms,
            )
        except AvroValueError as error:
            raise MetadataRefusedError(f"policies of {event.full} cannot be stored: {error}") from error
