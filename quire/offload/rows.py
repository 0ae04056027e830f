"""Entries as rows, and rows as entries again. Pure.

    __kind         rows of an entry          value
    message        one, or one a message     the message, uncompressed; null: a tombstone
    transaction    the same                  the same; only a broker knows whether the transaction was aborted
    compacted      one in a batch            null: compaction left this message out
    chunk          one                       a piece of a message, as sent
    marker         one                       null: written by a server for servers
    encrypted      one                       null
    unreadable     one                       null: not an entry of Pulsar's, or damaged

Why this is hard: values are to be columns that any engine reads, and yet no byte may get lost, whatever was sent. So
`__header` has the bytes before each value, and an entry is the headers and values of its rows, one after the other.
Where that would not give the same bytes, because the payload is compressed, encrypted or not understood, `__stored` has
the payload as it was stored, and the entry is the first header and that. The rows of every entry are put together again
before they are written, and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from quire.client.batches import NO_PROPERTIES, Properties, key_of, properties_of
from quire.client.compression import decompress
from quire.client.errors import ClientError, CorruptEntryError
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.metadata import metadata_span, read_metadata
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

UNCOMPRESSED_MAX = 64 << 20
"""Bytes of a payload above which it is kept as stored only."""
BATCH_MAX = 100_000
"""Messages of a batch above which it is kept as stored only: a row costs much more than an empty message."""

MESSAGE, TRANSACTION, COMPACTED = "message", "transaction", "compacted"
CHUNK, MARKER, ENCRYPTED, UNREADABLE = "chunk", "marker", "encrypted", "unreadable"


class Row(NamedTuple):
    """One message, or an entry that is none."""

    kind: str
    header: bytes
    value: bytes | None
    batch: int | None = None
    """Number in its batch; None: the entry is no batch."""
    key: bytes | None = None
    properties: Properties = NO_PROPERTIES
    publish_ms: int | None = None
    event_ms: int = 0
    """0: none."""
    ordering_key: bytes | None = None
    schema_version: bytes = b""
    """Empty: none."""
    stored: bytes | None = None
    """Payload as stored, on the first row of an entry that headers and values do not give."""


def rows_of(entry: bytes) -> list[Row]:
    """Return the rows of an entry, at least one; `entry_of` gives the same bytes."""
    rows = _rows(entry)
    if entry_of(rows) != entry:
        _, stop = metadata_span(entry)  # an entry without metadata is stored as it is, and is equal
        rows = [row._replace(header=b"") for row in rows]
        rows[0] = rows[0]._replace(header=entry[:stop], stored=entry[stop:])
    return rows


def entry_of(rows: Sequence[Row]) -> bytes:
    """Return the entry of its rows."""
    first = rows[0]
    return joined(first.stored, [row.header for row in rows], [row.value for row in rows])


def joined(stored: bytes | None, headers: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
    """Return an entry from the columns of its rows; `stored`: of the first one."""
    if stored is not None:
        return headers[0] + stored
    if len(headers) == 1:
        return headers[0] + (values[0] or b"")
    return b"".join(part or b"" for pair in zip(headers, values, strict=True) for part in pair)


def _rows(entry: bytes) -> list[Row]:
    try:
        _, stop = metadata_span(entry)
        metadata = read_metadata(entry)
    except MalformedMetadataError:
        return [Row(UNREADABLE, b"", None, stored=entry)]
    header, payload = entry[:stop], entry[stop:]
    row = Row(
        UNREADABLE,
        header,
        None,
        key=key_of(metadata),
        properties=properties_of(metadata),
        publish_ms=metadata.publish_time if metadata.HasField("publish_time") else None,
        event_ms=metadata.event_time,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        schema_version=metadata.schema_version,
        stored=payload,
    )
    if metadata.HasField("marker_type"):
        return [row._replace(kind=MARKER)]
    if not metadata.IsInitialized():
        return [row]
    if metadata.encryption_keys:
        return [row._replace(kind=ENCRYPTED)]
    is_batch = metadata.HasField("num_messages_in_batch")
    if metadata.num_chunks_from_msg > 1 and not is_batch:
        return [row._replace(kind=CHUNK, value=payload, stored=None)]
    of_transaction = metadata.HasField("txnid_most_bits") or metadata.HasField("txnid_least_bits")
    kind = TRANSACTION if of_transaction else MESSAGE
    try:
        plain = decompress(metadata.compression, payload, metadata.uncompressed_size, size_max=UNCOMPRESSED_MAX)
        if metadata.uncompressed_size and metadata.uncompressed_size != len(plain):
            return [row]  # a codec that is unknown to protobuf reads as none
        if is_batch:
            return _batch(metadata, header, plain, row._replace(kind=kind, stored=None))
    except ClientError:
        return [row]
    return [row._replace(kind=kind, value=None if metadata.null_value else plain, stored=None)]


def _batch(metadata: MessageMetadata, header: bytes, payload: bytes, like: Row) -> list[Row]:
    """Return the rows of an uncompressed batch. Raises CorruptEntryError."""
    count, end = metadata.num_messages_in_batch, len(payload)
    if not 1 <= count <= BATCH_MAX:
        raise CorruptEntryError(f"a batch of {count} messages")
    rows: list[Row] = []
    add: Callable[[Row], None] = rows.append
    start = 0
    for index in range(count):
        at = start + 4
        stop = at + int.from_bytes(payload[start:at], "big")
        if at > end or stop > end:
            raise CorruptEntryError(f"message {index} of {count} ends behind its batch of {end} bytes")
        try:
            single = SingleMessageMetadata.FromString(payload[at:stop])
        except DecodeError as error:
            raise CorruptEntryError(f"unreadable metadata of message {index} of {count}: {error}") from None
        after = stop + single.payload_size
        if single.payload_size < 0 or after > end:
            raise CorruptEntryError(f"message {index} of {count} ends behind its batch of {end} bytes")
        add(
            like._replace(
                kind=COMPACTED if single.compacted_out else like.kind,
                header=header + payload[start:stop],
                value=None if single.null_value or single.compacted_out else payload[stop:after],
                batch=index,
                key=key_of(single),
                properties=properties_of(single),
                event_ms=single.event_time,
                ordering_key=single.ordering_key if single.HasField("ordering_key") else None,
            )
        )
        header, start = b"", after
    return rows
