"""Unpacking of stored entries into columns of messages, the source of the rows. Pure.

    entry      [0x0e02 size BrokerEntryMetadata] [0x0e01 crc32c] metadataSize MessageMetadata payload
    payload    of one message; of a batch (num_messages_in_batch is there), see batches.py; of a piece, see chunks.py
               compressed as a whole (compression.py)

The plain entry, one message neither compressed nor chunked nor encrypted, is read from its bytes; all others go through
protobuf once per entry. Nothing is made per message but what the columns hold.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c
from google.protobuf.unknown_fields import UnknownFieldSet

from quire.client.batches import NO_PROPERTIES, Properties, Tail, key_of, properties_of, read_tail, split, varints
from quire.client.chunked.chunks import ChunkGap, Chunks
from quire.client.compression import decompress
from quire.client.deliveries import Deliveries
from quire.client.errors import CorruptEntryError, EncryptedEntryError
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.frames import MAGIC
from quire.wire.pulsar.metadata import metadata_span, read_metadata
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata

_HEAD = struct.Struct("!HII")
# Part of an entry's metadata behind the tag of sequence_id: its value and publish_time. Longer varints are left to
# protobuf.
_times_at = re.compile(rb"[\x80-\xff]{0,8}[\x00-\x7f]\x18([\x80-\xff]{0,8}[\x00-\x7f])").match
_MAGIC = MAGIC.to_bytes(2, "big")
_COMPRESSION_FIELD = 8
_NO_TAIL: Tail = (None, 0, NO_PROPERTIES, b"", None)
_COPY_MAX = 4096  # bytes; up to this size a copy is cheaper than two views


@dataclass(slots=True)
class Messages:
    """Messages as parallel columns, in the order of the topic."""

    values: list[bytes | None] = field(default_factory=list)
    """None: a message without a value (tombstone)."""
    keys: list[bytes | None] = field(default_factory=list)
    ledger_ids: list[int] = field(default_factory=list)
    entry_ids: list[int] = field(default_factory=list)
    batch_indexes: list[int] = field(default_factory=list)
    """Number in its batch; -1: not in a batch."""
    batch_sizes: list[int] = field(default_factory=list)
    """Messages in its batch; 0: not in a batch."""
    publish_ms: list[int] = field(default_factory=list)
    event_ms: list[int] = field(default_factory=list)
    """Event time in ms since 1970; 0: none."""
    properties: list[Properties] = field(default_factory=list)
    """Names and values. Lists may be shared and must not be changed."""
    schema_versions: list[bytes] = field(default_factory=list)
    """Version of the schema it was published with; empty: it has none."""
    ordering_keys: list[bytes | None] = field(default_factory=list)
    size_bytes: int = 0
    """Uncompressed bytes of everything here: values, keys, properties and their metadata."""

    def __len__(self) -> int:
        return len(self.values)

    def clear(self) -> None:
        """Remove all messages, so that it can be filled again."""
        self._cut(0)
        self.size_bytes = 0

    def remove(self, row: int) -> None:
        """Remove one message; those behind it move up. Its bytes stay counted."""
        for column in self._columns():
            del column[row]

    def _cut(self, rows: int) -> None:
        for column in self._columns():
            del column[rows:]

    def _columns(self) -> tuple[list[Any], ...]:
        ids = (self.ledger_ids, self.entry_ids, self.batch_indexes, self.batch_sizes)
        times = (self.publish_ms, self.event_ms)
        return (self.values, self.keys, *ids, *times, self.properties, self.schema_versions, self.ordering_keys)


class Opener:
    """Unpacking of the entries of one range of a topic, in order. Keeps the pieces of incomplete chunked messages.

    gaps = opener.open(deliveries, messages)
    if gaps:                                            # rare: a chunked message that begins before the range
        while opener.look_back(earlier_entries()): ...  # nearest first, until nothing is open or nothing is left
        lost = opener.complete(gaps, messages)          # before `messages` is handed on or cleared
    """

    def __init__(self, *, uncompressed_max: int = 64 << 20, chunked_max: int = 256 << 20) -> None:
        """Set bounds in bytes.

        Args:
            uncompressed_max: maximum uncompressed payload of one entry.
            chunked_max: maximum size of one chunked message (compressed and uncompressed) and of all pieces kept.
        """
        self._uncompressed_max = uncompressed_max
        self._chunked_max = chunked_max
        self._chunks = Chunks(chunked_max)

    def open(
        self, deliveries: Deliveries, into: Messages, *, first: int = 0, stop: int | None = None
    ) -> list[ChunkGap]:
        """Append the messages of some entries to `into`.

        Server markers and messages removed by compaction are left out. A chunked message has the place of its last
        piece. If its first pieces are not in the range, its row has None for its value, and a ChunkGap describes it.

        Args:
            deliveries: the entries.
            into: receives the messages.
            first: index of the first entry to open.
            stop: index behind the last one; None: all.

        Returns:
            The gaps of incomplete chunked messages.

        Raises:
            CorruptEntryError: invalid checksum, metadata, batch or compression; the text names the entry, and `into`
                has nothing of this call.
            EncryptedEntryError: an entry is encrypted; otherwise the same.
        """
        entries, ledger_ids, entry_ids = deliveries.entries, deliveries.ledger_ids, deliveries.entry_ids
        stop = len(entries) if stop is None else stop
        rows = len(into.values)
        size_before = into.size_bytes
        gaps: list[ChunkGap] = []
        add_value, add_key = into.values.append, into.keys.append
        add_publish, add_event, add_properties = into.publish_ms.append, into.event_ms.append, into.properties.append
        add_version, add_ordering = into.schema_versions.append, into.ordering_keys.append
        unpack = _HEAD.unpack_from
        plain = first  # entries from here on gave one plain message each, and lack their ids
        size_bytes = 0
        number = first
        try:
            for number in range(first, stop):
                entry = entries[number]
                try:
                    magic, checksum, end = unpack(entry)
                    end += 10
                    size = len(entry)
                    # The usual entry: 0x0e01, then producer_name (below 128 bytes), sequence_id, publish_time.
                    if magic == MAGIC and entry[10] == 0x0A and entry[12 + (at := entry[11])] == 0x10:
                        times = _times_at(entry, 13 + at, end) if at < 0x80 and end <= size else None
                        if times is not None:
                            at = times.end()
                            tail = _NO_TAIL if at == end else read_tail(entry, at, end)
                            if tail is not None:
                                if crc32c(entry[6:] if size < _COPY_MAX else memoryview(entry)[6:]) != checksum:
                                    raise CorruptEntryError("its checksum does not match")
                                key, event_ms, properties, version, ordering = tail
                                add_value(entry[end:])
                                add_key(key)
                                add_publish(varints[times[1]])
                                add_event(event_ms)
                                add_properties(properties)
                                add_version(version)
                                add_ordering(ordering)
                                size_bytes += size
                                continue
                except (IndexError, UnicodeDecodeError, struct.error):
                    pass
                _add_ids(into, deliveries, plain, number)
                plain = number + 1
                gap = self._open_other(bytes(entry), ledger_ids[number], entry_ids[number], into)
                if gap is not None:
                    gaps.append(gap)
            _add_ids(into, deliveries, plain, stop)
        except BaseException as error:
            into._cut(rows)
            into.size_bytes = size_before
            if isinstance(error, CorruptEntryError | EncryptedEntryError):
                where = f"entry {ledger_ids[number]}:{entry_ids[number]}"
                raise type(error)(f"{where}: {error}") from error
            raise
        into.size_bytes += size_bytes
        return gaps

    def look_back(self, deliveries: Deliveries) -> list[ChunkGap]:
        """Look for pieces of open gaps in entries before the range, in any order.

        Returns:
            The gaps that even earlier entries may fill. If there are none, stop.

        Raises:
            CorruptEntryError: a needed piece is invalid, or too large.
        """
        for ledger_id, entry_id, entry in zip(
            deliveries.ledger_ids, deliveries.entry_ids, deliveries.entries, strict=True
        ):
            try:
                metadata, payload = _checked(bytes(entry))
            except (CorruptEntryError, EncryptedEntryError):
                continue  # it is not in the range; if it was a piece, its gap stays open
            if metadata.num_chunks_from_msg > 1 and not metadata.HasField("num_messages_in_batch"):
                try:
                    self._chunks.look_back(metadata, payload, ledger_id, entry_id)
                except CorruptEntryError as error:
                    raise CorruptEntryError(f"entry {ledger_id}:{entry_id}: {error}") from None
        return self._chunks.open_gaps()

    def complete(self, gaps: list[ChunkGap], into: Messages) -> list[ChunkGap]:
        """Fill the rows of `gaps`, which must be all those of `into`, and remove the rows of incomplete messages.

        Returns:
            The gaps with missing pieces. A message that only repeats the end of an earlier one is not among them.

        Raises:
            CorruptEntryError: `into` must not be used any more.
        """
        lost: list[ChunkGap] = []
        # from the end, so that a removal does not move the next ones
        for gap in sorted(gaps, key=lambda each: each.row, reverse=True):
            payload = self._chunks.settle(gap)
            if payload is None:
                into.remove(gap.row)
                if gap.missing_chunk_ids:
                    lost.append(gap)
                continue
            try:
                value = self._uncompressed(gap.metadata, payload, self._chunked_max)
            except CorruptEntryError as error:
                raise CorruptEntryError(f"entry {gap.ledger_id}:{gap.entry_id}: {error}") from None
            into.values[gap.row] = None if gap.metadata.null_value else value
            into.size_bytes += len(value)
        return lost[::-1]

    def batch_of(self, entry: bytes) -> tuple[MessageMetadata, bytes] | None:
        """Return metadata and uncompressed payload of an entry, checked as `open` does; None: it is no batch.

        Raises:
            CorruptEntryError: invalid checksum, metadata or compression.
            EncryptedEntryError: the entry is encrypted.
        """
        metadata, payload = _checked(entry)
        if metadata.HasField("marker_type") or not metadata.HasField("num_messages_in_batch"):
            return None
        return metadata, self._uncompressed(metadata, payload, self._uncompressed_max)

    def _open_other(self, entry: bytes, ledger_id: int, entry_id: int, into: Messages) -> ChunkGap | None:
        """Open any entry, by protobuf."""
        metadata, payload = _checked(entry)
        if metadata.HasField("marker_type"):
            return None
        head_size = len(entry) - len(payload)
        gap = None
        indexes: Sequence[int] = (-1,)
        batched = metadata.HasField("num_messages_in_batch")
        count = 0
        if batched:
            count = metadata.num_messages_in_batch
            payload = self._uncompressed(metadata, payload, self._uncompressed_max)
            columns = (into.values, into.keys, into.event_ms, into.properties, into.ordering_keys)
            left_out = set(split(payload, count, *columns))
            indexes = [index for index in range(count) if index not in left_out] if left_out else range(count)
        else:
            if metadata.num_chunks_from_msg > 1:
                found = self._chunks.add(metadata, payload, ledger_id, entry_id, len(into.values))
                if found is None:
                    return None
                if isinstance(found, ChunkGap):
                    gap, payload = found, b""
                else:
                    payload = self._uncompressed(metadata, found, self._chunked_max)
            else:
                payload = self._uncompressed(metadata, payload, self._uncompressed_max)
            into.values.append(None if metadata.null_value or gap else payload)
            into.keys.append(key_of(metadata))
            into.event_ms.append(metadata.event_time)
            into.properties.append(properties_of(metadata))
            into.ordering_keys.append(metadata.ordering_key if metadata.HasField("ordering_key") else None)
        rows = len(indexes)
        into.size_bytes += head_size + len(payload)
        into.publish_ms += [metadata.publish_time] * rows
        into.ledger_ids += [ledger_id] * rows
        into.entry_ids += [entry_id] * rows
        into.batch_indexes += indexes
        into.batch_sizes += [count] * rows
        into.schema_versions += [metadata.schema_version] * rows
        return gap

    def _uncompressed(self, metadata: MessageMetadata, payload: bytes, size_max: int) -> bytes:
        kind, size = metadata.compression, metadata.uncompressed_size
        if not kind and size and size != len(payload):
            # A codec unknown to protobuf is an unknown field to it.
            unknown = UnknownFieldSet(metadata)
            kinds = [unknown[i].data for i in range(len(unknown)) if unknown[i].field_number == _COMPRESSION_FIELD]
            kind = kinds[-1] if kinds else kind
        return decompress(kind, payload, size, size_max=size_max)


def _checked(entry: bytes) -> tuple[MessageMetadata, bytes]:
    """Return metadata and payload of an entry, after a check of its checksum, if it has one, and that it is not
    encrypted."""
    try:
        start, stop = metadata_span(entry)
        # The checksum covers everything from the metadata's size on.
        if entry[start - 10 : start - 8] == _MAGIC and crc32c(memoryview(entry)[start - 4 :]) != int.from_bytes(
            entry[start - 8 : start - 4], "big"
        ):
            raise CorruptEntryError("its checksum does not match")
        metadata = read_metadata(entry)
    except MalformedMetadataError as error:
        raise CorruptEntryError(str(error)) from None
    if not metadata.IsInitialized():
        raise CorruptEntryError("its metadata has no producer name, sequence id or publish time")
    if metadata.encryption_keys:
        algorithm = metadata.encryption_algo or "an unnamed algorithm"
        raise EncryptedEntryError(f"its payload is encrypted ({algorithm}), and this client has no keys")
    return metadata, entry[stop:]


def _add_ids(into: Messages, deliveries: Deliveries, first: int, stop: int) -> None:
    """Append the ids of a run of entries with one plain message each."""
    if first < stop:
        into.ledger_ids += deliveries.ledger_ids[first:stop]
        into.entry_ids += deliveries.entry_ids[first:stop]
        into.batch_indexes += [-1] * (stop - first)
        into.batch_sizes += [0] * (stop - first)
