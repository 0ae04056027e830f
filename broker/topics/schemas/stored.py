"""Stored form of schemas: the locator of a topic, and the entry of each version (pure).

    /schemas/<tenant>/<namespace>/<topic, escaped>     SchemaLocator
    one ledger per version, of one entry               SchemaEntry, with a StoredSchema in it

A partition has the schemas of its topic. Source: Pulsar's BookkeeperSchemaStorage and SchemaRegistryServiceImpl;
tests/golden/pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from broker.topics.schemas.schema import Schema, SchemaType, Version
from quire.wire.pulsar import SchemaFormats_pb2 as pb
from quire.wire.pulsar.names import TopicName, encode_name

ROOT = "/schemas"
NO_POSITION = (-1, -1)
_TYPE_OFFSET = 1
"""Difference of a stored type to the client's."""


class SchemaFormatError(ValueError):
    """A stored value that is not one of a schema."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Place of one version."""

    number: int
    ledger_id: int
    entry_id: int
    hash: bytes
    """Empty: a tombstone."""


@dataclass(frozen=True, slots=True)
class Locator:
    """The versions of a topic's schemas, in order."""

    index: tuple[IndexEntry, ...]
    deleting: bool = False
    """True while they are being deleted: there are none any more, and the ledgers go."""

    @property
    def newest(self) -> IndexEntry:
        return self.index[-1]

    @property
    def ledger_ids(self) -> list[int]:
        return list(dict.fromkeys(each.ledger_id for each in self.index))

    def with_version(self, ledger_id: int, entry_id: int, hashed: bytes) -> Locator:
        """Return the locator with one more version."""
        return Locator((*self.index, IndexEntry(self.newest.number + 1, ledger_id, entry_id, hashed)))


def schema_id(name: TopicName) -> str:
    """Return the id under which the schemas of a topic are kept.

    >>> schema_id(TopicName.parse("persistent://a/b/x y-partition-3"))
    'a/b/x+y'
    """
    return f"{name.namespace_path}/{encode_name(name.partitioned.local)}"


def locator_path(key: str) -> str:
    return f"{ROOT}/{key}"


def first_locator(ledger_id: int, entry_id: int, hashed: bytes) -> Locator:
    """Return the locator of a topic's first version."""
    return Locator((IndexEntry(0, ledger_id, entry_id, hashed),))


def encode_locator(locator: Locator) -> bytes:
    message = pb.SchemaLocator()
    _fill(message.info, locator.newest)
    for each in locator.index:
        _fill(message.index.add(), each)
    if locator.deleting:
        message.quireDeleting = True
    return message.SerializeToString()


def decode_locator(value: bytes) -> Locator:
    """Return the locator. Raises SchemaFormatError."""
    try:
        message = pb.SchemaLocator.FromString(value)
    except DecodeError as error:
        raise SchemaFormatError(f"not a locator of schemas: {error}") from error
    index = tuple(_index_entry(each) for each in message.index)
    if not index or index[-1].number != message.info.version:
        raise SchemaFormatError("a locator of schemas whose newest version is not the last one of its index")
    return Locator(index, deleting=message.quireDeleting)


def encode_entry(key: str, version: Version, before: Locator | None) -> bytes:
    """Return the entry of a new version. `before`: the locator it is added to."""
    schema = version.schema
    stored = pb.StoredSchema(
        schema_id=key,
        user=version.user,
        type=schema.type + _TYPE_OFFSET,
        schema=schema.data,
        timestamp=version.timestamp_ms,
        deleted=version.deleted,
    )
    for name, value in schema.properties.items():
        stored.props.add(key=name, value=value)
    entry = pb.SchemaEntry(schema_data=stored.SerializeToString())
    if before is None:
        _fill(entry.index.add(), IndexEntry(0, *NO_POSITION, hash_of(version)))
    else:
        for each in before.index:
            _fill(entry.index.add(), each)
    return entry.SerializeToString()


def decode_entry(number: int, value: bytes | memoryview) -> Version:
    """Return the version that an entry holds. Raises SchemaFormatError."""
    try:
        entry = pb.SchemaEntry.FromString(bytes(value))
        stored = pb.StoredSchema.FromString(entry.schema_data)
        kind = SchemaType(stored.type - _TYPE_OFFSET)
    except (DecodeError, ValueError) as error:
        raise SchemaFormatError(f"not an entry of a schema: {error}") from error
    schema = Schema(kind, stored.schema, {each.key: each.value for each in stored.props})
    return Version(number, schema, stored.timestamp, deleted=stored.deleted, user=stored.user)


def hash_of(version: Version) -> bytes:
    """Return the hash that the index keeps of a version."""
    return b"" if version.deleted else version.schema.hash


def tombstone(number: int, timestamp_ms: int) -> Version:
    """Return a version that ends the ones before it."""
    return Version(number, Schema(SchemaType.NONE), timestamp_ms, deleted=True)


def _fill(message: pb.SchemaIndexEntry, entry: IndexEntry) -> None:
    message.version = entry.number
    message.position.ledgerId = entry.ledger_id
    message.position.entryId = entry.entry_id
    message.hash = entry.hash


def _index_entry(message: pb.SchemaIndexEntry) -> IndexEntry:
    return IndexEntry(message.version, message.position.ledgerId, message.position.entryId, message.hash)
