"""Pulsar's schema of its metadata of managed ledgers and cursors, made only from a table of its fields. It has none of
Quire's own fields, so it reads Quire's values as Pulsar does.

Source: Pulsar's MLDataFormats.proto: names, numbers, types, required fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

PACKAGE = "pulsar_schema"
OURS = 16_001
"""First of the field numbers that Quire adds."""

TABLE = """
KeyValue                        key 1 required string, value 2 required string
OffloadDriverMetadata           name 1 required string, properties 2 repeated KeyValue
OffloadSegment                  uidMsb 1 optional int64, uidLsb 2 optional int64, complete 3 optional bool, assignedTimestamp 4 optional int64, offloadedTimestamp 5 optional int64, endEntryId 6 optional int64, driverMetadata 7 optional OffloadDriverMetadata
OffloadContext                  uidMsb 1 optional int64, uidLsb 2 optional int64, complete 3 optional bool, bookkeeperDeleted 4 optional bool, timestamp 5 optional int64, driverMetadata 6 optional OffloadDriverMetadata, offloadSegment 7 repeated OffloadSegment
LedgerInfo                      ledgerId 1 required int64, entries 2 optional int64, size 3 optional int64, timestamp 4 optional int64, offloadContext 5 optional OffloadContext, properties 6 repeated KeyValue
NestedPositionInfo              ledgerId 1 required int64, entryId 2 required int64
ManagedLedgerInfo               ledgerInfo 1 repeated LedgerInfo, terminatedPosition 2 optional NestedPositionInfo, properties 3 repeated KeyValue
MessageRange                    lowerEndpoint 1 required NestedPositionInfo, upperEndpoint 2 required NestedPositionInfo
LongListMap                     key 1 required int64, values 2 repeated int64
BatchedEntryDeletionIndexInfo   position 1 required NestedPositionInfo, deleteSet 2 repeated int64
LongProperty                    name 1 required string, value 2 required int64
StringProperty                  name 1 required string, value 2 required string
PositionInfo                    ledgerId 1 required int64, entryId 2 required int64, individualDeletedMessages 3 repeated MessageRange, properties 4 repeated LongProperty, batchedEntryDeletionIndexInfo 5 repeated BatchedEntryDeletionIndexInfo, individualDeletedMessageRanges 6 repeated LongListMap
ManagedCursorInfo               cursorsLedgerId 1 required int64, markDeleteLedgerId 2 optional int64, markDeleteEntryId 3 optional int64, individualDeletedMessages 4 repeated MessageRange, properties 5 repeated LongProperty, lastActive 6 optional int64, batchedEntryDeletionIndexInfo 7 repeated BatchedEntryDeletionIndexInfo, cursorProperties 8 repeated StringProperty
"""

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {"int64": _FIELD.TYPE_INT64, "string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL}
_LABELS = {
    "required": _FIELD.LABEL_REQUIRED,
    "optional": _FIELD.LABEL_OPTIONAL,
    "repeated": _FIELD.LABEL_REPEATED,
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{PACKAGE}.proto", package=PACKAGE, syntax="proto2")
    for line in TABLE.strip().splitlines():
        name, _, fields = line.partition(" ")
        message = file.message_type.add(name=name)
        for field in fields.split(","):
            field_name, number, label, kind = field.split()
            added = message.field.add(name=field_name, number=int(number), label=_LABELS[label])
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        each.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{each.name}"))
        for each in file.message_type
    }


CLASSES = _classes()


def read(kind: str, value: bytes) -> Any:
    """Return the value as Pulsar reads it. Raises DecodeError if it cannot, also if a required field is missing."""
    found = CLASSES[kind].FromString(value)
    if not found.IsInitialized():
        raise DecodeError(f"{kind} lacks {found.FindInitializationErrors()}")
    return found


def unknown_numbers(message: Message) -> Iterator[int]:
    """Yield the field numbers in the message and its parts that the table does not have."""
    unknown: Any = UnknownFieldSet(message)
    for field in unknown:
        yield field.field_number
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for each in [value] if isinstance(value, Message) else value:
                yield from unknown_numbers(each)
