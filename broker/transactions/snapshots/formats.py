"""Messages of the topics that hold snapshots of transactions (pure), as Pulsar 4.2 writes them.

    __transaction_buffer_snapshot            key: the topic; value: TransactionBufferSnapshot
    __transaction_buffer_snapshot_indexes    key: the topic; value: TransactionBufferSnapshotIndexes, which has the last
                                             aborted transactions itself, and the places of the others
    __transaction_buffer_snapshot_segments   at those places: TransactionBufferSnapshotSegment

The last message of a key counts; a null value deletes it. A snapshot says of the log up to a position which of its
transactions were aborted; what is behind the position has to be read. This stays true however old it is, so snapshots
of one topic can be united. Quire writes the first kind, with the low watermarks of coordinators in a property of the
message, which Pulsar passes over.

Source: the schemas that Pulsar 4.2.4's client makes of its classes in org.apache.pulsar.broker.transaction.buffer,
NamespaceEventsSystemTopicFactory, SingleSnapshotAbortedTxnProcessorImpl, SnapshotSegmentAbortedTxnProcessorImpl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from broker.topics.schemas.avro_schema import AvroType, parse
from broker.topics.schemas.schema import Schema, SchemaType
from broker.topics.topic_policies.avro import AvroValueError, decode, encode
from broker.transactions.buffer_state import Aborted, Snapshot, SnapshotError
from broker.transactions.txn_id import TxnId
from quire.client.packing import Packed
from quire.ledger.position import Position
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata

SNAPSHOTS: Final = "__transaction_buffer_snapshot"
INDEXES: Final = "__transaction_buffer_snapshot_indexes"
SEGMENTS: Final = "__transaction_buffer_snapshot_segments"
"""Local names of the topics. Source: Pulsar's SystemTopicNames."""
WATERMARKS: Final = "quire.watermarks"
"""Property of a message: JSON, [[coordinator, number]]."""
PARTS_MAX: Final = 2_000_000
"""Numbers and records that one value may have; the largest message holds fewer."""
_SPACE: Final = "org.apache.pulsar.broker.transaction.buffer.metadata"


