"""Change events: the messages of `<namespace>/__change_events` that hold the policies of single topics (pure).

    key       persistent://tenant/namespace/topic, of a partitioned topic its own name; with __G__ before it the
              policies that are meant for all clusters
    value     PulsarEvent in Avro with the whole policies of the topic; a null value: there are none any more

The last event of a key counts. The policies of this cluster go before those of all clusters, each by itself.

Source: Pulsar's SystemTopicBasedTopicPoliciesService, TopicPoliciesService (keys), TopicPoliciesSystemTopicClient;
tests/golden/pulsar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from broker.ownership.values import Json
from broker.topics.schemas.avro_schema import AvroType
from broker.topics.schemas.schema import version_bytes, version_number
from broker.topics.topic_policies.avro import AvroValueError, decode, encode
from broker.topics.topic_policies.source import GLOBAL
from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError, EncryptedEntryError
from quire.client.unpacking import Messages, Opener
from quire.wire.pulsar.errors import InvalidNameError, MalformedMetadataError
from quire.wire.pulsar.frames import MAGIC
from quire.wire.pulsar.metadata import read_metadata
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata

IS_GLOBAL: Final = "isGlobal"
UNREADABLE: Final = "unreadableTopicPolicies"
"""Field of policies that could not be read, with the reason: the topic is not served without them."""
EVENT_BYTES_MAX: Final = 5 << 20
_EMPTY: Final[Mapping[str, Any]] = {"backLogQuotaMap": {}, "subscriptionPolicies": {}, "subscriptionTypesEnabled": []}
"""Values that the original writes where nothing is said."""


class PolicyChange(NamedTuple):
    """Content of one event."""

    key: str
    fields: Json | None
    """The policies of the topic from now on; None: it has none."""
    first: bool = False
    """True if it counts only where there is nothing yet."""


def key_of(name: TopicName, *, is_global: bool = False) -> str:
    """Return the key of a topic's policies.

    >>> key_of(TopicName.parse("persistent://a/b/c-partition-3"), is_global=True)
    '__G__persistent://a/b/c'
    """
    full = name.partitioned.full
    return f"{GLOBAL}{full}" if is_global else full


def said(fields: Mapping[str, Any]) -> Json:
    """Return policies without what says nothing."""
    return {key: each for key, each in fields.items() if each not in (None, {}, [])}


# Reading


def changes_in(entry: bytes, schema_of: Callable[[int], AvroType | None]) -> list[PolicyChange]:
    """Return what an entry says: of most one change, of a batch several, of other events nothing.

    `schema_of` has the schemas of the topic by version; None: there is none. Policies that cannot be read count as
    UNREADABLE, so that a topic whose policies are unknown is not served as if it had none."""
    found = Messages()
    try:
        Opener(uncompressed_max=EVENT_BYTES_MAX).open(Deliveries([0], [0], [entry]), found)
        metadata = read_metadata(entry)
    except (CorruptEntryError, EncryptedEntryError) as error:
        damaged = _key_in_damaged(entry)
        return [] if damaged is None else [PolicyChange(damaged, {UNREADABLE: str(error)[:200]})]
    number = version_number(metadata.schema_version)
    changes = []
    for key, value in zip(found.keys, found.values, strict=True):
        if key is None:
            continue
        change = _change(key.decode(errors="replace"), value, number, schema_of)
        if change is not None:
            changes.append(change)
    return changes


def version_of(entry: bytes) -> int | None:
    """Return the version of the schema of an entry's value, -1 if it names none; None if there is no value."""
    try:
        metadata = read_metadata(entry)
    except MalformedMetadataError:
        return None
    return None if metadata.null_value else version_number(metadata.schema_version)


def _key_in_damaged(entry: bytes) -> str | None:
    try:
        metadata = read_metadata(entry)
    except MalformedMetadataError:
        return None
    return _checked_key(metadata.partition_key) if metadata.HasField("partition_key") else None


def _checked_key(text: str) -> str | None:
    """Return the key for a text that may name a partition; None: it names no topic."""
    is_global = text.startswith(GLOBAL)
    try:
        return key_of(TopicName.parse(text.removeprefix(GLOBAL)), is_global=is_global)
    except InvalidNameError:
        return None


def _change(
    text: str, value: bytes | None, number: int, schema_of: Callable[[int], AvroType | None]
) -> PolicyChange | None:
    key = _checked_key(text)
    if not value:
        return None if key is None else PolicyChange(key, None)
    kind = schema_of(number)
    try:
        if kind is None:
            raise AvroValueError(f"there is no version {number} of the schema")
        event = decode(kind, value)
        if not isinstance(event, dict):
            raise AvroValueError("it is no record")
    except AvroValueError as error:
        return None if key is None else PolicyChange(key, {UNREADABLE: str(error)[:200]})
    if event.get("eventType") != "TOPIC_POLICY":
        return None
    return _of_event(key, event)


def _of_event(key: str | None, event: Mapping[str, Any]) -> PolicyChange | None:
    about = event.get("topicPoliciesEvent") or {}
    policies = about.get("policies") or {}
    named = _checked_key(f"{about.get('domain')}://{about.get('tenant')}/{about.get('namespace')}/{about.get('topic')}")
    if named is None and key is None:
        return None
    # Older versions wrote the policies of all clusters without __G__ before the key.
    topic = (named or key or "").removeprefix(GLOBAL)
    full = f"{GLOBAL}{topic}" if policies.get(IS_GLOBAL) else topic
    match event.get("actionType"):
        case "UPDATE":
            return PolicyChange(full, said(policies))
        case "INSERT":
            return PolicyChange(full, said(policies), first=True)
        case "DELETE":
            return PolicyChange(full, None)
        case _:
            return None


# Writing


def event_value(name: TopicName, fields: Mapping[str, Any], cluster: str) -> Json:
    """Return the event that says that a topic has these policies."""
    is_global = bool(fields.get(IS_GLOBAL))
    return {
        "actionType": "UPDATE",
        "eventType": "TOPIC_POLICY",
        "replicateTo": None if is_global else [cluster],
        "topicPoliciesEvent": {
            "domain": name.domain,
            "tenant": name.tenant,
            "namespace": name.namespace,
            "topic": name.partitioned.local,
            "policies": {**_EMPTY, IS_GLOBAL: is_global, **fields},
        },
    }


def event_entry(
    name: TopicName,
    value: Json | None,
    *,
    is_global: bool,
    cluster: str,
    kind: AvroType,
    version: int,
    producer: str,
    sequence_id: int,
    now_ms: int,
) -> bytes:
    """Return the entry of an event; `value`: None to say that there are no policies any more. Raises AvroValueError."""
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence_id,
        publish_time=now_ms,
        partition_key=key_of(name, is_global=is_global),
        partition_key_b64_encoded=False,
        schema_version=version_bytes(version),
    )
    if not is_global:
        metadata.replicate_to.append(cluster)
    payload = b""
    if value is None:
        metadata.null_value = True
    else:
        payload = encode(kind, value)
        metadata.uncompressed_size = len(payload)
    packed = metadata.SerializeToString()
    checked = len(packed).to_bytes(4, "big") + packed + payload
    return MAGIC.to_bytes(2, "big") + crc32c(checked).to_bytes(4, "big") + checked