def _record(name: str, *longs: str, space: str = "", **fields: Any) -> dict[str, Any]:
    """Return a record with its fields in the order of their names: `longs` are never null."""
    every = {**dict.fromkeys(longs, "long"), **{key: ["null", kind] for key, kind in fields.items()}}
    return {
        "type": "record",
        "name": name,
        **({"namespace": space} if space else {}),
        "fields": [
            {"name": key, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
            for key, kind in sorted(every.items())
        ],
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "java-class": "java.util.List"}


def _schema(definition: dict[str, Any]) -> Schema:
    properties = {"__jsr310ConversionEnabled": "false", "__alwaysAllowNull": "true"}
    return Schema(SchemaType.AVRO, json.dumps(definition, separators=(",", ":")).encode(), properties)


@cache
def snapshot_schema() -> Schema:
    """Return the schema as producers of snapshots register it."""
    aborted = _record("AbortTxnMetadata", "entryId", "ledgerId", "txnIdLeastBits", "txnIdMostBits")
    position = ("maxReadPositionEntryId", "maxReadPositionLedgerId")
    return _schema(
        _record("TransactionBufferSnapshot", *position, space=_SPACE, aborts=_list(aborted), topicName="string")
    )


@cache
def snapshot_type() -> AvroType:
    return parse(snapshot_schema().data)


class Segments(NamedTuple):
    """Content of the newest index of a topic."""

    last: Snapshot
    """Its position, and the aborted transactions that no segment has."""
    places: list[tuple[Position, Position]]
    """Segments: where each is in its topic, and where the marker of its last transaction is in the log."""


def snapshot_message(topic: TopicName, snapshot: Snapshot | None, version: bytes) -> Packed:
    """Return the message with a topic's snapshot, for any producer; None: it has none any more.

    Raises SnapshotError: it is too large."""
    metadata = MessageMetadata(partition_key=topic.full, partition_key_b64_encoded=False, schema_version=version)
    payload = b""
    if snapshot is None:
        metadata.null_value = True
    else:
        payload = encode_snapshot(topic, snapshot)
        metadata.uncompressed_size = len(payload)
        marks = [[*item] for item in snapshot.low_watermarks.items()]
        metadata.properties.add(key=WATERMARKS, value=json.dumps(marks, separators=(",", ":")))
    fields = metadata.SerializePartialToString()
    return Packed(1, len(fields) + len(payload), fields, payload)


def encode_snapshot(topic: TopicName, snapshot: Snapshot) -> bytes:
    aborts = [
        {
            "txnIdMostBits": txn.most,
            "txnIdLeastBits": txn.least,
            "ledgerId": each.marker.ledger_id,
            "entryId": each.marker.entry_id,
        }
        for txn, each in snapshot.aborted.items()
    ]
    ledger_id, entry_id = snapshot.position
    value = {
        "topicName": topic.full,
        "maxReadPositionLedgerId": ledger_id,
        "maxReadPositionEntryId": entry_id,
        "aborts": aborts,
    }
    return encode(snapshot_type(), value)


def decode_snapshot(kind: AvroType, value: bytes, properties: Iterable[tuple[str, str]]) -> Snapshot:
    """Return what a message with a snapshot says. Raises SnapshotError."""
    with_fields = _decoded(kind, value)
    aborted = {_txn(each): Aborted(None, _place(each)) for each in with_fields["aborts"]}
    try:
        marks = json.loads(dict(properties).get(WATERMARKS, "[]"))
        low_watermarks = {int(coordinator): int(mark) for coordinator, mark in marks}
    except (ValueError, TypeError) as error:
        raise SnapshotError(f"the property {WATERMARKS} of a snapshot cannot be read: {error}") from None
    return Snapshot(_max_read(with_fields), aborted, low_watermarks)


def decode_index(kind: AvroType, value: bytes) -> Segments:
    """Return what the index of a segmented snapshot says. Raises SnapshotError."""
    fields = _decoded(kind, value, "indexList", "snapshot")
    position = _max_read(fields["snapshot"])
    # Their markers are before the position; the index does not name them.
    aborted = {_txn(each): Aborted(None, position) for each in fields["snapshot"]["aborts"]}
    places = [
        (
            Position(each["segmentLedgerID"], each["segmentEntryID"]),
            Position(each["abortedMarkLedgerID"], each["abortedMarkEntryID"]),
        )
        for each in fields["indexList"]
    ]
    return Segments(Snapshot(position, aborted, {}), places)


def decode_segment(kind: AvroType, value: bytes, marker: Position) -> dict[TxnId, Aborted]:
    """Return the transactions of a segment; `marker`: that of the last of them. Raises SnapshotError."""
    return {_txn(each): Aborted(None, marker) for each in _decoded(kind, value)["aborts"]}


def _decoded(kind: AvroType, value: bytes, *needed: str) -> Mapping[str, Any]:
    """Return the fields of a record: those that are `needed`, and lists without null."""
    try:
        fields: dict[str, Any] = decode(kind, value, parts_max=PARTS_MAX)
        for name in ("aborts", "indexList"):
            if name in fields:
                fields[name] = fields[name] or []
        inner = fields.get("snapshot")
        if inner is not None:
            inner["aborts"] = inner["aborts"] or []
        for name in needed:
            if fields[name] is None:
                raise AvroValueError(f"it lacks {name}")
    except (AvroValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"a snapshot of transactions cannot be read: {error}") from error
    return fields


def _max_read(fields: Mapping[str, Any]) -> Position:
    try:
        return Position(fields["maxReadPositionLedgerId"], fields["maxReadPositionEntryId"])
    except KeyError as error:
        raise SnapshotError(f"a snapshot of transactions lacks {error}") from None


def _place(fields: Mapping[str, Any]) -> Position:
    try:
        return Position(fields["ledgerId"], fields["entryId"])
    except KeyError as error:
        raise SnapshotError(f"an aborted transaction lacks {error}") from None


def _txn(fields: Mapping[str, Any]) -> TxnId:
    try:
        if "mostSigBits" in fields:
            return TxnId(fields["mostSigBits"], fields["leastSigBits"])
        return TxnId(fields["txnIdMostBits"], fields["txnIdLeastBits"])
    except KeyError as error:
        raise SnapshotError(f"an aborted transaction lacks {error}") from None
